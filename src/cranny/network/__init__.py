"""How running jobs share links: isolated, steady (max-min fair), in phases, and interleaved.

No policy belongs here, and nothing here decides where jobs run.
"""
