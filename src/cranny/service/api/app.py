"""The web application: REST routes, dashboard and middleware put together."""

from fastapi import FastAPI

from cranny.service.api import (
    routes_access,
    routes_cluster,
    routes_hosts,
    routes_jobs,
    routes_measurements,
    routes_moves,
    routes_oidc,
)
from cranny.service.api.errors import add_handlers
from cranny.service.api.request_guard import RequestGuard, RequestRules
from cranny.service.api.sse import EventNotifier
from cranny.service.audit import AuditLog
from cranny.service.auth import Authenticator
from cranny.service.dashboard import dashboard
from cranny.service.metrics import MetricsCollector
from cranny.service.oidc_login import OidcLogin
from cranny.service.service import Service
from cranny.version import VERSION


def build(
    service: Service,
    authenticator: Authenticator,
    rules: RequestRules = RequestRules(),  # noqa: B008 - frozen
    oidc: OidcLogin | None = None,
) -> FastAPI:
    """Return the web application of a service."""
    app = FastAPI(title="cranny", version=VERSION, docs_url=None, redoc_url=None)
    notifier = EventNotifier()
    app.state.service, app.state.authenticator, app.state.notifier = service, authenticator, notifier
    app.state.audit = audit = AuditLog(service)
    authenticator.on_token.append(audit.token_found)
    app.state.metrics = MetricsCollector(service)
    service.on_stored.append(notifier.notify)
    app.state.also_at = rules.also_at
    app.state.oidc = oidc
    add_handlers(app)
    jobs, cluster = (routes_jobs, routes_measurements), (routes_cluster, routes_moves, routes_hosts)
    for routes in (*jobs, *cluster, routes_access, routes_oidc):
        app.include_router(routes.router)
    app.include_router(dashboard.router)
    app.add_middleware(RequestGuard, most_bytes=service.limits.body_bytes, rules=rules)
    return app
