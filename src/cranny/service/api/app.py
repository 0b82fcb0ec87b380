"""The REST interface, put together."""

from fastapi import FastAPI

from cranny.service.api import routes_access, routes_cluster, routes_jobs
from cranny.service.api.errors import Gate, add_handlers
from cranny.service.api.sse import Bell
from cranny.service.auth import Keeper
from cranny.service.dashboard import dashboard
from cranny.service.metrics import Gauges
from cranny.service.service import Service
from cranny.version import VERSION


def build(service: Service, keeper: Keeper) -> FastAPI:
    """Return the application that serves a service."""
    app = FastAPI(title="cranny", version=VERSION, docs_url=None, redoc_url=None)
    bell = Bell()
    app.state.service, app.state.keeper, app.state.bell = service, keeper, bell
    app.state.gauges = Gauges(service)
    service.listeners.append(bell.ring)
    add_handlers(app)
    app.include_router(routes_jobs.router)
    app.include_router(routes_cluster.router)
    app.include_router(routes_access.router)
    dashboard.add(app)
    app.add_middleware(Gate, most_bytes=service.limits.body_bytes)
    return app
