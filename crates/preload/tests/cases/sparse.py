"""Files with holes, space that is asked for and given back, and files without a name."""

import ctypes
import errno
import os
import shutil
import subprocess

MIB = 1 << 20
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO_RANGE = 1, 2, 8, 16
AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, AT_FDCWD = 0x1000, 0x400, -100
libc = ctypes.CDLL(None, use_errno=True)
long = ctypes.c_long


def tell(what, function, *arguments):
    try:
        print(what, function(*arguments))
    except OSError as error:
        print(what, errno.errorcode[error.errno])


def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, long(offset), long(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


def linkat(from_dir, source, to_dir, name, flags):
    if libc.linkat(from_dir, source, to_dir, name, flags):
        raise OSError(ctypes.get_errno(), "linkat")


def extents(fd):
    """Where data begins and ends."""
    found, at = [], 0
    while True:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            return found, errno.errorcode[error.errno]
        at = os.lseek(fd, start, os.SEEK_HOLE)
        found.append((start / MIB, at / MIB))


def blocks(fd):
    """Blocks of 512 bytes, in MiB; a file system may need a few more for itself."""
    return os.fstat(fd).st_blocks * 512 // MIB


fd = os.open("holes", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"a" * MIB, 0)
os.pwrite(fd, b"b" * MIB, 8 * MIB)
os.ftruncate(fd, 16 * MIB)
os.fsync(fd)
print(extents(fd), os.stat("holes").st_size // MIB, blocks(fd))
for whence in os.SEEK_DATA, os.SEEK_HOLE:
    for offset in -1, 0, 8 * MIB, 9 * MIB, 16 * MIB, 17 * MIB:
        tell((whence, offset / MIB), os.lseek, fd, offset, whence)
print(os.lseek(fd, 0, os.SEEK_CUR) / MIB)
fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 8 * MIB, MIB // 2)
print(extents(fd), blocks(fd), os.pread(fd, 2, 8 * MIB + MIB // 2 - 1))
fallocate(fd, ZERO_RANGE, 0, MIB // 4)
print(os.pread(fd, 2, MIB // 4 - 1), os.fstat(fd).st_size // MIB)
fallocate(fd, ZERO_RANGE | KEEP_SIZE, 15 * MIB, 4 * MIB)
print(os.fstat(fd).st_size // MIB)
fallocate(fd, 0, 16 * MIB, 4 * MIB)
print(os.fstat(fd).st_size // MIB, blocks(fd) >= 5, os.pread(fd, 3, 19 * MIB))
fallocate(fd, KEEP_SIZE, 20 * MIB, MIB)
os.posix_fallocate(fd, 0, 21 * MIB)
print(os.fstat(fd).st_size // MIB, blocks(fd) >= 21)
for mode, offset, length in [(0, -1, 1), (0, 0, 0), (0, 1 << 62, 1 << 62), (PUNCH_HOLE, 0, 1), (COLLAPSE | 64, 0, 4096), (1 << 20, 0, 1)]:
    tell((mode, offset, length), fallocate, fd, mode, offset, length)
reader = os.open("holes", os.O_RDONLY)
tell("reader", fallocate, reader, 0, 0, 1)
tell("reader", os.posix_fallocate, reader, 0, 1)
tell("directory", fallocate, os.open(".", os.O_RDONLY), 0, 0, 1)
os.close(reader)
os.close(fd)

# Programs that make and keep holes.
subprocess.run(["cp", "--sparse=always", "holes", "copy"], check=True)
subprocess.run(["sh", "-c", "cmp holes copy && truncate -s 64M big && dd if=/dev/zero of=big bs=1M count=1 conv=notrunc status=none && "
                "tar -Scf big.tar big && rm big && tar -xSf big.tar && wc -c < big && fallocate -l 3M room && fallocate -p -o 1M -l 1M room && wc -c < room"], check=True)  # fmt: skip
copy = os.open("copy", os.O_RDONLY)
print(blocks(copy) < 3)
big = os.open("big", os.O_RDONLY)
print(blocks(big) < 3, extents(big)[0] in ([], [(0.0, 1.0)]))

# Files without a name.
os.mkdir("there", 0o755)
for flags in os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_RDWR:
    tell(("O_TMPFILE", flags), lambda flags: os.close(os.open("there", os.O_TMPFILE | flags, 0o640)), flags)
tell("in a file", os.open, "holes", os.O_TMPFILE | os.O_RDWR)
tell("in nothing", os.open, "nothing", os.O_TMPFILE | os.O_RDWR)
fd = os.open("there", os.O_TMPFILE | os.O_RDWR, 0o640)
os.write(fd, b"without a name")
print(os.listdir("there"), os.fstat(fd).st_nlink, oct(os.fstat(fd).st_mode), os.pread(fd, 100, 0))
linkat(fd, b"", AT_FDCWD, b"there/first", AT_EMPTY_PATH)
linkat(AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, b"there/second", AT_SYMLINK_FOLLOW)
tell("again", linkat, fd, b"", AT_FDCWD, b"there/first", AT_EMPTY_PATH)
tell("elsewhere", linkat, fd, b"", AT_FDCWD, b"/dev/shm/none", AT_EMPTY_PATH)
print(sorted(os.listdir("there")), os.fstat(fd).st_nlink, open("there/second").read())
os.close(fd)
fd = os.open("there", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
tell("kept without", linkat, fd, b"", AT_FDCWD, b"there/never", AT_EMPTY_PATH)
if os.fork() == 0:
    os.write(fd, b"child")
    os._exit(0)
os.wait()
print(os.pread(fd, 100, 0))
os.close(fd)
shutil.rmtree("there")
for name in "holes", "copy", "big", "big.tar", "room":
    os.remove(name)
