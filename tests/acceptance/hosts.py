"""Hosts that are network namespaces of this machine, all on one network."""

import os
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

    def within(self, number):
        """What a command begins with that runs on a host."""
        return ["ip", "netns", "exec", self.names[number - 1]]

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
