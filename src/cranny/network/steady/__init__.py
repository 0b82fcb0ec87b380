"""The steady state of a shared network: the rate of every running job, max-min fair."""
