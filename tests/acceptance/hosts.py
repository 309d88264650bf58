"""Hosts that are network namespaces of this machine, all on one network."""

import os
import shlex
import shutil
import subprocess


def can_have_hosts():
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    name = f"iso{os.getpid()}t"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return False
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return True


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


class Network:
    """Hosts with the addresses 10.98.0.1, 10.98.0.2, …"""

    def __init__(self, hosts):
        self.hub = f"iso{os.getpid()}h"
        self.names = [f"iso{os.getpid()}n{number}" for number in range(1, hosts + 1)]
        self.made = []
        # See `give_own`.
        self.own = None
        try:
            self.make()
        except BaseException:
            self.remove()
            raise

    def make(self):
        for name in [self.hub, *self.names]:
            ip("netns", "add", name)
            self.made.append(name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.hub, "link", "set", "bridge", "up")
        for number, name in enumerate(self.names, 1):
            ip("-n", self.hub, "link", "add", f"port{number}", "type", "veth", "peer", "name", "net0", "netns", name)
            ip("-n", self.hub, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", name, "address", "add", f"{self.address(number)}/24", "dev", "net0")
            ip("-n", name, "link", "set", "net0", "up")

    def remove(self):
        for name in self.made:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    @staticmethod
    def address(number):
        return f"10.98.0.{number}"

    def give_own(self, directory):
        """From now on each host has a directory of its own here, as for its sockets; whoever is on none of them finds it empty."""
        directory.mkdir()
        self.own = directory
        for number in range(1, len(self.names) + 1):
            self.own_of(number).mkdir()

    def own_of(self, number):
        """Where the directory that a host has for itself can be seen by all."""
        return self.own.with_name(f"{self.own.name}-of-{number}")

    def within(self, number):
        """What a command begins with that runs on a host."""
        command = ["ip", "netns", "exec", self.names[number - 1]]
        if self.own:
            # In what it sees of mounts, which `ip netns exec` has made its own.
            script = 'mount --rbind "$0" "$1" && shift && exec "$@"'
            command += ["sh", "-c", script, str(self.own_of(number)), str(self.own)]
        return command

    def make_shell(self, path):
        """Makes a program that runs a command on a host, `PATH [OPTION...] ADDRESS COMMAND...`, as ssh does; the host has a name there."""
        cases = ""
        for number in range(1, len(self.names) + 1):
            named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec sh -c "$1"', f"host{number}"]
            cases += f'    {self.address(number)}) exec {shlex.join([*self.within(number), *named])} "$*" ;;\n'
        skip = 'while case "$1" in -*) ;; *) false ;; esac; do shift; done'
        path.write_text(f'#!/bin/sh\n{skip}\nhost=$1\nshift\ncase "$host" in\n{cases}esac\necho "no host $host" >&2\nexit 1\n')
        path.chmod(0o755)

    def cut_off(self, number):
        """Nothing comes to a host, and nothing from it."""
        ip("-n", self.hub, "link", "set", f"port{number}", "down")

    def connect(self, number):
        ip("-n", self.hub, "link", "set", f"port{number}", "up")

    def mute(self, number, towards):
        """What a host sends to another one gets lost; what comes from there arrives."""
        ip("-n", self.names[number - 1], "neighbour", "replace", self.address(towards), "lladdr", "02:00:00:00:00:99",
           "dev", "net0", "nud", "permanent")

    def unmute(self, number, towards):
        ip("-n", self.names[number - 1], "neighbour", "delete", self.address(towards), "dev", "net0")

    def forbid(self, number, towards):
        """A host cannot reach another one by itself."""
        ip("-n", self.names[number - 1], "route", "add", "unreachable", f"{self.address(towards)}/32")
