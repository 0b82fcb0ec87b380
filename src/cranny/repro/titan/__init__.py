"""Titan's evaluation (ICNP 2024, Sec. V): its experiments 1 to 7. The policy itself is in `policies`, not here."""
