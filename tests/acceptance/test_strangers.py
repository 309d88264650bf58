"""Clients that break the rules: the connection is closed with a reason in the log, memory stays bounded, and
well-behaved programs do not notice."""

import contextlib
import errno
import os
import platform
import random
import resource
import socket
import struct

import wire
from service import PREFIX, Case, Server, wait_for

CROWD = 1000
# Shared tables and buffers for a thousand connections, and no payload that a stranger announced.
GROWTH_MAX = 160 << 20


class Strangers(Case):
    @classmethod
    def setUpClass(cls):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
        cls.addClassCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        cls.shared = Server(transport="tcp")
        cls.addClassCleanup(cls.shared.remove)
        cls.shared.start()
        cls.unix, cls.tcp = (next(a for a in cls.shared.ready["listen"] if a.startswith(kind)) for kind in ["unix", "tcp"])
        cls.key = cls.shared.key_file.read_bytes()

    def connect(self, address):
        connection = wire.connect(address)
        self.addCleanup(connection.close)
        return connection

    def stream(self):
        """A connection over TCP, after a faultless set-up."""
        connection = self.connect(self.tcp)
        connection.sendall(wire.proven_hello(connection, self.key, wire.ROLE_STREAM))
        self.assertTrue(wire.is_welcome(connection))
        return connection

    def memory(self):
        """A connection through shared memory, after a faultless set-up."""
        connection = self.connect(self.unix)
        memory = wire.SharedMemory(connection)
        self.addCleanup(memory.close)
        return connection, memory

    def post(self, connection, memory, slot, header, posted, names=b""):
        memory.post(slot, header, posted, names)
        # The server may have left the memory to its bell, or have seen it already and hung up.
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(b"\0")

    def expect_service(self):
        self.assertEqual("well\n", self.shared.run("bash", "-c", f"echo well > {PREFIX}/f; cat {PREFIX}/f").stdout)

    def expect_closed(self, connection, why):
        before = self.shared.log(10_000)
        self.assertTrue(wire.is_closed_by_server(connection), f"{why}: not closed\n{self.shared.log()}")
        self.assertIn("WARN", before + self.shared.log(10_000), why)

    def test_a_faultless_stranger_is_served(self):
        stream = self.stream()
        stream.sendall(wire.request())
        self.assertEqual((1, 0), struct.unpack("<QI", wire.receive(stream, 32)[:12]))
        connection, memory = self.memory()
        self.post(connection, memory, 0, wire.request(), 1)
        wait_for(lambda: memory.is_done(0))

    def test_who_may_not_ask_for_others_reads_nothing_by_saying_that_it_is_executed(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        self.shared.run("bash", "-c", f"cd {PREFIX}; chmod 755 .; echo secret > program; chmod 711 program")
        header = wire.request(op=wire.OP_OPEN, len=wire.ACCESS_READ | wire.ACCESS_EXECUTE, path_len=len(b"program"))
        for user, expected in [(0, 0), (12345, errno.EACCES)]:
            with self.subTest(user):
                os.seteuid(user)
                try:
                    connection, memory = self.memory()
                finally:
                    os.seteuid(0)
                self.post(connection, memory, 0, header, 1, b"program")
                wait_for(lambda: memory.is_done(0))
                self.assertEqual(expected, memory.errno(0))

    def test_setup_frames_that_are_wrong(self):
        good = wire.hello(wire.ROLE_CONTROL)
        frames = {
            "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "an endless body": wire.MAGIC + b"\xff\xff\xff\xff",
            "one byte too many": wire.MAGIC + struct.pack("<I", wire.SETUP_LEN_MAX + 1),
            "nonsense": wire.frame(b"\xff" * 100),
            "an empty body": wire.frame(b""),
            "another version": wire.hello(wire.ROLE_CONTROL, version=wire.VERSION + 1),
            "an unknown role": wire.hello(77),
            "a stream on a Unix socket": wire.hello(wire.ROLE_STREAM),
            "a name with a newline": wire.hello(wire.ROLE_SHARED_MEMORY, job="a\nb"),
            "a cut body": wire.MAGIC + struct.pack("<I", len(good) - 12) + good[8:-4],
        }
        for why, data in frames.items():
            with self.subTest(why):
                connection = self.connect(self.unix)
                connection.sendall(data)
                self.expect_closed(connection, why)
        self.expect_service()

    def test_random_bytes(self):
        chance = random.Random(20_240_501)
        for repeat in range(200):
            connection = self.connect(self.unix if repeat % 2 else self.tcp)
            data = chance.randbytes(chance.randrange(1, 3000))
            if repeat % 3 == 0:
                data = wire.MAGIC + struct.pack("<I", len(data)) + data
            try:
                connection.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            connection.close()
        self.expect_service()

    def test_a_wrong_key(self):
        connection = self.connect(self.tcp)
        connection.sendall(wire.proven_hello(connection, b"x" * 32, wire.ROLE_CONTROL))
        self.assertFalse(wire.is_welcome(connection))
        self.expect_closed(connection, "a wrong key")
        other = Server(transport="tcp")
        self.addCleanup(other.remove)
        other.start()
        other.address = self.tcp
        refused = other.operate("status", check=False)
        self.assertEqual((refused.returncode, "key" in refused.stderr), (1, True), refused.stderr)

    def test_a_descriptor_that_does_not_close(self):
        if tuple(map(int, platform.release().split(".")[:2])) < (6, 16):
            self.skipTest("a server cannot refuse descriptors before Linux 6.16")
        # Whoever closes the last copy of it waits for a peer that takes nothing.
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        sender = socket.create_connection(listener.getsockname())
        self.addCleanup(sender.close)
        peer, _ = listener.accept()
        self.addCleanup(peer.close)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
        sender.setblocking(False)
        try:
            while sender.send(b"x" * 65536):
                pass
        except BlockingIOError:
            pass
        for when, connection in {"before the hello": self.connect(self.unix), "after it": self.memory()[0]}.items():
            with self.subTest(when), self.assertRaises(PermissionError):
                socket.send_fds(connection, [b"\0"], [sender.fileno()])
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        self.expect_service()

    BAD_REQUESTS = {
        "a wrong magic": wire.request(magic=1),
        "an unknown operation": wire.request(op=999),
        "a huge payload": wire.request(op=wire.OP_WRITE, len=0xFFFF_FFFF),
        "a huge read": wire.request(op=wire.OP_READ, len=0x7FFF_FFFF),
        "a long path": wire.request(path_len=0xFFFF),
        "an unknown target": wire.request(op=wire.OP_READ, len=10, target=77),
        "an impossible time": wire.request(nanos=2_000_000_000),
    }

    def test_requests_that_are_wrong_in_shared_memory(self):
        for why, header in self.BAD_REQUESTS.items():
            with self.subTest(why):
                connection, memory = self.memory()
                self.post(connection, memory, 0, header, 1)
                self.expect_closed(connection, why)
        with self.subTest("more requests than slots"):
            connection, memory = self.memory()
            self.post(connection, memory, 0, wire.request(), 100)
            self.expect_closed(connection, "more requests than slots")
        self.expect_service()

    def test_requests_that_are_wrong_on_a_stream(self):
        for why, header in self.BAD_REQUESTS.items():
            with self.subTest(why):
                stream = self.stream()
                stream.sendall(header)
                self.expect_closed(stream, why)
        chance = random.Random(7)
        for _ in range(50):
            stream = self.stream()
            stream.sendall(chance.randbytes(200))
            self.expect_closed(stream, "random bytes")
        self.expect_service()

    def test_a_forged_capability_is_refused(self):
        stream = self.stream()
        stream.sendall(wire.request(op=wire.OP_READ, len=4096))
        number = struct.unpack("<QI", wire.receive(stream, 32)[:12])[1]
        self.assertNotEqual(0, number)

    def test_a_crowd_that_announces_set_up_frames(self):
        before = self.shared.resident_bytes()
        for _ in range(CROWD):
            connection = self.connect(self.unix)
            connection.sendall(wire.MAGIC + struct.pack("<I", wire.SETUP_LEN_MAX) + b"x" * 100)
        self.expect_service()
        self.assertLess(self.shared.resident_bytes() - before, GROWTH_MAX)

    def test_a_crowd_that_announces_huge_payloads(self):
        before = self.shared.resident_bytes()
        streams = [self.stream() for _ in range(CROWD)]
        for stream in streams:
            # A mebibyte each, of which little comes: a gibibyte in all.
            stream.sendall(wire.request(op=wire.OP_WRITE, len=1 << 20) + b"x" * 10_000)
        self.expect_service()
        self.assertLess(self.shared.resident_bytes() - before, GROWTH_MAX)
        for stream in streams:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.close()
        wait_for(lambda: self.shared.status()["connections"] < 20, 30)
        self.expect_service()

    def test_a_crowd_with_shared_memory(self):
        before = self.shared.resident_bytes()
        connections = [self.memory() for _ in range(CROWD)]
        for connection, memory in connections:
            self.post(connection, memory, 0, wire.request(op=wire.OP_WRITE, len=wire.SLOT_LEN), 1)
        self.expect_service()
        self.assertLess(self.shared.resident_bytes() - before, GROWTH_MAX)
        for connection, _ in connections:
            connection.close()
        wait_for(lambda: self.shared.status()["connections"] < 20, 30)

    def test_a_server_with_few_descriptors_goes_on(self):
        server = Server()
        self.addCleanup(server.remove)
        server.start()
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (200, 200))
        crowd = []
        for _ in range(400):
            connection = wire.connect(server.ready["listen"][0])
            self.addCleanup(connection.close)
            crowd.append(connection)
        for connection in crowd:
            connection.close()
        self.assertEqual("well\n", server.run("bash", "-c", f"echo well > {PREFIX}/f; cat {PREFIX}/f").stdout)
