"""Faults of all kinds against real services, and checks that do not depend on what these services say."""
