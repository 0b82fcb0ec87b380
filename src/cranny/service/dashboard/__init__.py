"""The dashboard: one page and its static files. It must not read anything but the REST interface."""
