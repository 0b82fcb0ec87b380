"""Pages that MkDocs makes from the code at build time, so that they cannot go out of date; no text of its own."""
