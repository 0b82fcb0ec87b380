"""The routes of hosts: where jobs run, and fencing one that is dead."""

from typing import Any

from fastapi import APIRouter

from cranny.service.api.dependencies import AdminCaller, AnyCaller, ServiceDep, answered
from cranny.service.fencing import fence, hosts

router = APIRouter(prefix="/api/v1", tags=["cluster"])


@router.get("/hosts")
def list_hosts(service: ServiceDep, _caller: AnyCaller) -> Any:
    """List the host that serves, and those that ran the service before and whose jobs are held."""
    with service.lock:
        return {"hosts": hosts(service.location, service.scheduler.records)}


@router.post("/hosts/{name}/fence")
async def fence_host(name: str, service: ServiceDep, caller: AdminCaller) -> Any:
    """Declare a host dead: jobs that it ran start again here. It must run none of them any more."""
    jobs = await answered(
        service, service.call(lambda now_s: fence(service.scheduler, service.location, name, caller.user, now_s))
    )
    return {"host": name, "jobs": jobs}
