"""Real programs and others' file-system test suites on a FUSE mount, as on a local file system."""

import errno
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from service import DESCRIBE, PROGRAM_S, SERVER_S, TEST_S, Case, Mount, clean_environment, isonomia, wait_for, why_no_mount

# Runs of 100,000 find none either, in two minutes each.
FSX_OPERATIONS = 20_000
KILLS = 5
# Not in the suite's default: what programs do as well.
FSX_CONFIGURATION = """
flen = 262144
[opsize]
max = 65536
[weights]
close_open = 1
invalidate = 1
truncate = 10
write = 20
read = 20
mapread = 10
mapwrite = 10
fsync = 1
fdatasync = 1
copy_file_range = 5
sendfile = 5
posix_fadvise = 2
posix_fallocate = 2
punch_hole = 2
"""
PJDFSTEST_CONFIGURATION = """
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""
# What programs that lock begin with: `outcome` tells what became of a call.
LOCKING = """
import errno, fcntl, sys
def outcome(call, *arguments):
    try:
        call(*arguments)
        return "got it"
    except OSError as error:
        return errno.errorcode[error.errno]
def say(word):
    print(word, flush=True)
f = open(sys.argv[1], "r+b", buffering=0)
"""
# As many transfers between accounts as there is time for, and a reader's look at the sum in between.
TRANSFERS = """
import random, sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=100, isolation_level=None)
for _ in range(int(sys.argv[2])):
    source, target = random.sample(range(10), 2)
    db.execute("begin immediate")
    db.execute("update account set money = money - 1 where id = ?", [source])
    db.execute("update account set money = money + 1 where id = ?", [target])
    db.execute("update done set transfers = transfers + 1")
    db.execute("commit")
    assert db.execute("select sum(money) from account").fetchone() == (1000,)
"""

# Threads that count in pages of their own in a file's mapping, so that there is always much to write back; a line in asks
# how far they are together.
COUNT = r"""
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
enum { THREADS = 16, PAGES = 8, PAGE = 1 << 16 };
static char *mapped;
static long counted;
static void *count(void *place) {
    for (long i = 0;; i = (i + 1) % PAGES) {
        __atomic_fetch_add((long *)((char *)place + i * PAGE), 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
    }
}
int main(int, char **arguments) {
    int file = open(arguments[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, THREADS * PAGES * PAGE)) return 1;
    mapped = mmap(0, THREADS * PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) return 1;
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, count, mapped + i * PAGES * PAGE);
    while (getchar() != EOF) printf("%ld\n", __atomic_load_n(&counted, __ATOMIC_RELAXED)), fflush(stdout);
}
"""

# In a name space of its own, where mount(8) finds the program that mounts; `is` compares with what findmnt(8) shows.
MOUNT_8 = """
mkdir upper over; mount -t tmpfs none upper; mkdir upper/dir upper/work
mount -t overlay -o lowerdir=$(readlink -f /sbin),upperdir=upper/dir,workdir=upper/work none /sbin || { echo skip; exit; }
ln -s $ISONOMIA /sbin/mount.fuse.isonomia
is() { test "$(findmnt -no SOURCE,FSTYPE,OPTIONS m)" = "$SERVER fuse.isonomia $1,noatime,user_id=0,group_id=0,default_permissions$2"; }
quiet() { "$@" > said 2>&1; test ! -s said; }
refused() { if "$@" 2> said; then exit 1; fi; cat said; }
mkdir m
quiet mount -t fuse.isonomia $SERVER m; is rw; touch m/f; quiet umount m; test ! -e m/f
quiet mount -t fuse.isonomia $SERVER m -o nodev,nosuid,noexec,ro; is ro,nosuid,nodev,noexec; quiet umount m
echo "$SERVER $PWD/m fuse.isonomia dev,suid,_netdev,nofail,x-systemd.automount,x-a.b=c,comment=c,async,allow_other,threads=4 0 0" > fstab
quiet mount -T fstab $PWD/m; is rw ,allow_other
mknod -m 666 m/null c 1 3; echo x > m/null
cp /bin/id m/id; chmod 4755 m/id; test "$(setpriv --reuid=12345 --clear-groups m/id -u)" = 0
quiet mount -o remount,ro m; is ro ,allow_other; refused touch m/f m/g
quiet mount -o remount,rw m; is rw ,allow_other; touch m/f
quiet mount -T fstab -o remount,ro,nosuid $PWD/m; is ro,nosuid ,allow_other; quiet mount -T fstab -o remount $PWD/m; is rw ,allow_other
quiet mount -a -T fstab; is rw ,allow_other
exec 9> m/f; refused mount -o remount,ro m; refused umount m; exec 9>&-; is rw ,allow_other
quiet umount m; test -z "$(ls m)"
echo "isonomia $PWD/m fuse.isonomia server=$SERVER,ro 0 0" > fstab
quiet mount -a -T fstab; quiet mount -a -T fstab; SERVER=isonomia is ro; quiet mount -T fstab -o remount,rw $PWD/m; quiet umount m
refused mount.fuse.isonomia $SERVER m -o remount,ro
refused mount -t fuse.isonomia $SERVER m -o bogus
"""


def suite(name):
    """One of others' test suites, installed beside our programs by `scripts/setup acceptance`."""
    return Path(isonomia()).parents[1] / "suites/bin" / name


def pjdfstest_only_fails_in(case, directory, temporary):
    """The tests of pjdfstest that fail in `directory` and not in memory, each with what it says of it."""
    configuration = temporary / "pjdfstest.toml"
    configuration.write_text(PJDFSTEST_CONFIGURATION)
    memory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    case.addCleanup(shutil.rmtree, memory)
    failures = []
    for place in [memory, directory]:
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
        done = subprocess.run([suite("pjdfstest"), "-c", configuration, "-p", place],
                              capture_output=True, text=True, timeout=2 * PROGRAM_S)  # fmt: skip
        case.assertRegex(done.stdout, r"\n\s*Summary:.* \d+ total", done.stderr)
        case.assertGreater(int(re.search(r"(\d+) passed", done.stdout)[1]), 300)
        # Lines that are set in say why.
        failures.append(dict(re.findall(r"^(\S+)\s+FAILED\n((?:[\t ].*\n)*)", done.stdout, re.MULTILINE)))
    return {name: why for name, why in failures[1].items() if name not in failures[0]}


@unittest.skipIf(why_no_mount(), why_no_mount())
class Mounts(Case):
    def mount(self, server, *options):
        """Mounts the server's files; gives the directory."""
        mount = Mount(server, *options)
        self.addCleanup(mount.remove)
        return mount.start().place

    def fresh(self, *options):
        """A server and a mount of this test's own."""
        self.served = self.server()
        return self.mount(self.served, *options)

    def run_in(self, directory, script, env=None, limit_s=PROGRAM_S):
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=directory,
            env=clean_environment() | (env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        self.assertEqual(0, done.returncode, f"{script}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}\n{self.served.log(5)}")
        return done.stdout

    def test_trees_are_copied_whole(self):
        place = self.fresh()
        local = Path(tempfile.mkdtemp(prefix="isonomia-local-"))
        self.addCleanup(shutil.rmtree, local)
        self.run_in(local, "cp -a /usr/include/linux tree; ln tree/stat.h hard; ln -s tree/fs.h soft; chmod 640 tree/fs.h")
        self.run_in(place, f"cp -a {local}/. copy; mkdir untarred; tar -C {local} -cf - . | tar -xpC untarred; "
                           f"rsync -aH {local}/ synced; test -z \"$(rsync -aHi --checksum {local}/ synced)\"")
        expected = self.run_in(local, DESCRIBE)
        for copy in ["copy", "untarred", "synced"]:
            self.assertEqual(expected, self.run_in(place / copy, DESCRIBE), copy)
        self.run_in(place, f"diff -r copy untarred; test $(find copy -type f | wc -l) = $(find {local} -type f | wc -l)")
        self.run_in(place, "rm -r copy untarred synced; test -z \"$(ls -A)\"")

    def test_git(self):
        place = self.fresh()
        script = """
            git init -q one; cd one; git config user.name n; git config user.email e
            cp -r /usr/include/linux .; git add .; git commit -qm first; git mv linux/fs.h moved; git commit -qm second
            cd ..; git clone -q --no-hardlinks one two; cd two; git fsck --full --strict; git gc -q --aggressive
            git fsck --full --strict; test -z "$(git status --porcelain)"; git log --oneline | wc -l"""
        self.assertEqual("2\n", self.run_in(place, script))

    def test_sqlite(self):
        place = self.fresh()
        for mode in ["delete", "wal"]:
            script = f"""sqlite3 {mode}.db "pragma journal_mode={mode}; create table t(a integer primary key, b text);
                with recursive c(x) as (select 1 union all select x+1 from c where x<20000)
                insert into t select x, hex(x) from c; delete from t where a%3=0; vacuum;
                pragma integrity_check; select count(*) from t;" """
            self.assertEqual([mode, "ok", "13334"], self.run_in(place, script).split())

    def test_fio_verifies_with_every_engine(self):
        place = self.fresh()
        for engine in ["psync", "sync", "pvsync2", "posixaio", "libaio"]:
            with self.subTest(engine):
                direct = int(engine == "libaio")
                self.run_in(place, f"fio --name={engine} --ioengine={engine} --direct={direct} --iodepth=8 --rw=randwrite "
                                   "--size=16m --bsrange=4k-256k --blockalign=4k --numjobs=2 --verify=crc32c "
                                   "--do_verify=1 --verify_fatal=1 --group_reporting")

    def test_pjdfstest_fails_nowhere_where_tmpfs_does_not(self):
        if os.geteuid() != 0 or not suite("pjdfstest").exists():
            self.skipTest("pjdfstest needs root, and scripts/setup acceptance to install it")
        place = self.fresh("-o", "dev,suid")
        self.assertEqual({}, pjdfstest_only_fails_in(self, place / "pjdfstest", self.served.temporary))

    def fsx(self, seed):
        if not suite("fsx").exists():
            self.skipTest("fsx is not installed: scripts/setup acceptance does it")
        place = self.fresh()
        configuration = self.served.temporary / "fsx.toml"
        configuration.write_text(FSX_CONFIGURATION)
        command = f"{suite('fsx')} -q -f {configuration} -N {FSX_OPERATIONS} -S {seed} {place}/fsx"
        self.run_in(self.served.temporary, command, limit_s=TEST_S)

    def test_fsx_finds_no_divergence(self):
        self.fsx(1)

    def test_fsx_finds_no_divergence_with_another_seed(self):
        self.fsx(2)

    def test_a_static_program_is_served(self):
        place = self.fresh()
        self.run_in(place, "echo 'int main(void) { return __builtin_puts(\"static\") < 0; }' > p.c; cc -static -include stdio.h "
                           "-o p p.c; ./p > out; grep -q static out")

    def test_a_preloaded_program_and_a_mount_share_files_at_once(self):
        place = self.fresh()
        self.run_in(place, "echo mounted > f")
        self.assertEqual("mounted\n", self.served.run("cat", "/isonomia/f").stdout)
        self.served.run("bash", "-c", "echo preloaded >> /isonomia/f; mv /isonomia/f /isonomia/g; chmod 600 /isonomia/g")
        self.assertEqual("mounted\npreloaded\n600\n", self.run_in(place, "cat g; stat -c %a g; test ! -e f"))

    def test_locks_hold_between_mounts_and_preloaded_programs(self):
        first = self.fresh()
        ways = [first, self.mount(self.served), None]
        (first / "f").write_text("x" * 100)

        def start(place, code):
            """A program that has the file open through the mount at `place`, or preloaded."""
            command = [sys.executable, "-c", LOCKING + code, f"{place or '/isonomia'}/f"]
            if place is None:
                command = self.served.command(*command)
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_environment())

            def end():
                process.kill()
                process.communicate()

            self.addCleanup(end)
            return process

        def hear(process, word):
            self.assertEqual(word + "\n", process.stdout.readline(), self.served.log(5))

        for call in ["fcntl.flock(f, fcntl.LOCK_EX{})", "fcntl.lockf(f, fcntl.LOCK_EX{}, 10, 20)"]:
            for holder_way, other_way in itertools.product(ways, ways):
                with self.subTest(call, holder=holder_way, other=other_way):
                    waits = f"say('waits'); {call.format('')}; say('has it'); sys.stdin.read()"
                    holder = start(holder_way, waits)
                    hear(holder, "waits")
                    hear(holder, "has it")
                    refused = start(other_way, f"say(outcome(lambda: {call.format(' | fcntl.LOCK_NB')}))")
                    hear(refused, "EAGAIN")
                    given_up, next = start(other_way, waits), start(other_way, waits)
                    hear(given_up, "waits")
                    hear(next, "waits")
                    given_up.kill()
                    given_up.wait(PROGRAM_S)
                    holder.kill()
                    hear(next, "has it")
                    next.kill()
                    next.wait(PROGRAM_S)
        for first_way, second_way in itertools.product(ways, ways):
            with self.subTest("circle", first=first_way, second=second_way):
                code = ("fcntl.lockf(f, fcntl.LOCK_EX, 1, {}); say('has it'); sys.stdin.readline();"
                        "say(outcome(fcntl.lockf, f, fcntl.LOCK_EX, 1, {}))")
                pair = [start(first_way, code.format(0, 1)), start(second_way, code.format(1, 0))]
                for process in pair:
                    hear(process, "has it")
                for process in pair:
                    process.stdin.write("go\n")
                    process.stdin.flush()
                self.assertEqual([f"{errno.errorcode[errno.EDEADLK]}\n", "got it\n"], sorted(process.stdout.readline() for process in pair))
                for process in pair:
                    process.communicate()

    def test_sqlite_through_two_mounts_at_once(self):
        first = self.fresh()
        second = self.mount(self.served)
        for mode in ["delete", "truncate", "persist", "wal"]:
            with self.subTest(mode):
                self.run_in(first, f"sqlite3 {mode}.db 'pragma journal_mode={mode}; create table done(transfers); "
                                   "insert into done values(0); create table account(id integer primary key, money); "
                                   "with recursive c(x) as (select 0 union all select x+1 from c where x<9) "
                                   "insert into account select x, 100 from c;'")
                writers = [
                    subprocess.Popen([sys.executable, "-c", TRANSFERS, f"{place}/{mode}.db", "50"], stderr=subprocess.PIPE)
                    for place in [first, second, first, second]
                ]
                for writer in writers:
                    self.assertEqual(b"", writer.communicate(timeout=PROGRAM_S)[1])
                    self.assertEqual(0, writer.returncode)
                check = "pragma integrity_check; select transfers from done; select sum(money) from account"
                self.assertEqual("ok\n200\n1000\n", self.run_in(second, f"sqlite3 {mode}.db '{check}'"))

    def test_each_caller_is_charged_to_its_own_job(self):
        place = self.fresh()
        # What a process was when it changed to the directory is believed for a few milliseconds after it executes another.
        for job in ["71", "72"]:
            self.run_in(place, f"dd if=/dev/zero of=f{job} bs=4k count=20000 status=none", env={"SLURM_JOB_ID": job})

        def both_jobs():
            names = {job["job"] for job in self.served.status()["jobs"]}
            return {"71", "72"} <= names

        wait_for(both_jobs)

    def thread(self, pid, name):
        """What the kernel tells of a thread."""
        threads = Path(f"/proc/{pid}/task").iterdir()
        return next(thread for thread in threads if (thread / "comm").read_text() == f"{name}\n")

    def test_a_mount_that_is_killed_in_a_fight_for_pages_ends(self):
        self.needs("cc")
        served = self.server()
        count = served.temporary / "count"
        subprocess.run(["cc", "-pthread", "-include", "unistd.h", "-x", "c", "-", "-o", count], input=COUNT, text=True, check=True)

        def start(place):
            """A program that counts in the file, and how far it is."""
            process = subprocess.Popen(["nice", count, place / "f"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

            def end():
                process.kill()
                process.communicate(timeout=PROGRAM_S)

            def reached():
                process.stdin.write("\n")
                process.stdin.flush()
                return int(process.stdout.readline())

            self.addCleanup(end)
            return end, reached

        def is_dead(place):
            """the mount says that nobody serves it"""
            try:
                os.stat(place)
            except OSError as error:
                return error.errno == errno.ENOTCONN

        def moves(reached, by=1000):
            before = reached()
            wait_for(lambda: reached() >= before + by, PROGRAM_S)

        _, other_reached = start(self.mount(served))
        mount = Mount(served)
        self.addCleanup(mount.remove)
        for _ in range(KILLS):
            mount.start()
            end, reached = start(mount.place)
            # A mount that does not end would keep the test from its end.
            self.addCleanup(subprocess.run, ["umount", "--force", mount.place], capture_output=True)
            moves(reached)
            moves(other_reached)
            state = self.thread(mount.process.pid, "mapping-return") / "stat"
            while ") D " not in state.read_text():
                pass
            mount.process.kill()
            mount.process.wait(SERVER_S)
            mount.process.stdout.close()
            wait_for(lambda: is_dead(mount.place))
            end()
            moves(other_reached)
        mount.start()
        moves(start(mount.place)[1])

    def test_fstab_words_and_mount_8(self):
        if os.geteuid() != 0:
            self.skipTest("mount(8) mounts for root")
        served = self.server()
        place = Path(tempfile.mkdtemp(prefix="isonomia-mount-"))
        helper = served.temporary / "mount.fuse.isonomia"
        helper.symlink_to(isonomia())
        self.addCleanup(subprocess.run, ["umount", "--lazy", place], capture_output=True)
        subprocess.run([helper, served.address, place, "-o", "rw,noatime,_netdev,allow_other"], check=True, timeout=PROGRAM_S)
        self.assertIn(f"{served.address} {place} fuse.isonomia rw,", Path("/proc/mounts").read_text())
        (place / "f").write_text("x")
        subprocess.run(["umount", place], check=True, timeout=PROGRAM_S)
        self.assertFalse((place / "f").exists())
        place.rmdir()

    def test_mount_8_mounts_and_changes_it_as_any_file_system(self):
        if os.geteuid() != 0:
            self.skipTest("mount(8) mounts for root")
        served = self.server()
        place = Path(tempfile.mkdtemp(prefix="isonomia-mount-"))
        self.addCleanup(shutil.rmtree, place)
        place.chmod(0o755)
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "bash", "-exc", MOUNT_8],
            cwd=place, env=clean_environment() | {"ISONOMIA": isonomia(), "SERVER": served.address},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROGRAM_S,
        )
        if done.stdout == "skip\n":
            self.skipTest("nothing can be put over /sbin here")
        self.assertEqual(0, done.returncode, done.stderr[-4000:])
        said = done.stdout.replace(str(place), "")
        for message in ["Read-only file system", "/m is in use: programs have files open for writing", "target is busy",
                        "nothing of Isonomia's is mounted at /m", "unknown mount option `bogus`"]:
            self.assertIn(message, said)
