"""NetPack's paper: its file (paper.yaml), and the policies that it compares with."""

from cranny.repro.paper_file import Paper, read_paper

NETPACK, COMB = "netpack", "comb"
RIVALS = ("gpu-balance", "flow-balance", "least-fragmentation", "optimus", "tetris")
TEXT = read_paper(Paper, __package__)
PAPER_NAMES = TEXT.names
