"""What runs inside jobs: pacing of iterations, and PyTorch loops that keep to it. Never imports the service."""
