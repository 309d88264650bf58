"""Slurm's own accounting, with a database, and a controller that follows it: all on the loopback device, in a directory of its own."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import test_munge
from service import clean_environment, free_port, wait_for

CLUSTER = "c1"
# Debian puts them where only root looks.
DAEMONS = {name: shutil.which(name) or f"/usr/sbin/{name}" for name in ["mariadbd", "slurmdbd", "slurmctld", "munged"]}
SYSTEM_TABLES = Path("/usr/share/mysql/mysql_system_tables.sql")
# What none of them needs longer for, however busy the machine.
READY_S = 60

SLURM_CONF = """
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control_port}
SlurmUser={user}
AuthType=auth/munge
AuthInfo=socket={munge}
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdSpoolDir={directory}/spool
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={munge}
AccountingStorageEnforce=limits
NodeName=n1 NodeAddr=127.0.0.1 Port={node_port}
PartitionName=p1 Nodes=n1 Default=YES
PartitionName=p2 Nodes=n1
"""

SLURMDBD_CONF = """
AuthType=auth/munge
AuthInfo=socket={munge}
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
PidFile={directory}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser={user}
StorageLoc=accounting
"""


def why_not():
    """Why there is no accounting here, or None."""
    if os.geteuid() != 0:
        return "a database and Slurm's daemons are started as root"
    paths = DAEMONS | {SYSTEM_TABLES.name: SYSTEM_TABLES}
    missing = [name for name, path in paths.items() if not Path(path).exists()]
    missing += [name for name in ["sacctmgr", "scontrol", "setpriv"] if not shutil.which(name)]
    return f"not installed, and `scripts/setup acceptance` could not: {', '.join(missing)}" if missing else None


class Slurm:
    """Daemons that are children of this process, and gone when it ends, however it does."""

    def __init__(self):
        self.directory = Path(tempfile.mkdtemp(prefix="isonomia-slurm-"))
        self.processes = {}
        self.munged = test_munge.Munged(os.urandom(64))

    def start(self):
        port, control_port, node_port = (free_port() for _ in range(3))
        values = {
            "cluster": CLUSTER, "directory": self.directory, "host": socket.gethostname().split(".")[0],
            "munge": self.munged.socket, "port": port, "control_port": control_port, "node_port": node_port,
            "user": pwd.getpwuid(os.geteuid()).pw_name,
        }
        (self.directory / "state").mkdir()
        # The one is for everybody, the other for the daemon alone.
        self.directory.chmod(0o755)
        for name, text, mode in [("slurm.conf", SLURM_CONF, 0o644), ("slurmdbd.conf", SLURMDBD_CONF, 0o600)]:
            (self.directory / name).write_text(text.format(**values))
            (self.directory / name).chmod(mode)
        self.start_database()
        self.run("slurmdbd", "-D")
        self.wait_for_port("slurmdbd", port)
        self.sacctmgr("-i", "add", "cluster", CLUSTER)
        self.run("slurmctld", "-D")
        self.wait_for_port("slurmctld", control_port)
        return self

    def start_database(self):
        data = self.directory / "database"
        data.mkdir(0o700)
        user = f"--user={pwd.getpwuid(os.geteuid()).pw_name}"
        # Nobody is asked who he is, and nobody but this user comes to the socket.
        (self.directory / "own").mkdir(0o700)
        small = ["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"]
        options = ["--no-defaults", f"--datadir={data}", user, "--skip-networking", "--skip-grant-tables", *small]
        # The tables that a database has of itself, which `mariadb-install-db` makes in this way.
        tables = f"create database mysql;\nuse mysql;\n{SYSTEM_TABLES.read_text()}"
        done = subprocess.run(
            [DAEMONS["mariadbd"], *options, "--bootstrap", "--log-warnings=0"], input=tables, capture_output=True, text=True,
            timeout=READY_S, env=clean_environment(),
        )
        if done.returncode:
            raise AssertionError(f"no database: {done.stdout}{done.stderr}")
        self.run("mariadbd", *options, f"--socket={self.directory}/own/mysql", f"--pid-file={self.directory}/own/pid")
        self.wait_for("mariadbd", self.database_listens)

    def database_listens(self):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"{self.directory}/own/mysql")
            return True
        return False

    def environment(self):
        files = {"SLURM_CONF": str(self.directory / "slurm.conf"), "MYSQL_UNIX_PORT": f"{self.directory}/own/mysql"}
        return clean_environment() | files

    def run(self, name, *options):
        """Starts a daemon, which is killed if this process is."""
        command = ["setpriv", "--pdeathsig", "KILL", DAEMONS[name], *options]
        with open(self.directory / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment(), cwd=self.directory
            )

    def wait_for(self, name, condition):
        """Waits until a daemon is ready, and no longer than it lives."""
        process = self.processes[name]
        wait_for(lambda: condition() or process.poll() is not None, READY_S)
        if process.poll() is not None:
            log = (self.directory / f"{name}.log").read_text(errors="replace")
            raise AssertionError(f"{name} ended with {process.returncode}: {log[-3000:]}")

    def wait_for_port(self, name, port):
        def listens():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
            return False

        self.wait_for(name, listens)

    def ask(self, *command, check=True):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=READY_S, stdin=subprocess.DEVNULL, env=self.environment()
        )
        if check and done.returncode:
            raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def sacctmgr(self, *arguments, **options):
        return self.ask("sacctmgr", *arguments, **options)

    def limits(self):
        """The limits of all associations of users that have any, by cluster, account, user and partition."""
        form = "format=Cluster,Account,User,Partition,GrpTRESMins"
        lines = self.sacctmgr("-nP", "show", "assoc", form).stdout.splitlines()
        rows = [line.split("|") for line in lines]
        return {tuple(row[:4]): row[4] for row in rows if row[2]}

    def followed(self, user):
        """What the controller has of a user's association."""
        return self.ask("scontrol", "-o", "show", "assoc_mgr", f"users={user}", "flags=assoc").stdout

    def end(self, name):
        """Ends a daemon, the kinder way first."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def remove(self):
        for name in [name for name in ["slurmctld", "slurmdbd"] if name in self.processes]:
            self.end(name)
        # Nothing of it is wanted again.
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.munged.remove()
        shutil.rmtree(self.directory)
