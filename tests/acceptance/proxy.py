"""A proxy for TCP that forwards, and on demand delays, cuts off, resets or stalls what it forwards.

As a program: `proxy.py SEED PORT=HOST:PORT...` forwards each of these ports. A line of its input, `PORT MODE`, says what it does
with connections to a port; it prints a line for each: how many connections it has broken so far.
"""

import asyncio
import random
import socket
import struct
import subprocess
import sys

CHUNK = 64 << 10
# Of the chunks that come while connections are to be broken.
BROKEN_PART = 0.1
DELAY_S = 0.05
# Waits for what is stalled.
LOOK_S = 0.05


class Forwarding:
    """A port and where it leads."""

    def __init__(self, to, chance):
        self.host, _, port = to.rpartition(":")
        self.port = int(port)
        self.random = chance
        # `pass`, `delay`, `truncate`, `reset`, or `stall`.
        self.mode = "pass"
        # Connections that were broken.
        self.broken = 0

    async def accept(self, reader, writer):
        try:
            onward_reader, onward_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            self.reset(writer)
            return
        both = (writer, onward_writer)
        await asyncio.gather(self.forward(reader, onward_writer, both), self.forward(onward_reader, writer, both))

    async def forward(self, reader, writer, both):
        try:
            while chunk := await reader.read(CHUNK):
                while self.mode == "stall":
                    await asyncio.sleep(LOOK_S)
                mode = self.mode
                if mode == "delay":
                    await asyncio.sleep(self.random.uniform(0, DELAY_S))
                if mode in ("truncate", "reset") and self.random.random() < BROKEN_PART:
                    # In the middle of a frame, most likely.
                    writer.write(chunk[: self.random.randrange(len(chunk))])
                    self.broken += 1
                    if mode == "reset":
                        for end in both:
                            self.reset(end)
                        return
                    break
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass
        for end in both:
            end.close()

    @staticmethod
    def reset(writer):
        # What is sent then is RST, and what was not sent yet is gone.
        end = writer.get_extra_info("socket")
        if end is not None and end.fileno() >= 0:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


class Proxy:
    """The program, from the outside."""

    def __init__(self, within, seed, forwarded):
        words = [f"{port}={to}" for port, to in forwarded.items()]
        command = [*within, sys.executable, __file__, str(seed), *words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError(f"the proxy ended with {self.process.wait()}")

    def set(self, port, mode):
        """How many connections were broken so far."""
        print(port, mode, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def stop(self):
        self.process.kill()
        self.process.communicate()


async def main():
    _, seed, *words = sys.argv
    chance = random.Random(int(seed))
    all_forwarded = {}
    for word in words:
        port, _, to = word.partition("=")
        all_forwarded[port] = Forwarding(to, chance)
        await asyncio.start_server(all_forwarded[port].accept, "0.0.0.0", int(port))
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        port, mode = line.split()
        all_forwarded[port].mode = mode
        print(sum(forwarded.broken for forwarded in all_forwarded.values()), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
