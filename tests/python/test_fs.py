"""Files below `isonomia://`: the file system itself, what stands on it, and fsspec's own suite."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask.array
import dask.bag
import fsspec
import numpy
import pandas
import xarray

import isonomia

PROGRAM = os.environ["ISONOMIA_PROGRAM"]
HERE = Path(__file__).resolve().parent
START_S = 30


class Server:
    """A server with its files in a directory of its own."""

    def __init__(self):
        self.dir = tempfile.TemporaryDirectory()
        self.address = f"unix:{self.dir.name}/socket"
        store = Path(self.dir.name, "store")
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--dir", str(store), "--listen", self.address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self):
        self.process.terminate()
        self.process.wait(START_S)
        self.dir.cleanup()


def setUpModule():
    global SERVER, FS
    SERVER = Server()
    os.environ["ISONOMIA_SERVER"] = SERVER.address
    FS = fsspec.filesystem("isonomia")


def tearDownModule():
    SERVER.stop()


def sum_in_child(queue):
    queue.put(sum(FS.cat_file("/fork/numbers")))


class Files(unittest.TestCase):
    def setUp(self):
        self.root = f"/{self.id().rsplit('.', 1)[-1]}"
        FS.mkdir(self.root)

    def path(self, name):
        return f"{self.root}/{name}"

    def test_bytes_come_back(self):
        data = os.urandom(3 << 20)
        with FS.open(self.path("a"), "wb") as file:
            file.write(data)
        with FS.open(f"isonomia:/{self.path('a')}") as file:
            self.assertEqual(file.read(), data)
            file.seek(-5, 2)
            self.assertEqual(file.read(), data[-5:])
        self.assertEqual(FS.cat_file(self.path("a"), 10, -10), data[10:-10])
        self.assertEqual(FS.size(self.path("a")), len(data))

    def test_modes(self):
        path = self.path("a")
        with FS.open(path, "w") as file:
            file.write("one\n")
        with FS.open(path, "a") as file:
            file.write("two\n")
        with FS.open(path, "r+b") as file:
            file.seek(1)
            file.write(b"N")
        with FS.open(path, "r") as file:
            self.assertEqual(file.read(), "oNe\ntwo\n")
        with self.assertRaises(FileExistsError):
            FS.open(path, "xb")
        with self.assertRaises(FileNotFoundError) as raised:
            FS.open(self.path("b"), "rb")
        self.assertEqual(raised.exception.filename, self.path("b"))
        with self.assertRaises(IsADirectoryError):
            FS.open(self.root, "rb")

    def test_directories(self):
        FS.makedirs(self.path("a/b/c"))
        with self.assertRaises(FileExistsError):
            FS.makedirs(self.path("a/b"))
        FS.makedirs(self.path("a/b"), exist_ok=True)
        FS.pipe({self.path("a/x"): b"1", self.path("a/b/y"): b"22"})
        self.assertEqual(FS.find(self.root), [self.path("a/b/y"), self.path("a/x")])
        self.assertEqual([info["type"] for info in FS.ls(self.path("a"), detail=True)], ["directory", "file"])
        self.assertEqual(FS.glob(self.path("a/*/*")), [self.path("a/b/c"), self.path("a/b/y")])
        self.assertEqual(FS.du(self.root), 3)
        with self.assertRaises(OSError):
            FS.rmdir(self.path("a"))
        FS.mv(self.path("a"), self.path("z"))
        FS.copy(self.path("z"), self.path("copy"), recursive=True)
        FS.rm(self.path("z"), recursive=True)
        self.assertEqual(FS.cat(self.path("copy/b/y")), b"22")
        self.assertEqual(FS.ls(self.root), [self.path("copy")])

    def test_a_transaction_is_all_or_nothing(self):
        with FS.transaction:
            with FS.open(self.path("a"), "wb") as file:
                file.write(b"1")
            self.assertFalse(FS.exists(self.path("a")))
        self.assertEqual(FS.cat(self.path("a")), b"1")
        with self.assertRaises(ZeroDivisionError):
            with FS.transaction:
                FS.open(self.path("b"), "wb").close()
                raise ZeroDivisionError
        self.assertEqual(FS.ls(self.root), [self.path("a")])

    def test_threads_read_at_once(self):
        parts = {self.path(str(at)): os.urandom(1 << 20) for at in range(8)}
        FS.pipe(parts)
        with ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(FS.cat_file, parts)), list(parts.values()))

    def test_a_forked_child_has_connections_of_its_own(self):
        FS.makedirs("/fork")
        FS.pipe_file("/fork/numbers", bytes(range(100)))
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        children = [context.Process(target=sum_in_child, args=(queue,)) for _ in range(3)]
        for child in children:
            child.start()
        self.assertEqual([queue.get(timeout=START_S) for _ in children], [4950] * 3)
        for child in children:
            child.join(START_S)
        self.assertEqual(sum(FS.cat_file("/fork/numbers")), 4950)

    def test_bad_options_are_named(self):
        for options, words in [
            ({"server": "nowhere"}, "nowhere"),
            ({"server": "unix:/nonexistent/socket", "timeout": 0}, "timeout 0"),
        ]:
            with self.assertRaisesRegex(isonomia.Error, words):
                fsspec.filesystem("isonomia", **options)
        away = fsspec.filesystem("isonomia", server="unix:/nonexistent/socket", timeout=1)
        with self.assertRaisesRegex(TimeoutError, "no answer from unix:/nonexistent/socket within 1 s"):
            away.ls("/")


class Libraries(unittest.TestCase):
    def test_pandas(self):
        frame = pandas.DataFrame({"a": range(1000), "b": numpy.linspace(0, 1, 1000)})
        frame.to_csv("isonomia://frame.csv", index=False)
        pandas.testing.assert_frame_equal(pandas.read_csv("isonomia://frame.csv"), frame)
        options = {"server": SERVER.address}
        frame.to_json("isonomia://frame.json.gz", storage_options=options)
        again = pandas.read_json("isonomia://frame.json.gz", storage_options=options)
        pandas.testing.assert_frame_equal(again, frame, check_exact=False)

    def test_xarray_and_zarr(self):
        data = xarray.Dataset({"t": (("x", "y"), numpy.arange(120.0).reshape(10, 12))}).chunk(x=3)
        data.to_zarr("isonomia://data.zarr", mode="w", consolidated=False)
        xarray.testing.assert_equal(xarray.open_zarr("isonomia://data.zarr", consolidated=False).load(), data)

    def test_dask(self):
        array = dask.array.arange(10_000, chunks=1_000)
        dask.array.to_zarr(array, "isonomia://array.zarr", mode="w")
        self.assertEqual(int(dask.array.from_zarr("isonomia://array.zarr").sum().compute()), 49_995_000)
        lines = dask.bag.from_sequence(["a b", "c"], npartitions=2)
        lines.to_textfiles("isonomia://lines/*.txt")
        self.assertEqual(dask.bag.read_text("isonomia://lines/*.txt").str.strip().compute(), ["a b", "c"])

    def test_fsspecs_own_suite(self):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "fsspec_suite.py")],
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        self.assertIn(" passed", done.stdout)


if __name__ == "__main__":
    unittest.main()
