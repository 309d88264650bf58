"""CPython's ways to files: open, os, shutil, tempfile, threads, subprocesses."""

import textwrap
from pathlib import Path

import service
from service import SharedServerCase


class Python(SharedServerCase):
    # What becomes of a writable shared mapping: what it shows after a store, and what the file has there.
    WRITABLE = "True b'new'"

    def script(self, text, **options):
        return self.python(textwrap.dedent(text), **options).stdout.strip()

    def test_open_in_all_modes(self):
        out = self.script(
            """
            with open("f", "w") as f: f.write("ä line\\n" * 1000)
            with open("f", "a") as f: f.write("end\\n")
            with open("f") as f: lines = f.readlines()
            with open("f", "r+b") as f:
                f.seek(-4, 2); f.write(b"END")
            with open("f", "rb", buffering=0) as f: raw = f.read()
            try: open("f", "x")
            except FileExistsError as e: print(e.errno)
            print(len(lines), lines[-1].strip(), raw[-4:], len(raw))
            """
        )
        self.assertEqual(out, f"17\n1001 end b'END\\n' {8 * 1000 + 4}")

    def test_os_functions(self):
        out = self.script(
            """
            import os, stat
            os.makedirs("a/b/c"); os.symlink("b", "a/l"); os.mkdir("x", 0o700)
            fd = os.open("a/f", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
            assert os.pwrite(fd, b"hello", 10) == 5 and os.pread(fd, 5, 10) == b"hello"
            assert os.fstat(fd).st_size == 15 and os.lseek(fd, 0, os.SEEK_END) == 15
            os.ftruncate(fd, 12); os.fsync(fd); os.fdatasync(fd)
            assert os.writev(fd, [b"ab", b"cd"]) == 4
            assert os.preadv(fd, [bytearray(3), bytearray(4)], 0) == 7
            other = os.dup(fd); os.close(fd); assert os.fstat(other).st_size == 19; os.close(other)
            os.rename("a/f", "a/g"); os.replace("a/g", "a/b/g"); os.link("a/b/g", "h"); os.utime("h", (1, 2))
            s = os.stat("h"); assert (s.st_nlink, s.st_mtime, stat.S_IMODE(s.st_mode)) == (2, 2, 0o640), s
            assert os.readlink("a/l") == "b" and os.path.realpath("a/l/g").endswith("/a/b/g")
            assert sorted(e.name for e in os.scandir("a") if e.is_dir(follow_symlinks=False)) == ["b"]
            d = os.open("a", os.O_RDONLY | os.O_DIRECTORY)
            assert sorted(os.listdir(d)) == ["b", "l"] and os.stat("b/g", dir_fd=d).st_size == 19
            os.unlink("l", dir_fd=d); os.chdir("a/b"); assert os.getcwd().endswith("/a/b"); os.chdir("../..")
            os.chmod("h", 0o444); os.access("h", os.R_OK) or exit("access")
            for call, error in [
                (lambda: os.rmdir("a"), OSError), (lambda: os.listdir("h"), NotADirectoryError),
                (lambda: os.stat("none"), FileNotFoundError), (lambda: os.read(d, 1), IsADirectoryError),
            ]:
                try: call(); exit("no error")
                except error: pass
            print(sorted(p for p, _, _ in os.walk(".")), os.statvfs(".").f_namemax)
            """
        )
        self.assertEqual(out, "['.', './a', './a/b', './a/b/c', './x'] 255")

    def test_shutil_and_pathlib(self):
        out = self.script(
            """
            import shutil, pathlib, filecmp
            p = pathlib.Path("t"); (p / "s").mkdir(parents=True)
            (p / "a").write_bytes(bytes(range(256)) * 5000); (p / "s" / "b").write_text("b")
            shutil.copytree("t", "u"); shutil.copy2("t/a", "c"); shutil.move("c", "t/s")
            assert filecmp.cmp("t/a", "t/s/c", shallow=False)
            shutil.make_archive("arch", "zip", "t"); shutil.unpack_archive("arch.zip", "v")
            c = filecmp.dircmp("t", "v"); assert not (c.left_only or c.right_only or c.diff_files)
            shutil.rmtree("u"); print(sorted(map(str, p.rglob("*"))), shutil.disk_usage(".").free > 0)
            """
        )
        self.assertEqual(out, "['t/a', 't/s', 't/s/b', 't/s/c'] True")

    def test_private_mappings_are_copies_and_shared_ones_are_not(self):
        out = self.script(
            """
            import mmap, errno, os
            data = os.urandom(3_000_000)
            open("f", "wb").write(data)
            with open("f", "r+b") as f:
                with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
                    print(m[:] == data, m.find(data[2_000_000:2_000_100]))
                with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
                    m[5:8] = b"abc"
                    print(m[:10] == data[:5] + b"abc" + data[8:10], f.read() == data)
                with mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ, offset=mmap.PAGESIZE) as m:
                    print(len(m), m[:] == data[mmap.PAGESIZE:])
                try:
                    with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_WRITE) as m:
                        m[5:8] = b"new"
                        print(m[:10] == data[:5] + b"new" + data[8:10], os.pread(f.fileno(), 3, 5))
                except OSError as e: print(errno.errorcode[e.errno])
            with open("f", "ab") as f:
                try: mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); print("mapped")
                except OSError as e: print(errno.errorcode[e.errno])
            """
        )
        self.assertEqual(out.split("\n"), ["True 2000000", "True True", "2995904 True", self.WRITABLE, "EACCES"])

    def test_a_shared_mapping_for_reading_does_not_become_writable(self):
        out = self.script(
            """
            import ctypes, mmap, os
            libc = ctypes.CDLL(None, use_errno=True)
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
            libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
            libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
            open("f", "wb").write(b"x" * 5000)
            fd = os.open("f", os.O_RDWR)
            for sharing in [mmap.MAP_SHARED, mmap.MAP_PRIVATE]:
                at = libc.mmap(None, 5000, mmap.PROT_READ, sharing, fd, 0)
                result = libc.mprotect(at, 5000, mmap.PROT_READ | mmap.PROT_WRITE)
                print(result, ctypes.get_errno() if result else 0, libc.munmap(at, 5000))
            """
        )
        self.assertEqual(out, "-1 13 0\n0 0 0")

    def test_databases_lock_their_files(self):
        out = self.script(
            """
            import os, sqlite3
            db = sqlite3.connect("db", timeout=60)
            with db: db.execute("create table t (n)")
            db.close()
            children = []
            for child in range(4):
                pid = os.fork()
                if pid == 0:
                    db = sqlite3.connect("db", timeout=60)
                    for n in range(25):
                        with db: db.execute("insert into t values (?)", (child * 25 + n,))
                    db.close()
                    os._exit(0)
                children.append(pid)
            print([os.waitpid(pid, 0)[1] for pid in children])
            db = sqlite3.connect("db")
            print(db.execute("select count(*), sum(n) from t").fetchone(), db.execute("pragma integrity_check").fetchone())
            """
        )
        self.assertEqual(out, "[0, 0, 0, 0]\n(100, 4950) ('ok',)")

    def test_temporary_files(self):
        out = self.script(
            """
            import tempfile, os
            with tempfile.NamedTemporaryFile(dir=".") as f:
                f.write(b"abc"); f.flush(); assert open(f.name).read() == "abc"
            with tempfile.TemporaryDirectory(dir=".") as d: open(d + "/x", "w").write("x")
            with tempfile.TemporaryFile(dir=".") as f:
                f.write(b"q" * 100000); f.seek(0); assert len(f.read()) == 100000
            print(os.listdir("."))
            """
        )
        self.assertEqual(out, "[]")

    def test_threads(self):
        out = self.script(
            """
            import concurrent.futures, hashlib, os
            def one(i):
                data = hashlib.sha256(str(i).encode()).digest() * 3000
                for repeat in range(5):
                    with open(f"f{i}", "wb") as f: f.write(data)
                    with open(f"f{i}", "rb") as f: assert f.read() == data, i
                return len(data)
            with concurrent.futures.ThreadPoolExecutor(16) as pool: print(sum(pool.map(one, range(64))))
            fd = os.open("shared", os.O_RDWR | os.O_CREAT)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda i: os.pwrite(fd, bytes([i]) * 5000, i * 5000), range(100)))
            data = os.pread(fd, 10**6, 0); assert data == b"".join(bytes([i]) * 5000 for i in range(100))
            """
        )
        self.assertEqual(out, str(64 * 96000))

    def test_subprocesses_and_their_redirections(self):
        out = self.script(
            """
            import subprocess, os
            with open("out", "w") as f: subprocess.run(["seq", "1000"], stdout=f, check=True)
            with open("out") as f: print(subprocess.run(["wc", "-l"], stdin=f, capture_output=True, text=True).stdout.strip())
            p = subprocess.Popen(["sort", "-rn"], stdin=subprocess.PIPE, stdout=open("sorted", "w"), text=True)
            p.communicate(open("out").read()); print(open("sorted").readline().strip())
            print(subprocess.check_output(["cat", "out"], cwd=os.getcwd()).count(b"\\n"))
            with open("err", "w") as f: subprocess.run("ls none", shell=True, stderr=f)
            print("cannot access" in open("err").read())
            """
        )
        self.assertEqual(out.split(), ["1000", "1000", "1000", "True"])

    def test_multiprocessing(self):
        out = self.script(
            """
            import multiprocessing, os
            def work(i):
                with open(f"p{i}", "w") as f: f.write(str(i) * 1000)
                return os.path.getsize(f"p{i}")
            if __name__ == "__main__":
                with multiprocessing.get_context("fork").Pool(4) as pool: print(sum(pool.map(work, range(10))))
            """
        )
        self.assertEqual(out, "10000")

    def test_pickles_csv_and_gzip(self):
        out = self.script(
            """
            import csv, json, pickle, gzip
            rows = [[i, i * i] for i in range(1000)]
            with open("t.csv", "w", newline="") as f: csv.writer(f).writerows(rows)
            with open("t.csv", newline="") as f: assert [[int(x) for x in r] for r in csv.reader(f)] == rows
            pickle.dump(rows, open("t.pickle", "wb")); assert pickle.load(open("t.pickle", "rb")) == rows
            json.dump(rows, open("t.json", "w")); assert json.load(open("t.json")) == rows
            with gzip.open("t.gz", "wt") as f: f.write("x" * 100000)
            assert gzip.open("t.gz", "rt").read() == "x" * 100000
            print("good")
            """
        )
        self.assertEqual(out, "good")

    def test_a_program_and_its_modules_run_from_the_server(self):
        out = self.bash(
            "mkdir pkg; echo 'VALUE = 42' > pkg/__init__.py; echo 'from pkg import VALUE; print(VALUE)' > main.py; "
            "python3 main.py; PYTHONPATH=. python3 -m main"
        ).stdout
        self.assertEqual(out.split(), ["42", "42"])

    def test_a_package_with_libraries_runs_from_the_server(self):
        environment = Path(service.isonomia()).parents[1] / "venv"
        packages = next(environment.glob("lib/python3*/site-packages"), None)
        if not packages or not (packages / "numpy.libs").exists():
            self.skipTest("numpy is not installed with its libraries: scripts/setup acceptance does it")
        self.run_here("cp", "-a", packages / "numpy", packages / "numpy.libs", ".")
        script = "import numpy; print(numpy.__file__, numpy.linalg.det(2 * numpy.eye(3)).round())"
        done = self.run_here(environment / "bin/python", "-c", script, env={"PYTHONPATH": self.directory}, watch=True)
        self.assertEqual(done.stdout, f"{self.directory}/numpy/__init__.py 8.0\n")


class PythonOverTcp(Python):
    """The same with a key over TCP."""

    TRANSPORT = "tcp"
    WRITABLE = "ENODEV"

    def test_sqlite_stays_in_a_mode_that_everybody_can_use(self):
        out = self.script(
            """
            import sqlite3
            def ask(*statements):
                db = sqlite3.connect("wal.db", isolation_level=None)
                try: return [row[0] for statement in statements for row in db.execute(statement)]
                except sqlite3.OperationalError as e: return str(e)
                finally: db.close()
            print(ask("create table t(n)", "insert into t values (7)", "pragma journal_mode=wal"))
            print(ask("select n from t", "pragma journal_mode"))
            print(ask("insert into t values (8)", "select sum(n) from t", "pragma integrity_check"))
            """
        )
        self.assertEqual(out.splitlines(), ["disk I/O error", "[7, 'delete']", "[15, 'ok']"])
