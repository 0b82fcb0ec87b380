"""The version of cranny."""

VERSION = "0.1.0"
