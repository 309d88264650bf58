"""Extended attributes by every call: by path, by link, by descriptor; what is refused, and what keeps them."""

import ctypes
import errno
import os

libc = ctypes.CDLL(None, use_errno=True)


def outcome(call, *arguments, **more):
    try:
        result = call(*arguments, **more)
        return sorted(result) if isinstance(result, list) else result
    except OSError as error:
        return errno.errorcode[error.errno]


def raw(function, *arguments):
    """What a function of the C library gives, or its error."""
    result = getattr(libc, function)(*arguments)
    return errno.errorcode[ctypes.get_errno()] if result < 0 else result


def main():
    open("file", "w").close()
    os.mkdir("dir")
    os.symlink("file", "link")
    os.symlink("nowhere", "dangling")
    os.mkfifo("fifo")
    for path in ["file", "dir", "link", "dangling", "fifo", "absent", "file/x"]:
        for follow in [True, False]:
            print(path, follow, *(outcome(*step, follow_symlinks=follow) for step in [
                (os.getxattr, path, "user.a"),
                (os.setxattr, path, "user.a", b"one"),
                (os.setxattr, path, "user.b", b"", os.XATTR_CREATE),
                (os.setxattr, path, "user.b", b"two", os.XATTR_CREATE),
                (os.setxattr, path, "user.b", b"three", os.XATTR_REPLACE),
                (os.setxattr, path, "user.c", b"", os.XATTR_REPLACE),
                (os.setxattr, path, "user.c", b"", os.XATTR_CREATE | os.XATTR_REPLACE),
                (os.listxattr, path),
                (os.getxattr, path, "user.a"),
                (os.getxattr, path, "user.b"),
                (os.removexattr, path, "user.a"),
                (os.removexattr, path, "user.a"),
                (os.listxattr, path),
            ]))

    fd = os.open("file", os.O_RDONLY)
    print("descriptor:", outcome(os.setxattr, fd, "user.fd", b"x" * 500), outcome(os.listxattr, fd), len(os.getxattr(fd, "user.fd")))
    print("no access:", outcome(os.getxattr, os.open("file", os.O_PATH), "user.fd"), outcome(os.getxattr, 999, "user.fd"))
    print("names:", *(outcome(os.setxattr, "file", name, b"") for name in ["", "user.", "none", "no.such", "user." + "n" * 251]))
    os.setxattr("file", "user." + "n" * 250, b"\0\xff")
    print("values:", outcome(os.setxattr, "file", "user.big", bytes(65537)), outcome(os.setxattr, "file", "user.x", b"", 4))

    room = ctypes.create_string_buffer(600)
    for function, target in [("getxattr", b"file"), ("lgetxattr", b"file"), ("fgetxattr", fd)]:
        print(function, *(raw(function, target, b"user.fd", room, size) for size in [0, 499, 500, 600]))
    for function, target in [("listxattr", b"file"), ("llistxattr", b"file"), ("flistxattr", fd)]:
        print(function, *(raw(function, target, room, size) for size in [0, 5, 600]))
    print("null room:", raw("getxattr", b"file", b"user.fd", None, 0))

    os.link("file", "hard")
    os.rename("file", "moved")
    os.setxattr("hard", "user.by.link", b"1")
    print("the same inode:", os.getxattr("moved", "user.by.link"), sorted(os.listxattr(fd)) == sorted(os.listxattr("hard")))
    os.unlink("moved")
    os.unlink("hard")
    os.setxattr(fd, "user.late", b"2")
    print("without a name:", os.getxattr(fd, "user.late"), len(os.listxattr(fd)))
    os.close(fd)
    open("file", "w").close()
    print("a new one:", os.listxattr("file"))

    before = os.stat("file").st_ctime_ns, os.stat("file").st_mtime_ns
    # Clocks of file systems tick every few milliseconds.
    for _ in range(100_000):
        os.setxattr("file", "user.a", b"kept")
        if os.stat("file").st_ctime_ns > before[0]:
            break
    print("times:", os.stat("file").st_ctime_ns > before[0], os.stat("file").st_mtime_ns == before[1])


if __name__ == "__main__":
    main()
