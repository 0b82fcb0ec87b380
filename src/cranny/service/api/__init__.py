"""The REST interface: routes, their dependencies, errors as problem+json, and server-sent events.

It must not decide or write anything: it passes calls to the service and reads snapshots.
"""
