"""A PostgreSQL server of our own, for tests, chaos and benchmarks."""

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def postgres_binaries() -> Path | None:
    """Return the folder of the programs of PostgreSQL; None where it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = shutil.which("initdb") or (str(found[-1]) if found else None)
    return None if initdb is None else Path(initdb).parent


class Postgres:
    """A PostgreSQL server that can be stopped and started."""

    def __init__(self) -> None:
        binaries = postgres_binaries()
        if binaries is None:
            raise FileNotFoundError("PostgreSQL is not installed")
        self._folder = Path(tempfile.mkdtemp(prefix="cranny-postgres-"))  # the path of a socket must be short
        self._binaries = binaries
        if os.getuid() == 0:  # PostgreSQL does not run as root
            shutil.chown(self._folder, "postgres")
        self.url = f"postgresql://cranny@/postgres?host={self._folder}"
        self._call("initdb", "-U", "cranny", "--auth=trust", "--no-sync")

    def _call(self, name: str, *options: str) -> None:
        argv = [str(self._binaries / name), "-D", str(self._folder / "data"), *options]
        full = ["runuser", "-u", "postgres", "--", *argv] if os.getuid() == 0 else argv
        subprocess.run(full, check=True, capture_output=True, cwd="/", timeout=60)

    def start(self) -> None:
        options = f"-c listen_addresses='' -k {self._folder} -c max_connections=50"
        self._call("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._call("pg_ctl", "-m", mode, "stop")

    def create_database(self) -> str:
        """Create an empty database, and return its address."""
        import psycopg

        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"create database {name}")
        return self.url.replace("/postgres?", f"/{name}?")

    @contextmanager
    def database_in(self, folder: Path) -> Iterator[str]:
        """Create an empty database whose tables are in a folder of their own, and yield its address."""
        import psycopg

        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"create tablespace {name} location '{folder}'")
            connection.execute(f"create database {name} tablespace {name}")
            try:
                yield self.url.replace("/postgres?", f"/{name}?")
            finally:
                connection.execute(f"drop database {name} with (force)")
                connection.execute(f"drop tablespace {name}")

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Start a server, and remove it with all its databases at the end."""
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.stop("immediate")
        server.remove()
