"""CASSINI's evaluation (NSDI 2024), rebuilt."""
