"""Shared mappings: between processes, with reads and writes, as files grow and are cut, and when programs end."""

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import struct
import subprocess
import sys

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def program(*arguments):
    return subprocess.Popen([sys.executable, __file__, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def outcome(call, *arguments, **more):
    try:
        return call(*arguments, **more)
    except OSError as error:
        return errno.errorcode[error.errno]


def create(name, content):
    with open(name, "wb") as f:
        f.write(content)
    return os.open(name, os.O_RDWR)


def count(name, times):
    """Counts up in the first bytes of a mapped file, under a lock."""
    fd = os.open(name, os.O_RDWR)
    with mmap.mmap(fd, PAGE) as m:
        for _ in range(int(times)):
            fcntl.lockf(fd, fcntl.LOCK_EX)
            m[:8] = struct.pack("q", struct.unpack("q", m[:8])[0] + 1)
            fcntl.lockf(fd, fcntl.LOCK_UN)


def store_and_wait(name, text):
    """Stores to a mapped file, says so, and waits for the end."""
    fd = os.open(name, os.O_RDWR)
    m = mmap.mmap(fd, 0)
    os.close(fd)
    m[: len(text)] = text.encode()
    print("stored", flush=True)
    sys.stdin.readline()


def several_processes():
    fd = create("counter", bytes(PAGE))
    counters = [program("count", "counter", 300) for _ in range(3)]
    count("counter", 300)
    print("ended:", [c.wait(120) for c in counters])
    print("counted:", struct.unpack("q", os.pread(fd, 8, 0)))


def reads_and_writes():
    fd = create("coherent", b"a" * 3 * PAGE)
    other = os.open("coherent", os.O_RDWR)
    m = mmap.mmap(fd, 0)
    m[10:15] = b"store"
    print("read:", os.pread(other, 9, 8))
    os.pwrite(other, b"write", 2 * PAGE - 2)
    print("loaded:", m[2 * PAGE - 4 : 2 * PAGE + 5])
    print("across:", os.pread(fd, 3 * PAGE, 0).count(b"a"))
    reader = os.open("coherent", os.O_RDONLY)
    again = mmap.mmap(reader, 0, prot=mmap.PROT_READ)
    m[PAGE : PAGE + 3] = b"new"
    print("another mapping:", again[PAGE : PAGE + 4])
    print("for reading only:", outcome(mmap.mmap, reader, 0))
    print("not for reading:", outcome(mmap.mmap, os.open("coherent", os.O_WRONLY), PAGE))
    print("private:", mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE)[10:15])
    m.flush()
    with open("copy", "wb") as f:
        f.write(os.pread(reader, 4 * PAGE, 0))
    os.system("cmp coherent copy && cp coherent copied && cmp coherent copied && echo the same")


def growth():
    """As the shared memory of sqlite grows."""
    fd = create("growing", b"")
    regions = []
    for index in range(4):
        size = (index + 1) * 4 * PAGE
        for end in range(index * 4 + 1, index * 4 + 5):
            os.pwrite(fd, b"\0", end * PAGE - 1)
        regions.append(mmap.mmap(fd, 4 * PAGE, offset=index * 4 * PAGE))
        regions[index][0:1] = bytes([65 + index])
        assert os.fstat(fd).st_size == size
    print("regions:", [os.pread(fd, 1, index * 4 * PAGE) for index in range(4)])
    # Under a mapping that is there.
    fd = create("larger", b"x" * 100)
    with mmap.mmap(fd, 0) as m:
        os.ftruncate(fd, 3 * PAGE)
        m.resize(3 * PAGE)
        os.pwrite(fd, b"end", 3 * PAGE - 3)
        m[2 * PAGE : 2 * PAGE + 6] = b"middle"
        print("resized:", m[-4:], m[98:102], os.pread(fd, 8, 2 * PAGE - 1))
    address = libc.mmap(None, 8 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    with open("larger", "ab") as f:
        f.write(b"appended" * PAGE)
    print("appended:", ctypes.string_at(address + 4 * PAGE, 8))
    os.pwrite(fd, b"far", 9 * PAGE)
    print("beyond:", os.fstat(fd).st_size, os.pread(fd, 4, 9 * PAGE - 1))


def cuts():
    fd = create("cut", b"y" * 4 * PAGE)
    m = mmap.mmap(fd, 4 * PAGE)
    m[0:3] = b"one"
    m[2 * PAGE : 2 * PAGE + 3] = b"two"
    os.truncate("cut", PAGE + 7)
    print("cut:", m[0:4], m[PAGE + 5 : PAGE + 9], os.fstat(fd).st_size)
    os.ftruncate(fd, 3 * PAGE)
    print("longer again:", m[PAGE + 5 : PAGE + 9], m[2 * PAGE : 2 * PAGE + 3], os.pread(fd, 4, 2 * PAGE))
    os.close(os.open("cut", os.O_WRONLY | os.O_TRUNC))
    os.pwrite(fd, b"z" * PAGE, 0)
    print("anew:", m[0:3], os.pread(fd, PAGE + 1, 0).count(b"z"))
    os.posix_fallocate(fd, 0, 3 * PAGE)
    m[2 * PAGE : 2 * PAGE + 3] = b"end"
    print("allocated:", os.fstat(fd).st_size, os.pread(fd, 9, 3 * PAGE - PAGE - 2))


def ends():
    create("killed", bytes(PAGE))
    child = program("store_and_wait", "killed", "before the end")
    print(child.stdout.readline().strip(), open("killed", "rb").read(16))
    child.kill()
    print("ended:", child.wait(60), open("killed", "rb").read(16))
    # Without a descriptor, and without a name.
    fd = create("nameless", b"n" * PAGE)
    m = mmap.mmap(fd, 0)
    os.unlink("nameless")
    child = os.fork()
    if child == 0:
        m[:5] = b"child"
        os._exit(0)
    os.waitpid(child, 0)
    print("of the child:", m[:6], os.pread(fd, 6, 0))
    # In parts.
    fd = create("parts", b"p" * 4 * PAGE)
    address = libc.mmap(None, 4 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    print("out of the middle:", libc.munmap(address + PAGE, PAGE))
    os.close(fd)
    ctypes.memset(address + 3 * PAGE, ord("q"), 5)
    print("synced:", libc.msync(address, PAGE, 4), libc.msync(address + 2 * PAGE, 2 * PAGE, 4))
    print("not mapped:", libc.msync(address, 4 * PAGE, 4), errno.errorcode[ctypes.get_errno()])
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10
    print("replaced:", libc.mmap(address + 2 * PAGE, PAGE, mmap.PROT_READ, private, -1, 0) == address + 2 * PAGE)
    print("parts:", open("parts", "rb").read()[3 * PAGE - 1 : 3 * PAGE + 6])


def wrong():
    fd = create("wrong", b"w" * PAGE)
    flags = mmap.MAP_SHARED
    for length, prot, flags, offset in [(0, 3, 1, 0), (PAGE, 3, 1, 7), (PAGE, 3, 0, 0), (PAGE, 1, 4, 0)]:
        address = libc.mmap(None, length, prot, flags, fd, offset)
        print("wrong:", address == ctypes.c_void_p(-1).value, errno.errorcode[ctypes.get_errno()])
    print("a directory:", outcome(mmap.mmap, os.open(".", os.O_RDONLY), PAGE, prot=mmap.PROT_READ))


if __name__ == "__main__":
    signal.alarm(300)
    if len(sys.argv) > 1:
        globals()[sys.argv[1]](*sys.argv[2:])
    else:
        for case in [several_processes, reads_and_writes, growth, cuts, ends, wrong]:
            case()
            sys.stdout.flush()
