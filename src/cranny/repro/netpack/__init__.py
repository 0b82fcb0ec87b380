"""NetPack's evaluation (ASPLOS 2024), rebuilt in the simulator."""
