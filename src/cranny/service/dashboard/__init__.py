"""The dashboard: one page and its files, served from the package. It reads the REST interface and nothing else."""
