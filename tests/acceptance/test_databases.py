"""Databases and data libraries that bring their own ideas of durability, through both ways, killed in the middle."""

import functools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import service
from service import MountedCase, SharedServerCase, clean_environment, wait_for

# Drawn from by every test that kills something at some moment.
SEED = 20_211
COUNTER = "acknowledged"
# Counts up in the database that is argv[1], and says each number once the database has it.
DUCKDB = """
import duckdb, sys
db = duckdb.connect(sys.argv[1], config={"threads": 2})
db.execute("create table if not exists t(n integer primary key, text varchar)")
first = db.execute("select coalesce(max(n), 0) from t").fetchone()[0] + 1
for n in range(first, first + int(sys.argv[2])):
    db.execute("insert into t values (?, ?)", [n, "x" * (n % 500)])
    if n % 200 == 0:
        db.execute("checkpoint")
    print(n, flush=True)
"""
DUCKDB_CHECK = """
import duckdb, sys
db = duckdb.connect(sys.argv[1])
count, largest, length, expected = db.execute(
    "select count(*), max(n), sum(length(text)), sum(n % 500) from t").fetchone()
assert count == largest and length == expected, (count, largest, length, expected)
db.execute("checkpoint")
print(count)
"""
# For each line that it is given commits so many rows as that says, each in a transaction of its own, to the database that is
# argv[1], as the writer that is argv[2], and says each number once the database has it.
SQLITE_WAL = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
mode = db.execute("pragma journal_mode=wal").fetchone()[0]
assert mode == "wal", mode
db.execute("create table if not exists t(writer integer, n integer, text varchar, primary key (writer, n))")
n = 0
for line in sys.stdin:
    for _ in range(int(line)):
        n += 1
        db.execute("begin immediate")
        seen = db.execute("select count(*) from t where writer = ?", [sys.argv[2]]).fetchone()[0]
        assert seen == n - 1, (seen, n)
        db.execute("insert into t values (?, ?, ?)", [sys.argv[2], n, "x" * (n * 7 % 500)])
        db.execute("commit")
        print(n, flush=True)
"""
SQLITE_CHECK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60)
assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
print(db.execute("pragma journal_mode").fetchone()[0], *(f"{w}:{n}" for w, n in db.execute("select writer, count(*) from t group by writer order by writer")))
"""
ADIOS = """
import adios2, numpy, sys
rng = numpy.random.default_rng(1)
steps = [rng.normal(size=(64, 1000)) for _ in range(5)]
with adios2.Stream(sys.argv[1], "w") as out:
    for step, values in zip(out.steps(len(steps)), steps):
        out.write("values", values, list(values.shape), [0, 0], list(values.shape))
        out.write("step", step.current_step())
with adios2.Stream(sys.argv[1], "r") as back:
    for step, values in zip(back.steps(), steps):
        assert numpy.array_equal(back.read("values"), values)
print(len(steps))
"""
CDL = """netcdf field {
dimensions: time = UNLIMITED; x = 50; y = 40;
variables: double field(time, x, y); field:units = "K"; int time(time); char name(x);
data: time = 1, 2, 3, 4; name = "a field with a name"; }
"""
GO_MAIN = """package main

import ("fmt"; "os"; "example.org/there/words"; "path/filepath")

func main() {
    dir, _ := os.MkdirTemp(os.Args[1], "go")
    if err := os.WriteFile(filepath.Join(dir, "f"), []byte(words.Join("a", "b")), 0o600); err != nil { panic(err) }
    text, err := os.ReadFile(filepath.Join(dir, "f"))
    fmt.Println(string(text), err)
}
"""
GO_WORDS = "package words\n\nimport \"strings\"\n\nfunc Join(parts ...string) string { return strings.Join(parts, \"-\") }\n"
GO_TEST = """package words

import ("os"; "testing")

func TestJoin(t *testing.T) {
    if Join("a", "b") != "a-b" { t.Fatal("wrong") }
    if err := os.WriteFile(t.TempDir() + "/f", []byte("x"), 0o600); err != nil { t.Fatal(err) }
}
"""


@functools.cache
def postgres_programs():
    """The directory with `initdb` and `postgres`, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if found:
        return found[-1].parent
    return Path(path).parent if (path := shutil.which("postgres")) else None


class Redis:
    """A client of one `redis-server`: just enough of its protocol."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(service.PROGRAM_S)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rb")

    def ask(self, *words):
        request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in map(str.encode, words))
        self.socket.sendall(request)
        answer = self.lines.readline()
        if not answer.endswith(b"\r\n") or answer[:1] not in b"+:$":
            raise ConnectionError(answer)
        if answer[:1] == b"$":
            answer = b"$" + self.lines.read(int(answer[1:]) + 2)
        return answer[1:-2].decode()

    def close(self):
        self.lines.close()
        self.socket.close()


class Databases(SharedServerCase):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        # Programs of other users put sockets here.
        self.local.chmod(0o777)

    def command_here(self, *program):
        """The command that runs a program as this class does."""
        return self.shared.command(*program, timeout_s=60)

    def start_here(self, *program, user=None, **more):
        """Starts a program in a process group of its own, which is gone at the end of the test."""
        process = subprocess.Popen(
            [*self.become(user), *self.command_here(*program)], env=clean_environment(), start_new_session=True,
            **({"stdin": subprocess.DEVNULL} | more),
        )  # fmt: skip
        self.addCleanup(self.end, process, signal.SIGKILL)
        return process

    def end(self, process, how):
        """Ends a process with all of its group."""
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            pass
        process.wait(service.PROGRAM_S)
        for stream in filter(None, [process.stdin, process.stdout]):
            stream.close()

    def become(self, user):
        return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []

    def path(self, name):
        return f"{self.directory}/{name}"

    def count_and_kill(self, *program):
        """Runs a program that says numbers, kills it after some of them, and gives the last one that it said."""
        process = self.start_here(*program, stdout=subprocess.PIPE, text=True)
        last = 0
        for _ in range(self.random.randrange(20, 200)):
            if not (line := process.stdout.readline()):
                self.fail(f"{program} ended with {process.wait(service.PROGRAM_S)} after {last}\n{self.shared.log()}")
            last = int(line)
        self.end(process, signal.SIGKILL)
        return last

    def test_redis_keeps_what_it_acknowledged(self):
        self.needs("redis-server", "redis-check-aof")
        at = self.path("redis")
        self.run_here("mkdir", at)
        place = self.local / "redis.sock"
        acknowledged = 0

        def change(client):
            nonlocal acknowledged
            acknowledged = int(client.ask("INCR", COUNTER))
            client.ask("SET", f"key{acknowledged % 100}", "x" * (acknowledged % 1000))

        for _ in range(4):
            server = self.start_here("redis-server", "--port", "0", "--unixsocket", place, "--dir", at, "--appendonly", "yes", "--appendfsync", "always",
                                     "--save", "", "--auto-aof-rewrite-min-size", "64kb", "--auto-aof-rewrite-percentage", "50", stdout=subprocess.DEVNULL)  # fmt: skip

            def greet():
                """redis-server answers"""
                try:
                    client = Redis(place)
                    client.ask("PING")
                    return client
                except OSError:
                    self.assertIsNone(server.poll(), self.shared.log())
                    return None

            client = wait_for(greet, service.SERVER_S)
            try:
                self.assertGreaterEqual(int(client.ask("INCRBY", COUNTER, "0")), acknowledged)
                # So much is done however slow the machine is; in the time after that, a fast one writes its log anew.
                for _ in range(self.random.randrange(30, 100)):
                    change(client)
                killer = threading.Timer(self.random.uniform(0.2, 1), os.killpg, [server.pid, signal.SIGKILL])
                killer.start()
                try:
                    while True:
                        change(client)
                except ConnectionError:
                    pass
                killer.join()
            finally:
                client.close()
            self.end(server, signal.SIGKILL)
        self.assertGreater(acknowledged, 100)
        self.run_here("bash", "-c", f"cd {at}/appendonlydir && for f in *.manifest; do redis-check-aof $f; done")

    def test_postgres_recovers_after_kills(self):
        if not (programs := postgres_programs()):
            self.skipTest("PostgreSQL is not installed, and `scripts/setup acceptance` could not")
        user = "postgres" if os.geteuid() == 0 else None
        at = self.path("pg")
        self.run_here("mkdir", "-m", "700", at)
        if user:
            self.run_here("chown", f"{user}:{user}", at)
            shutil.chown(self.local, user)

        def run(program, *arguments, check=True):
            command = [*self.become(user), *self.command_here(program, *arguments)]
            done = subprocess.run(command, env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=service.PROGRAM_S)
            if check and done.returncode:
                raise AssertionError(f"{program} ended with {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.shared.log()}")
            return done

        run(programs / "initdb", "-k", "-N", "-A", "trust", "-D", at)

        def ask(text, check=True):
            command = ["psql", "-X", "-At", "-h", str(self.local), "-d", "postgres", "-c", text]
            done = subprocess.run([*self.become(user), *command], capture_output=True, text=True, timeout=service.PROGRAM_S, env=clean_environment())
            if check and done.returncode:
                raise AssertionError(f"{text}: {done.stderr}")
            return done

        def start():
            log = open(self.local / "log", "ab")
            self.addCleanup(log.close)
            server = self.start_here(programs / "postgres", "-D", at, "-c", "listen_addresses=", "-c", f"unix_socket_directories={self.local}",
                                     "-c", "shared_buffers=16MB", "-c", "max_wal_size=32MB", "-c", "full_page_writes=on", user=user, stdout=log, stderr=log)  # fmt: skip

            def is_ready():
                """postgres answers"""
                self.assertIsNone(server.poll(), (self.local / "log").read_text()[-3000:])
                return ask("select 1", check=False).returncode == 0

            wait_for(is_ready, service.PROGRAM_S)
            return server

        bench = [*self.become(user), "pgbench", "-h", str(self.local), "postgres"]
        server = start()
        subprocess.run([*bench, "-i", "-q", "-s", "1"], check=True, capture_output=True, timeout=service.PROGRAM_S, env=clean_environment())
        for _ in range(2):
            load = subprocess.Popen([*bench, "-n", "-c", "4", "-t", "100000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
            before = int(ask("select count(*) from pgbench_history").stdout)
            wait_for(lambda: int(ask("select count(*) from pgbench_history").stdout) > before + 200, service.PROGRAM_S)
            self.end(server, signal.SIGKILL)
            load.wait(service.PROGRAM_S)
            server = start()
            sums = ask("select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches),"
                       "(select sum(tbalance) from pgbench_tellers), (select coalesce(sum(delta), 0) from pgbench_history)").stdout  # fmt: skip
            self.assertEqual(len(set(sums.strip().split("|"))), 1, sums)
        server.send_signal(signal.SIGINT)
        server.wait(service.PROGRAM_S)
        self.assertRegex(run(programs / "pg_checksums", "--check", "-D", at).stdout, r"Bad checksums: +0\n")

    def test_rocksdb_writes_compacts_and_recovers(self):
        self.needs("db_bench", "ldb")
        at = self.path("rocksdb")
        size = ["--num=20000", "--value_size=400", "--write_buffer_size=1000000", "--target_file_size_base=1000000", "--threads=2", f"--seed={SEED}"]
        bench = ["db_bench", f"--db={at}", *size]
        self.run_here(*bench, "--benchmarks=fillrandom,overwrite,compact,readrandom,seekrandom,verifychecksum", "--verify_checksum=true")
        for options in [["--sync=1"], ["--sync=1", "--use_direct_io_for_flush_and_compaction=1", "--use_direct_reads=1"]]:
            process = self.start_here(*bench, "--use_existing_db=1", "--benchmarks=overwrite", "--stats_interval=100", *options, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            # It tells of its progress there.
            process.stderr.read(2000)
            self.end(process, signal.SIGKILL)
            process.stderr.close()
            self.assertRegex(self.run_here("ldb", f"--db={at}", "checkconsistency").stdout, "OK")
        self.run_here(*bench, "--use_existing_db=1", "--benchmarks=readseq,compact,verifychecksum")

    def python_with(self, module):
        python = str(Path(service.isonomia()).parents[1] / "venv/bin/python")
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode:
            self.skipTest(f"{module} is not installed: scripts/setup acceptance does it")
        return python

    def test_duckdb_keeps_what_it_acknowledged(self):
        python = self.python_with("duckdb")
        at = self.path("duck.db")
        acknowledged = 0
        for _ in range(4):
            acknowledged = self.count_and_kill(python, "-c", DUCKDB, at, 100_000)
            self.assertGreaterEqual(int(self.run_here(python, "-c", DUCKDB_CHECK, at).stdout), acknowledged)

    def start_writer(self, database, number):
        return self.start_here(sys.executable, "-c", SQLITE_WAL, database, str(number), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def commit(self, writer, count):
        writer.stdin.write(f"{count}\n")
        writer.stdin.flush()

    def wal_database(self):
        """A database in WAL mode, which processes that begin at once do not all manage to make of it."""
        database = self.path("wal.db")
        self.run_here(sys.executable, "-c", SQLITE_WAL, database, "0", input="")
        return database

    def check_sqlite(self, database):
        """How many rows each writer has."""
        mode, *counts = self.run_here(sys.executable, "-c", SQLITE_CHECK, database).stdout.split()
        self.assertEqual(mode, "wal")
        return dict(map(int, count.split(":")) for count in counts)

    def test_sqlite_in_wal_mode_with_several_writers(self):
        database = self.wal_database()
        writers = [self.start_writer(database, number) for number in range(4)]
        doomed = self.start_writer(database, 9)
        for writer in [*writers, doomed]:
            self.commit(writer, 100_000 if writer is doomed else 200)
        for _ in range(self.random.randrange(20, 60)):
            line = doomed.stdout.readline()
            self.assertTrue(line, self.shared.log())
        self.end(doomed, signal.SIGKILL)
        for writer in writers:
            said, _ = writer.communicate(timeout=service.PROGRAM_S)
            self.assertEqual((writer.returncode, len(said.split())), (0, 200), self.shared.log())
        rows = self.check_sqlite(database)
        self.assertEqual([rows[number] for number in range(4)], [200] * 4)
        self.assertGreaterEqual(rows[9], int(line))

    def test_sqlite_in_wal_mode_goes_on_after_a_kill_of_the_server(self):
        database = self.wal_database()
        writers = [self.start_writer(database, number) for number in range(2)]
        for _ in range(3):
            for writer in writers:
                self.commit(writer, 20)
                for _ in range(20):
                    self.assertTrue(writer.stdout.readline(), self.shared.log())
            self.shared.kill()
            self.shared.start()
        for writer in writers:
            writer.communicate(timeout=service.PROGRAM_S)
            self.assertEqual(writer.returncode, 0, self.shared.log())
        self.assertEqual(self.check_sqlite(database), {0: 60, 1: 60})

    def test_adios2_reads_back_what_it_wrote(self):
        python = self.python_with("adios2")
        self.assertEqual(self.run_here(python, "-c", ADIOS, self.path("out.bp")).stdout.split()[-1], "5")

    def test_netcdf_in_every_format(self):
        self.needs("ncgen", "ncdump", "nccopy")
        (self.local / "field.cdl").write_text(CDL)
        for kind in ["classic", "64-bit offset", "64-bit data", "netCDF-4", "netCDF-4 classic model"]:
            with self.subTest(kind):
                script = (
                    f"ncgen -k '{kind}' -o field.nc {self.local}/field.cdl && nccopy -k netCDF-4 -d 5 -s -c x/10,y/20 field.nc packed.nc &&"
                    "nccopy -k classic -u packed.nc back.nc && ncdump -n field back.nc | md5sum && ncdump -n field field.nc | md5sum; rm -f *.nc"
                )
                local = subprocess.run(["bash", "-c", script], cwd=self.local, capture_output=True, text=True, timeout=service.PROGRAM_S)
                served = self.run_here("bash", "-c", f"cd {self.directory}; {script}")
                self.assertEqual((served.stdout, local.returncode), (local.stdout, 0))

    def test_pnetcdf_with_two_ranks(self):
        self.needs("mpicc.openmpi", "mpirun.openmpi", "ncvalidator")
        program = self.local / "pnetcdf"
        source = Path(__file__).resolve().parent / "programs/pnetcdf.c"
        built = subprocess.run(["mpicc.openmpi", "-O1", "-o", program, source, "-lpnetcdf"], capture_output=True, text=True, timeout=service.PROGRAM_S)
        if built.returncode:
            self.skipTest(f"PnetCDF for Open MPI is not installed: {built.stderr[:200]}")
        mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", "--mca", "btl", "self,vader"]
        for io in ["ompio", "romio321"]:
            with self.subTest(io):
                self.run_here(*mpirun, "--mca", "io", io, program, self.path(f"{io}.nc"))
                self.assertRegex(self.run_here("ncvalidator", self.path(f"{io}.nc")).stdout, "is a valid")

    def test_npm_installs_and_runs_a_package(self):
        self.needs("npm", "node")
        script = """
            set -e; export npm_config_cache=$PWD/cache npm_config_offline=true npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
            mkdir -p word use; cd word
            echo '{"name": "word", "version": "1.2.3", "main": "index.js", "bin": {"word": "index.js"}}' > package.json
            printf '#!/usr/bin/env node\nmodule.exports = () => "word"; if (require.main === module) console.log(module.exports());\n' > index.js
            npm pack --silent; cd ../use; echo '{"name": "use", "version": "1.0.0", "private": true}' > package.json
            npm install --silent ../word/word-1.2.3.tgz; npm ls; node -e 'console.log(require("word")())'; npx --no-install word; npm ci --silent; node_modules/.bin/word
            node -e 'const fs = require("fs"); fs.writeFileSync("f", "x".repeat(1e6)); fs.promises.readFile("f").then(t => console.log(t.length)).then(() => fs.rmSync("node_modules", {recursive: true})).then(() => console.log(fs.readdirSync(".").sort().join()))'
        """
        self.assertEqual(self.run_here("bash", "-c", f"cd {self.directory}; {script}").stdout.splitlines()[-5:], ["word", "word", "word", "1000000", "f,package-lock.json,package.json"])


class DatabasesMounted(MountedCase, Databases):
    """The same through a mount."""

    def command_here(self, *program):
        return list(map(str, program))

    # What programs have of a mapping through a mount is the mount's, which may come too late to a new server.
    test_sqlite_in_wal_mode_goes_on_after_a_kill_of_the_server = None

    def test_go_builds_tests_and_runs(self):
        self.needs("go")
        script = f"""
            set -e; mkdir module tmp; export GOCACHE=$PWD/cache GOPATH=$PWD/path GOFLAGS=-mod=mod GOPROXY=off GOTELEMETRY=off TMPDIR=$PWD/tmp; cd module
            mkdir -p words; cat > go.mod <<< 'module example.org/there'; cat > main.go <<'END'
{GO_MAIN}
END
            cat > words/words.go <<'END'
{GO_WORDS}
END
            cat > words/words_test.go <<'END'
{GO_TEST}
END
            go vet ./...; go build -o there .; ./there .; go test -count=1 ./... | grep -c '^ok'; go build -v . 2>&1 | wc -l
        """
        self.assertEqual(self.run_here("bash", "-c", script, limit_s=280).stdout.splitlines(), ["a-b <nil>", "1", "0"])
