"""Job traces: our own format, readers for files, generators calibrated on published statistics."""
