"""The simulator: a shell around the engine that carries its commands out in virtual time."""
