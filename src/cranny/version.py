"""The version of cranny."""

VERSION = "0.2.0"
