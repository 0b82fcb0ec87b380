"""The name and version of the JSON that a what-if prints."""

# The number grows when a field goes or means something else; new fields may come at any time.
SCHEMA = "cranny.what-if/1"
