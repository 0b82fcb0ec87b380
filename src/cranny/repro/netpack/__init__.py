"""NetPack's evaluation (ASPLOS 2024, Sec. 6), in the simulator. The policy itself is in `policies`, not here."""
