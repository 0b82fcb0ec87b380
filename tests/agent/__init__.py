"""Sizes of the jobs that are trained; without PyTorch, so that tests can say that it is absent.

Times are long enough that a busy machine, which lets a process wait for some 10 ms, does not blur them.
"""

WORKERS = 2  # of each job
COMPUTE_S = 0.18
PARTS = 6  # in which gradients pass the link
PART_S = 0.03
PERIOD_S = 0.42  # 0.06 more than an iteration takes when it runs alone
LONG_S = 0.63  # 0.09 more than an iteration takes when both jobs communicate at the same time
TOGETHER, APART = 7, 12  # iterations that jobs start at the same time, and half a period apart
ITERATIONS, PAUSE_S = 5, 0.02  # where models are listened to; the pause is between models
CONNECTED_STEPS, CONNECTED_BATCH = 50, 12  # of the job with a channel
SPEEDS, SLEEP_S = (1.0, 2.0), 0.03  # of its ranks, and what a sample takes at speed 1
TOKEN = "of-a-test"  # noqa: S105 - of no service
