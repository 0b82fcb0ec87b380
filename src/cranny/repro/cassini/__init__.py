"""CASSINI's evaluation (NSDI 2024, Sec. 5), on one link and on traces. Its policy is in `policies`, not here."""
