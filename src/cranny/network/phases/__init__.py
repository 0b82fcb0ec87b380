"""Jobs that compute and communicate in turn, and share links only while they communicate: phase by phase."""
