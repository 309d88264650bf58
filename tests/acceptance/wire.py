"""The protocol as a stranger speaks it: by hand, so that it can be broken anywhere."""

import mmap
import os
import socket
import struct

import noise

MAGIC = b"ISON"
VERSION = 18
ROLE_SHARED_MEMORY, ROLE_STREAM, ROLE_CONTROL = range(3)
SETUP_LEN_MAX = 64 << 10

REQUEST_MAGIC = int.from_bytes(b"iso1", "little")
OP_GET_ATTR, OP_OPEN, OP_READ, OP_WRITE = 1, 3, 6, 7
ACCESS_READ, ACCESS_EXECUTE = 1, 4
ROOT = 1

SLOTS, SLOT_LEN = 4, 256 << 10
REGION_LEN = 4096 + SLOTS * SLOT_LEN


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def text(value):
    """An optional string."""
    return b"\0" if value is None else b"\1" + varint(len(value)) + value.encode()


def frame(body):
    return MAGIC + struct.pack("<I", len(body)) + body


def hello_body(role, job="stranger", version=VERSION, client=7):
    # Neither nodes, priority, a scheduler, another user to ask for and his job, nor what the job is called and runs.
    claims = text(job) + text(None) + text(None) + b"\0" * 7
    process = varint(os.getpid()) + varint(os.geteuid()) + varint(os.getegid())
    # No session before, and no mount; the least integrity: none.
    return varint(version) + varint(role) + varint(client) + claims + b"\0\0\0" + process


def hello(role, **more):
    return frame(hello_body(role, **more))


def request(op=OP_GET_ATTR, *, magic=REQUEST_MAGIC, flags=0, seq=1, ino=ROOT, offset=0, len=0, access=0, path_len=0, path2_len=0,
            server=0, target=0, nanos=0):
    head = struct.pack("<IHHQQQQQIIIIII", magic, op, flags, seq, ino, ROOT, 0, offset, len, access, 0, 0, 0, 0)
    times = struct.pack("<qII", 0, nanos, 0) * 2
    whole = head + times + struct.pack("<HHHH16x", path_len, path2_len, server, target)
    assert whole.__len__() == 128
    return whole


def receive(connection, length):
    """Exactly so many bytes; raises EOFError if the peer hangs up before."""
    data = b""
    while len(data) < length:
        try:
            part = connection.recv(length - len(data))
        except ConnectionResetError:
            part = b""
        if not part:
            raise EOFError
        data += part
    return data


def receive_frame(connection):
    head = receive(connection, 8)
    assert head[:4] == MAGIC, head
    return receive(connection, struct.unpack("<I", head[4:])[0])


def is_closed_by_server(connection, seconds=20):
    """Whether the server ends the connection; what it says before does not matter."""
    connection.settimeout(seconds)
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def connect(address, seconds=20):
    kind, place = address.split(":", 1)
    if kind == "unix":
        connection = socket.socket(socket.AF_UNIX)
        target = place
    else:
        host, port = place.rsplit(":", 1)
        connection = socket.socket(socket.AF_INET)
        target = (host, int(port))
    connection.settimeout(seconds)
    connection.connect(target)
    return connection


def proven_hello(connection, key, role):
    """The first word of a client on TCP that knows the key."""
    challenge = receive_frame(connection)
    nonce = os.urandom(32)
    prologue = b"isonomia tcp 1" + b"".join(struct.pack("<I", len(part)) + part for part in [challenge, nonce, b""])
    message = noise.first_message(noise.secret_of(key), prologue, hello_body(role))
    return frame(varint(VERSION) + nonce + varint(0) + varint(len(message)) + message)


def is_welcome(connection):
    return receive_frame(connection)[:1] == b"\2"


class SharedMemory:
    """A client's view of the memory that a server made for it."""

    def __init__(self, connection, message=None):
        """Says hello, and maps what comes with the welcome."""
        connection.sendall(message or hello(ROLE_SHARED_MEMORY))
        head, descriptors, _, _ = socket.recv_fds(connection, 8, 1)
        while len(head) < 8:
            head += connection.recv(8 - len(head))
        self.answer = receive(connection, struct.unpack("<I", head[4:])[0])
        if not descriptors:
            raise ConnectionError(self.answer)
        self.memory = mmap.mmap(descriptors[0], REGION_LEN)
        os.close(descriptors[0])

    def post(self, slot, header, posted, names=b""):
        at = 256 + 256 * slot
        buffer = 4096 + SLOT_LEN * slot
        self.memory[buffer : buffer + len(names)] = names
        self.memory[at + 128 : at + 256] = header
        self.memory[at : at + 4] = struct.pack("<I", 1)
        self.memory[0:4] = struct.pack("<I", posted)

    def is_done(self, slot):
        at = 256 + 256 * slot
        return struct.unpack("<I", self.memory[at : at + 4])[0] == 2

    def errno(self, slot):
        at = 256 + 256 * slot + 64 + 8
        return struct.unpack("<I", self.memory[at : at + 4])[0]

    def close(self):
        self.memory.close()
