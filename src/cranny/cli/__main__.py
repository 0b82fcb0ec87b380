"""Lets `python -m cranny.cli` stand for the command."""

from cranny.cli import main

main()
