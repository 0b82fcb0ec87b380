"""A real Slurm with accounting: slurmdbd and a MariaDB of its own beside it, on loopback."""

import secrets
import shutil
import signal
import subprocess

from tests.slurm.real_slurm import RealSlurm, free_ports, until

INIT = """
CREATE DATABASE slurm_acct_db;
CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY '{password}';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';
"""
DBD = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage}
StorageUser=slurm
StoragePass={password}
"""
NEEDED = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db")


def accounting_installed() -> bool:
    """Return whether accounting can be started here."""
    return all(map(shutil.which, NEEDED))


class AccountedSlurm(RealSlurm):
    """A Slurm whose jobs are kept in a database, for sacct."""

    def __init__(self, nodes: int = 2, message_timeout_s: int = 10) -> None:
        self._dbd, self._storage = free_ports(2)
        super().__init__(
            nodes,
            message_timeout_s=message_timeout_s,
            accounting=(
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=127.0.0.1",
                f"AccountingStoragePort={self._dbd}",
                "AccountingStoragePass={folder}/munge/munge.sock",
                "AccountingStorageTRES=gres/gpu",
            ),
        )

    def start_controller(self) -> None:
        """Start the database and slurmdbd too, the first time."""
        if "slurmdbd" not in self._started:
            self._start_accounting()
        super().start_controller()

    def stop(self) -> None:
        """End everything."""
        self._end("slurmdbd", signal.SIGKILL)
        self._end("mariadbd", signal.SIGKILL)
        super().stop()

    def accounted(self, job: str) -> bool:
        """Return whether sacct lists a job as completed; asked by its id it may do so earlier than in lists."""
        listed = self.call("sacct", "-a", "-n", "-X", "-P", "-S", "now-1hour", "-o", "JobID,State", check=False)
        return f"{job}|COMPLETED" in listed.splitlines()

    def _start_accounting(self) -> None:
        password, data = secrets.token_hex(16), self.folder / "mariadb"
        owner = ("--no-defaults", "--user=root", f"--datadir={data}")
        subprocess.run(
            ["mariadb-install-db", *owner, "--auth-root-authentication-method=normal", "--skip-test-db"],
            check=True,
            capture_output=True,
        )
        init = self.folder / "etc" / "init.sql"
        init.write_text(INIT.format(password=password))
        small = ("--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0", "--performance-schema=OFF")
        where = (f"--socket={self.folder}/run/mariadb.sock", "--bind-address=127.0.0.1", f"--port={self._storage}")
        self._daemon("mariadbd", "mariadbd", *owner, *where, *small, f"--init-file={init}")
        until((self.folder / "run" / "mariadb.sock").exists, "mariadbd")
        conf = self.conf.with_name("slurmdbd.conf")
        filled = {"folder": self.folder, "port": self._dbd, "storage": self._storage, "password": password}
        conf.write_text(DBD.format(**filled))
        conf.chmod(0o600)
        self._daemon("slurmdbd", "slurmdbd", "-D")
        until(lambda: "Cluster" in self.call("sacctmgr", "show", "cluster", check=False), "slurmdbd")
        self.call("sacctmgr", "-i", "add", "cluster", "tests", check=False)
