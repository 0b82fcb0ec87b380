"""The channel between a service and a running job: the formats of its files, and how they are written and read.

Must not import anything but the model: it is loaded inside jobs, and by services of any kind.
"""
