"""What runs inside jobs: pacing of iterations, for any training loop and PyTorch. Must not import the service."""
