"""Regret: every policy in every paper's world, each metric over that of the best other policy there."""
