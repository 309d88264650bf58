"""A cluster of servers on hosts of their own, which are network namespaces, or all on this host where there can be none."""

import json
import os
import shutil
import subprocess
import tempfile
import textwrap
from pathlib import Path

from checks import STRIPED, VOLUMES
from service import PREFIX, Mount, Server, clean_environment, free_port, isonomia

SERVERS = 4
# A host without a server at first, that of the programs, and one that may stand between all others.
SPARE, CLIENTS, PROXY = 5, 6, 7
PORT = 7411
TIMEOUT_S = 20


class Member(Server):
    """One server of the cluster, on a host of its own if there are such."""

    def __init__(self, cluster, number):
        super().__init__()
        shutil.rmtree(self.temporary)
        self.temporary, self.cluster, self.number, self.name = cluster.directory, cluster, number, f"io{number}"
        self.host = number
        self.directory, self.key_file = cluster.directory / self.name, cluster.key_file
        self.log_path = cluster.directory / f"{self.name}.log"
        self.more = []

    def proof(self):
        """Options that say how clients and servers prove who they are."""
        return ["--key-file", str(self.key_file)]

    def start(self, *more):
        command = [isonomia(), "serve", "--cluster", str(self.cluster.file), "--name", self.name]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*self.cluster.within(self.host), *command, *self.proof(), *self.more, *more],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=clean_environment(),
            )  # fmt: skip
        return self

    def ready(self):
        if not self.process.stdout.readline():
            raise AssertionError(f"{self.name} ended with {self.process.wait()}:\n{self.log()}")
        return self

    def signal(self, how):
        self.process.send_signal(how)

    def reach(self):
        return self.cluster.reach()

    def command(self, *program, **options):
        """Of a program on its host."""
        return [*self.cluster.within(self.host), *super().command(*program, **options)]


class Cluster:
    def __init__(self, network, below=None, socket_name="socket"):
        self.network, self.socket_name = network, socket_name
        self.directory = Path(tempfile.mkdtemp(prefix="isonomia-acceptance-", dir=below))
        self.directory.chmod(0o755)
        self.key_file, self.file = self.directory / "key", self.directory / "cluster.toml"
        self.key_file.write_bytes(os.urandom(32))
        self.key_file.chmod(0o600)
        text = 'name = "faults"\nepoch = 1\n'
        self.addresses = {}
        # Each host has a socket of its own in the same place; all that is on one host has that of one server.
        sockets = self.directory / "run"
        if network:
            network.give_own(sockets)
        else:
            sockets.mkdir()
        for number in range(1, SERVERS + 1):
            listen = [self.address(number)]
            if network and number == 1:
                listen.append(f"tcp:{network.address(SPARE)}:{PORT}")
            self.addresses[number] = listen
            if network or number == 2:
                listen = [*listen, f"unix:{sockets}/{self.socket_of(number)}"]
            text += textwrap.dedent(f"""
                [[server]]
                name = "io{number}"
                number = {number}
                dir = "{self.directory}/io{number}"
                listen = {json.dumps(listen)}
                targets = 1
                """)
        self.file.write_text(text)
        self.members = {number: Member(self, number) for number in range(1, SERVERS + 1)}
        self.others = []

    def address(self, number):
        if self.network:
            return f"tcp:{self.network.address(number)}:{PORT}"
        return f"tcp:127.0.0.1:{free_port()}"

    def socket_of(self, number):
        """What the socket of a server is called in the directory that its host has for itself."""
        return self.socket_name.format(number=number)

    def within(self, host):
        return self.network.within(host) if self.network else []

    def reach(self, *first):
        """The options that lead to it, by these addresses and then by one of each server."""
        known = [*first, *(addresses[0] for addresses in self.addresses.values())]
        return ["--server", ",".join(known), "--key-file", str(self.key_file)]

    def start(self):
        for member in self.members.values():
            member.start()
        for member in self.members.values():
            member.ready()
        for volume, number in VOLUMES.items():
            self.operate("volume", "create", volume, "--on", f"io{number}")
        for volume in STRIPED:
            self.operate("stripe", "set", "--count", str(SERVERS), "--size", "16KiB", f"{PREFIX}/{volume}")
        return self

    def operate(self, *arguments):
        command = [*self.within(CLIENTS), isonomia(), *arguments, *self.reach()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=clean_environment())
        if done.returncode:
            raise AssertionError(f"{arguments} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def program(self, *program, host=CLIENTS):
        return [*self.within(host), isonomia(), "run", *self.reach(), "--timeout", f"{TIMEOUT_S}s", "--", *program]

    def remove(self):
        for member in [*self.members.values(), *self.others]:
            if member.process and member.process.poll() is None:
                member.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class ClusterMount(Mount):
    """The cluster's files as a host has them, for programs that are on none of the hosts themselves. On the host of a server it has shared
    memory with that one."""

    def __init__(self, cluster, host=CLIENTS):
        # It writes to the log of what it is a mount of.
        self.server, self.log_path = self, cluster.directory / f"mount-on-{host}.log"
        self.place, within, beside = cluster.directory / f"mount-on-{host}", [], []
        if network := cluster.network:
            # In one place on all hosts.
            self.place = network.own_of(host) / "mount"
            # Unlike `ip netns exec` this leaves it where all others see what is mounted, and not where the host has its socket.
            within = ["nsenter", f"--net=/run/netns/{network.names[host - 1]}"]
            beside = [f"unix:{network.own_of(host)}/{cluster.socket_of(host)}"] if host in cluster.members else []
        self.place.mkdir()
        self.process = None
        command = [isonomia(), "mount", "--foreground", *cluster.reach(*beside), "--timeout", f"{TIMEOUT_S}s", str(self.place)]
        self.command = [*within, *command]

    def log(self):
        return self.log_path.read_text()
