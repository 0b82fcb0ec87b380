"""`cranny hosts`, `fence`: hosts that ran the service before, and jobs that are held for them."""

from typing import Annotated
from urllib.parse import quote

from cranny.cli.client import Remote, remote_options
from cranny.cli.console import print_json, print_table
from cranny.cli.options import argument
from cranny.model.validate import counted

HostArgument = Annotated[str, argument("HOST", "The name of a host, or its id; see `cranny hosts`.")]


@remote_options
def hosts(remote: Remote) -> None:
    """List the host that serves, and those that ran the service before and whose jobs are held.

    Example: cranny hosts
    """
    found = remote.client.get("/api/v1/hosts")["hosts"]
    if remote.as_json:
        print_json(found)
        return
    rows = [(each["id"], each["name"], each["state"], each["folder"], ", ".join(each["jobs"])) for each in found]
    print_table(("id", "host", "state", "folder", "jobs"), rows, words=("jobs",))


@remote_options
def fence(host: HostArgument, remote: Remote) -> None:
    """Declare a host dead: jobs that are held for it start again. Make sure first that it is switched off.

    Example: cranny fence gpu-host-2
    """
    done = remote.client.send("POST", f"/api/v1/hosts/{quote(host, safe='')}/fence")
    remote.show(done, f"{counted(len(done['jobs']), 'job')} of host {host} will start again")
