"""The REST interface: routes, their dependencies, errors as answers, and server-sent events. Decides nothing."""
