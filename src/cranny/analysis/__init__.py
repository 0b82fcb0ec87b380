"""Questions asked of many replays: what-if on a job log, sweeps, and why a job was placed where it was."""
