"""A program of root's that takes other users and groups: what it may do then, and what it has open; a line for each."""

import ctypes
import errno
import fcntl
import os
import subprocess
import sys
import threading

libc = ctypes.CDLL(None, use_errno=True)
USER, GROUP, OTHER = 4321, 765, 766


def say(what, function, *arguments, **options):
    try:
        result = function(*arguments, **options)
    except OSError as error:
        result = errno.errorcode[error.errno]
    print(what, result, flush=True)


def content(path):
    with open(path) as file:
        return file.read()


def create(path, mode=0o640):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    found = os.stat(path)
    return found.st_uid, found.st_gid


def lock(fd, how, start=0, len=0):
    fcntl.lockf(fd, how if how == fcntl.LOCK_UN else how | fcntl.LOCK_NB, len, start)
    return "locked"


def lock_and_unlock(fd):
    lock(fd, fcntl.LOCK_EX, 0, 20)
    # The server may learn of the end of a process a moment later than who waits for it.
    return lock(fd, fcntl.LOCK_UN)


def in_child(what, function):
    """Whatever `function` does to the child, it does not to its parent."""
    child = os.fork()
    if child == 0:
        try:
            function()
        finally:
            sys.stdout.flush()
            os._exit(0)
    say(what, lambda: os.waitpid(child, 0)[1])


def things_to_try(who):
    say(f"{who}: secret", content, "secret")
    say(f"{who}: of the group", content, "of-group")
    say(f"{who}: list private", os.listdir, "private")
    say(f"{who}: through private", content, "private/inner")
    say(f"{who}: access", lambda: [os.access("secret", os.R_OK, effective_ids=True), os.access(".", os.W_OK, effective_ids=True)])
    say(f"{who}: create", create, f"made-by-{who}")
    say(f"{who}: chmod", os.chmod, "secret", 0o600)
    say(f"{who}: chown", os.chown, f"made-by-{who}", 1, 1)
    say(f"{who}: remove", os.unlink, "private/inner-too")
    say(f"{who}: sticky", os.unlink, f"sticky/{who}")
    say(f"{who}: time", os.utime, "secret", (1, 1))


os.umask(0)
os.chmod(".", 0o777)
os.mkdir("private", 0o700)
os.mkdir("sticky", 0o1777)
for name in ["private/inner", "private/inner-too", "secret", "of-group", "doomed", "locked", *(f"sticky/{n}" for n in "abcdefg")]:
    with open(name, "w") as file:
        file.write(name)
os.chmod("secret", 0o600)
os.chmod("of-group", 0o640)
os.chown("of-group", 0, GROUP)

# What root opened stays open, with the rights of root.
secret = os.open("secret", os.O_RDWR)
private = os.open("private", os.O_RDONLY | os.O_DIRECTORY)
doomed = os.open("doomed", os.O_RDWR)
os.unlink("doomed")
stream = os.scandir("private")
locked = os.open("locked", os.O_RDWR)
lock(locked, fcntl.LOCK_EX, 0, 10)
os.seteuid(USER)
things_to_try("a")
say("open file", os.pread, secret, 100, 0)
say("write it", os.pwrite, secret, b"S", 0)
say("its offset", lambda: (os.read(secret, 3), os.lseek(secret, 0, os.SEEK_CUR)))
say("cut it", os.ftruncate, secret, 5)
say("sync it", os.fsync, secret)
say("change it", os.fchmod, secret, 0o644)
say("open directory", lambda: sorted(os.listdir(private)))
say("its stream", lambda: sorted(entry.name for entry in stream))
say("below it", os.stat, "inner", dir_fd=private)
say("enter it", os.fchdir, private)
say("without a name", lambda: (os.pwrite(doomed, b"still", 0), os.pread(doomed, 10, 0), os.fstat(doomed).st_nlink))
say("own lock", lock, locked, fcntl.LOCK_EX, 5, 10)
in_child("lock of others", lambda: say("in the way", lock, locked, fcntl.LOCK_EX, 0, 3))
say("unlock", lock, locked, fcntl.LOCK_UN)
in_child("no lock of others", lambda: say("free", lock_and_unlock, locked))
say("lock anew", lock, locked, fcntl.LOCK_EX, 0, 10)

# Back, and to groups.
os.seteuid(0)
say("secret again", content, "secret")
in_child("lock after all", lambda: say("in the way", lock, locked, fcntl.LOCK_EX, 0, 3))
os.close(locked)
os.setgroups([GROUP, OTHER])
os.seteuid(USER)
things_to_try("b")
os.seteuid(0)
os.setgroups([])
os.setegid(GROUP)
os.seteuid(USER)
things_to_try("c")
os.seteuid(0)
os.setegid(0)
os.setreuid(0, USER)
things_to_try("d")
os.setreuid(0, 0)
os.setresgid(OTHER, OTHER, 0)
os.setresuid(0, USER, 0)
things_to_try("e")
os.setresuid(0, 0, 0)
os.setresgid(0, 0, 0)
say("without a name still", os.pread, doomed, 10, 0)

# Every thread is that user.
os.seteuid(USER)
thread = threading.Thread(target=say, args=("in a thread", content, "secret"))
thread.start()
thread.join()
os.seteuid(0)
thread = threading.Thread(target=os.seteuid, args=(USER,))
thread.start()
thread.join()
say("from a thread", content, "secret")
os.seteuid(0)


# For good, in a child, before and after it uses anything.
def for_good():
    os.setgroups([GROUP])
    os.setgid(OTHER)
    os.setuid(USER)
    say("never root again", os.seteuid, 0)
    things_to_try("f")
    say("inherited", os.pread, secret, 100, 0)
    say("inherited directory", lambda: sorted(os.listdir(private)))
    say("inherited without a name", os.pread, doomed, 10, 0)


in_child("for good", for_good)
in_child("used before", lambda: (os.pread(secret, 1, 0), os.pread(doomed, 1, 0), os.listdir("."), os.setuid(USER),
                                 say("used", os.pread, secret, 100, 0), say("not there", content, "secret"),
                                 say("nor here", os.pread, doomed, 10, 0)))  # fmt: skip
in_child("by name", lambda: (libc.initgroups(b"nobody", GROUP), os.seteuid(USER), say("group", content, "of-group")))
in_child("closed at once", lambda: (os.stat("secret"), os.setuid(USER), say("close", os.close, doomed), say("still", os.stat, "none")))


def becomes():
    os.stat("secret")
    os.setresuid(USER, USER, USER)
    os.set_inheritable(secret, True)
    os.execvp("sh", ["sh", "-c", f"cat secret; cat <&{secret}; echo; id -u; echo x > made-by-sh; ls -ln made-by-sh | cut -d' ' -f3"])


in_child("becomes a program", becomes)


def keeps():
    os.pread(kept, 1, 0)
    os.write(used, b"u")
    os.read(go, 1)
    os.setuid(USER)
    os.set_inheritable(kept, True)
    os.execvp("sh", ["sh", "-c", f"cat <&{kept}; echo"])


# Its parent goes without the file: the one program has it, whose user the server does not know yet.
kept = os.open("kept", os.O_CREAT | os.O_RDWR)
os.pwrite(kept, b"kept", 0)
os.unlink("kept")
hears, used = os.pipe()
go, goes = os.pipe()
child = os.fork()
if child == 0:
    keeps()
os.read(hears, 1)
os.close(kept)
os.write(goes, b"g")
say("keeps what has no name", lambda: os.waitpid(child, 0)[1])
for program in [["cat", "secret"], ["cat", "of-group"], ["touch", "touched"]]:
    done = subprocess.run(program, user=USER, group=GROUP, extra_groups=[], capture_output=True, text=True)
    print(program, done.returncode, done.stdout, done.stderr, flush=True)
say("still root", create, "made-by-root")
say("nothing changed", lambda: (os.setuid(0), os.setgid(0), os.pread(doomed, 10, 0)))
