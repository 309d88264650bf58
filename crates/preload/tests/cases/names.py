"""Names of every kind, and paths that lead nowhere, in circles, or out; one line for each thing tried."""

import ctypes
import errno
import os
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)


def say(what, function, *arguments, **options):
    try:
        result = function(*arguments, **options)
    except OSError as error:
        result = errno.errorcode[error.errno]
    except ValueError as error:
        result = f"ValueError {error}"
    print(what, result)


def kind(path, **options):
    found = os.stat(path, **options)
    return stat.filemode(found.st_mode), found.st_nlink, found.st_rdev if stat.S_IFMT(found.st_mode) in (stat.S_IFCHR, stat.S_IFBLK) else 0


def opened(path, flags, mode=0o644):
    fd = os.open(path, flags, mode)
    os.close(fd)
    return "opened"


# Names of what is no file: they are shown, linked, renamed, changed, removed.
os.mkfifo("fifo", 0o640)
os.mknod("socket", stat.S_IFSOCK | 0o600)
os.mknod("char", stat.S_IFCHR | 0o620, os.makedev(250, 77))
os.mknod("block", stat.S_IFBLK | 0o660, os.makedev(250, 78))
os.mknod("plain", stat.S_IFREG | 0o644)
os.mknod("bare", 0o644)
for name in ["fifo", "socket", "char", "block", "plain", "bare"]:
    say(name, kind, name)
say("kinds in the directory", lambda: sorted((e.name, e.is_file(), e.is_dir(), e.is_symlink()) for e in os.scandir(".")))
os.link("fifo", "fifo2")
os.rename("char", "char2")
os.chmod("socket", 0o777)
os.utime("block", ns=(10**9, 2 * 10**9))
say("renamed", kind, "char2")
say("linked", kind, "fifo2")
say("changed", kind, "socket")
say("touched", lambda: os.stat("block").st_mtime_ns)
say("fifo without a reader", opened, "fifo", os.O_WRONLY | os.O_NONBLOCK)
say("socket", opened, "socket", os.O_RDONLY)
say("socket to write", opened, "socket", os.O_WRONLY)
say("socket as a directory", opened, "socket", os.O_RDONLY | os.O_DIRECTORY)
say("device that nobody drives", opened, "char2", os.O_RDONLY)
say("block device that nobody drives", opened, "block", os.O_RDONLY)
say("named only", opened, "fifo", os.O_PATH)
say("exists", opened, "fifo", os.O_CREAT | os.O_EXCL | os.O_RDWR)
say("no length to change", os.truncate, "fifo", 0)
say("list a fifo", os.listdir, "fifo")
say("remove as a directory", os.rmdir, "fifo")
for name in ["fifo", "fifo2", "socket", "char2", "block"]:
    say("remove", os.unlink, name)

here = os.getcwd()

# Symbolic links in circles, long chains, and to nowhere.
os.symlink("b", "a")
os.symlink("a", "b")
os.symlink("self", "self")
for what in (os.stat, os.listdir, os.chdir, os.readlink):
    say(f"circle {what.__name__}", what, "a" if what is not os.readlink else "a/x")
say("circle open", opened, "self", os.O_RDONLY)
say("circle create", opened, "self", os.O_CREAT | os.O_WRONLY)
say("circle below", opened, "a/x", os.O_RDONLY)
say("circle itself", kind, "self", follow_symlinks=False)
say("circle not followed", opened, "self", os.O_RDONLY | os.O_NOFOLLOW)
say("circle renamed", os.rename, "self", "self2")
os.mkdir("end")
os.symlink("end", "link0")
for i in range(1, 45):
    os.symlink(f"link{i - 1}", f"link{i}")
for i in [1, 20, 38, 39, 40, 44]:
    say(f"chain of {i + 1}", lambda i=i: os.stat(f"link{i}").st_nlink)
say("dangling create", opened, "dangling", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
os.unlink("dangling")
os.symlink("made/by/nobody", "dangling")
say("dangling", opened, "dangling", os.O_RDONLY)
say("dangling create", opened, "dangling", os.O_CREAT | os.O_WRONLY)
os.symlink("made", "dangling2")
say("created through a link", opened, "dangling2", os.O_CREAT | os.O_WRONLY)
say("made", kind, "made")
os.symlink(os.getcwd() + "/end", "absolute")
say("absolute link", lambda: os.path.basename(os.path.realpath("absolute")))
os.symlink("/etc/passwd", "outside")
say("link out", opened, "outside", os.O_RDONLY)
os.symlink("/", "root")
say("through a link out", opened, "root/etc/passwd", os.O_RDONLY)
os.symlink("../" * 30 + "etc/passwd", "climbs")
say("link that climbs out", opened, "climbs", os.O_RDONLY)
say("and its real path", os.path.realpath, "climbs")
os.symlink("../" * 30 + here[1:] + "/plain", "returns")
say("link that climbs out and returns", opened, "returns", os.O_RDONLY)

# Up and out, and in again.
here = os.getcwd()
up = "/".join([".."] * (here.count("/") + 3))
say("out by ..", opened, f"{up}/etc/passwd", os.O_RDONLY)
say("out by an absolute path", opened, f"{here}/{up}/etc/passwd", os.O_RDONLY)
say("out and in again", opened, f"{up}{here}/plain", os.O_RDONLY)
say("down and up", opened, "end/../end/.././plain", os.O_RDONLY)
say("through what is no directory", opened, "plain/../bare", os.O_RDONLY)
say("through what is missing", opened, "missing/../bare", os.O_RDONLY)
say("a file with a slash", opened, "plain/", os.O_RDONLY)
say("made with a slash", opened, "new/", os.O_CREAT | os.O_WRONLY)
os.chdir("end")
say("up from below", opened, "../plain", os.O_RDONLY)
say("far up from below", opened, f"../{up}/etc/passwd", os.O_RDONLY)
os.chdir("/")
say("from the root", opened, here[1:] + "/plain", os.O_RDONLY)
os.chdir(here)

# The same names once more below: a prefix inside the prefix is a directory like any other.
os.makedirs("inner" + here)
say("inner", opened, "inner" + here + "/file", os.O_CREAT | os.O_WRONLY)
say("inner file", kind, "inner" + here + "/file")
say("outer has none", opened, "file", os.O_RDONLY)
os.chdir("inner" + here)
say("inner directory", os.listdir, ".")
os.chdir(here)
os.unlink("inner" + here + "/file")
os.removedirs("inner" + here)

# Bytes that are no text, long names, empty ones.
odd = [b"\xff\xfe\x80", b"new\nline", b"  ", b"-r", b"*?[", b"\x01\x7f", "\u00e9\u4e2d\U0001f600".encode(), b"e\xcc\x81"]
for name in odd:
    say("odd", opened, name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.symlink(name, b"to-" + name)
    say("odd link", lambda name=name: (os.readlink(b"to-" + name), os.stat(b"to-" + name).st_size))
say("odd list", lambda: sorted(set(os.listdir(b".")) & set(odd)) == sorted(odd))
say("NUL", opened, "with\0NUL", os.O_CREAT | os.O_WRONLY)
say("name of 255", opened, "n" * 255, os.O_CREAT | os.O_WRONLY)
say("name of 256", opened, "n" * 256, os.O_CREAT | os.O_WRONLY)
say("directory of 256", os.mkdir, "n" * 256)
say("path of 4095", opened, "./" * 2045 + "plain", os.O_RDONLY)
say("path of 4096", opened, "./" * 2045 + ".plain"[:6] + "/" * 0, os.O_RDONLY)
say("path of 5000", opened, "./" * 2500 + "plain", os.O_RDONLY)
say("empty", opened, "", os.O_RDONLY)
say("empty directory", os.mkdir, "")
say("null", lambda: (libc.open(None, 0), errno.errorcode[ctypes.get_errno()]))
for name in [*odd, b"n" * 255]:
    os.unlink(name)
for name in odd:
    os.unlink(b"to-" + name)
for name in ["absolute", "returns", *(f"link{i}" for i in range(45))]:
    os.unlink(name)
sys.stdout.flush()
