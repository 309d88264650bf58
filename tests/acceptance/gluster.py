"""A GlusterFS volume of two bricks that hold the same, mounted twice, as two hosts would."""

import os
import shutil
import socket
import subprocess

from service import free_port, wait_for

BRICK = """
volume posix
  type storage/posix
  option directory {directory}
end-volume
volume locks
  type features/locks
  subvolumes posix
end-volume
volume brick
  type performance/io-threads
  subvolumes locks
end-volume
volume server
  type protocol/server
  option transport-type socket
  option transport.address-family inet
  option transport.socket.bind-address 127.0.0.1
  option transport.socket.listen-port {port}
  option auth.addr.brick.allow 127.0.0.1
  subvolumes brick
end-volume
"""
REPLICA = """
volume replica-{number}
  type protocol/client
  option transport-type socket
  option transport.address-family inet
  option remote-host 127.0.0.1
  option remote-port {port}
  option remote-subvolume brick
end-volume
"""
ALL = """
volume all
  type cluster/replicate
  option afr-pending-xattr replica-0,replica-1
  subvolumes replica-0 replica-1
end-volume
"""


def can_have_gluster():
    return os.geteuid() == 0 and all(map(shutil.which, ["glusterfsd", "glusterfs"]))


class Gluster:
    def __init__(self, home):
        self.home, self.processes, self.mounts = home, [], []
        home.mkdir()
        ports = []
        for number in range(2):
            (home / f"brick-{number}").mkdir()
            ports.append(free_port())
            volume = home / f"brick-{number}.vol"
            volume.write_text(BRICK.format(directory=home / f"brick-{number}", port=ports[-1]))
            self.daemon("glusterfsd", volume)
        self.bricks = list(self.processes)
        for port in ports:
            wait_for(lambda: self.listens(port))
        volume = home / "client.vol"
        volume.write_text("".join(REPLICA.format(number=n, port=port) for n, port in enumerate(ports)) + ALL)
        for number in range(2):
            mount = home / f"mount-{number}"
            mount.mkdir()
            self.daemon("glusterfs", volume, mount)
            self.mounts.append(mount)
            wait_for(lambda: os.path.ismount(mount))

    def daemon(self, program, volume, *mount):
        log = self.home / f"{volume.stem}-{len(self.processes)}.log"
        quiet = {name: subprocess.DEVNULL for name in ["stdin", "stdout", "stderr"]}
        process = subprocess.Popen([program, "--no-daemon", "-f", volume, "-l", log, *mount], **quiet)
        self.processes.append(process)
        return process

    def take_bricks_away(self):
        """From now on whatever is done on the mounts fails."""
        for brick in self.bricks:
            brick.kill()
        for brick in self.bricks:
            brick.wait()

    def bring_bricks_back(self):
        self.bricks = [self.daemon("glusterfsd", self.home / f"brick-{number}.vol") for number in range(2)]

    @staticmethod
    def listens(port):
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", port)) == 0

    def remove(self):
        for mount in self.mounts:
            subprocess.run(["umount", "--lazy", mount], capture_output=True)
        for process in self.processes:
            process.kill()
            process.wait()
