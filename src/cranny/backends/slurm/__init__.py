"""Slurm: the cluster is read from it, and it starts and ends jobs where cranny places them.

Nothing here decides where a job runs, and nothing goes through a shell: commands are lists of arguments.
"""
