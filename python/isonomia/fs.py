"""A file system for fsspec, so that pandas, xarray, zarr, and dask read and write below ``isonomia://``.

Nothing is preloaded or mounted: calls go from this process to the server. Installing the package is enough for
``pandas.read_csv("isonomia://results/a.csv")``; options go where a library has ``storage_options``::

    pandas.read_csv("isonomia://results/a.csv", storage_options={"server": "tcp:node7:7400"})

Data are not cached between calls, but a file opened through :meth:`IsonomiaFileSystem.open` has a buffer, as Python's
own have. Listings and attributes are asked for each time.
"""

from __future__ import annotations

import io
import os
import stat
import threading
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from errno import EISDIR
from typing import Any, Optional

from fsspec import AbstractFileSystem

from . import _native

__all__ = ["IsonomiaFileSystem"]

BUFFER_BYTES = 256 << 10
PIECE_BYTES = 8 << 20

_all_files: weakref.WeakSet[_native.Files] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for files in _all_files:
        files.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _umask() -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Puts the path into errors, as Python's own functions do."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


class IsonomiaFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of one server.

    :param server: its address, ``unix:PATH`` or ``tcp:HOST:PORT``, or several parted by commas; else ``ISONOMIA_SERVER``, else this user's own server
    :param timeout: seconds to wait for a server that is away
    :param key_file: file with the key that a server on TCP asks for; else ``ISONOMIA_KEY_FILE``
    :param auto_mkdir: make the directories that a new file needs; zarr expects that
    :param job: name of the job; this and ``user``, ``group``, ``nodes``, ``priority`` come from the environment else
    """

    protocol = "isonomia"
    root_marker = "/"

    def __init__(
        self,
        server: Optional[str] = None,
        timeout: int = 30,
        key_file: Optional[str] = None,
        auto_mkdir: bool = True,
        job: Optional[str] = None,
        user: Optional[str] = None,
        group: Optional[str] = None,
        nodes: Optional[int] = None,
        priority: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if timeout < 1:
            raise _native.Error(f"timeout {timeout} (allowed: at least 1 s)")
        self._files = _native.Files(server, int(timeout), key_file, job, user, group, nodes, priority)
        _all_files.add(self._files)
        self._auto_mkdir = auto_mkdir

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text: str = os.fspath(path)
        text = text.removeprefix("isonomia://")
        return "/" + text.strip("/")

    def unstrip_protocol(self, name: str) -> str:
        path: str = self._strip_protocol(name)
        return "isonomia://" + path

    def _path(self, path: Any) -> tuple[str, bytes]:
        text: str = self._strip_protocol(path)
        return text, os.fsencode(text.lstrip("/"))

    def info(self, path: Any, **kwargs: Any) -> dict[str, Any]:
        name, raw = self._path(path)
        with _naming(name):
            own = self._files.stat(raw, False)
            is_link = stat.S_ISLNK(own[0])
            found = own
            if is_link:
                try:
                    found = self._files.stat(raw, True)
                except OSError:
                    pass  # It leads nowhere; the link itself is there.
        mode, size, ino, nlink, uid, gid, _, mtime_ns, _ = found
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
        return {
            "name": name,
            "type": kinds.get(stat.S_IFMT(mode), "other"),
            "size": 0 if stat.S_ISDIR(mode) else size,
            "islink": is_link,
            "mode": mode,
            "uid": uid,
            "gid": gid,
            "nlink": nlink,
            "ino": ino,
            "mtime": mtime_ns / 1e9,
        }

    def ls(self, path: Any, detail: bool = False, **kwargs: Any) -> list[Any]:
        name, raw = self._path(path)
        info = self.info(name)
        if info["type"] != "directory":
            return [info if detail else name]
        with _naming(name):
            names = sorted(self._files.list(raw))
        paths = [f"{name.rstrip('/')}/{os.fsdecode(entry)}" for entry in names]
        if not detail:
            return paths
        found = []
        for entry in paths:
            try:
                found.append(self.info(entry))
            except FileNotFoundError:
                pass  # It went meanwhile.
        return found

    def modified(self, path: Any) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], tz=timezone.utc)

    def ukey(self, path: Any) -> str:
        info = self.info(path)
        return f"{info['ino']:x}-{info['size']:x}-{info['mtime']!r}"

    def mkdir(self, path: Any, create_parents: bool = True, **kwargs: Any) -> None:
        name, raw = self._path(path)
        if create_parents and (parent := self._parent(name)) != name:
            self.makedirs(parent, exist_ok=True)
        with _naming(name):
            self._files.mkdir(raw, 0o777 & ~_umask())

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        name, _ = self._path(path)
        whole = name.strip("/").split("/")
        for depth in range(1, len(whole) + 1):
            part = "/" + "/".join(whole[:depth])
            try:
                self.mkdir(part, create_parents=False)
            except FileExistsError:
                is_last = depth == len(whole)
                if is_last and not (exist_ok and self.isdir(part)):
                    raise

    def rmdir(self, path: Any) -> None:
        name, raw = self._path(path)
        with _naming(name):
            self._files.rmdir(raw)

    def _rm(self, path: Any) -> None:
        name, raw = self._path(path)
        with _naming(name):
            if stat.S_ISDIR(self._files.stat(raw, False)[0]):
                self._files.rmdir(raw)
            else:
                self._files.unlink(raw)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: Optional[int] = None, **kwargs: Any) -> None:
        if isinstance(path1, list) or isinstance(path2, list) or "*" in str(path1):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        name, raw = self._path(path1)
        to, _ = self._path(path2)
        if str(path2).endswith("/") or self.isdir(to):
            to = f"{to.rstrip('/')}/{name.rsplit('/', 1)[-1]}"
        with _naming(name):
            self._files.rename(raw, self._path(to)[1])

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with self._raw(path1, "rb") as source, self._raw(path2, "wb") as sink:
            while piece := source.read(PIECE_BYTES):
                sink.write_all(piece)

    def touch(self, path: Any, truncate: bool = True, **kwargs: Any) -> None:
        with self._raw(path, "wb" if truncate else "ab"):
            pass
        name, raw = self._path(path)
        with _naming(name):
            self._files.touch(raw)

    def cat_file(self, path: Any, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any) -> bytes:
        with self._raw(path, "rb") as file:
            size = file.size()
            begin, stop, _ = slice(start, end).indices(size)
            file.seek(begin)
            return file.read_all(max(stop - begin, 0))

    def pipe_file(self, path: Any, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        with self._raw(path, "xb" if mode == "create" else "wb") as file:
            file.write_all(value)

    def _raw(self, path: Any, mode: str) -> _Raw:
        name, raw = self._path(path)
        try:
            return _Raw(self._files, name, raw, mode)
        except FileNotFoundError:
            if "r" in mode or not self._auto_mkdir:
                raise
        self.makedirs(self._parent(name), exist_ok=True)
        return _Raw(self._files, name, raw, mode)

    def _open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: Any = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        size = block_size if isinstance(block_size, int) and block_size > 1 else BUFFER_BYTES
        if not autocommit and "r" not in mode:
            target, _ = self._path(path)
            raw = self._raw(f"{self._parent(target).rstrip('/')}/.{uuid.uuid4()}", mode)
            return _Uncommitted(self, raw, target, size)
        raw = self._raw(path, mode)
        if raw.readable() and raw.writable():
            return io.BufferedRandom(raw, size)
        return io.BufferedWriter(raw, size) if raw.writable() else io.BufferedReader(raw, size)


class _Raw(io.RawIOBase):
    """An open file with a position, without a buffer; the mode is as in :func:`open`."""

    def __init__(self, files: _native.Files, name: str, raw: bytes, mode: str) -> None:
        super().__init__()
        kind = mode.replace("b", "").replace("+", "")
        if kind not in ("r", "w", "a", "x"):
            raise ValueError(f"invalid mode: {mode!r}")
        self.name = name
        self.mode = mode
        self._reads = kind == "r" or "+" in mode
        self._writes = kind != "r" or "+" in mode
        self._appends = kind == "a"
        self._lock = threading.Lock()
        self._at = 0
        with _naming(name):
            permissions = 0o666 & ~_umask() if kind != "r" else 0
            self._file = files.open(
                raw, self._reads, self._writes, kind != "r", kind == "x", kind == "w", permissions
            )
            if stat.S_ISDIR(self._file.stat()[0]):
                self._file.close()
                raise OSError(EISDIR, os.strerror(EISDIR))
        if self._appends:
            self._at = self.size()

    def size(self) -> int:
        with _naming(self.name):
            return self._file.stat()[1]

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def seekable(self) -> bool:
        return True

    def _check(self, may: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not may:
            raise io.UnsupportedOperation(what)

    def readinto(self, buffer: Any) -> int:
        self._check(self._reads, "not readable")
        view = memoryview(buffer).cast("B")
        with self._lock, _naming(self.name):
            data = self._file.read_at(self._at, len(view))
            view[: len(data)] = data
            self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        return self.read_all(max(self.size() - self.tell(), 0))

    def read_all(self, count: int) -> bytes:
        """Up to `count` bytes; fewer only at the end of the file."""
        self._check(self._reads, "not readable")
        pieces = []
        with self._lock, _naming(self.name):
            while count > 0 and (piece := self._file.read_at(self._at, min(count, PIECE_BYTES))):
                pieces.append(piece)
                self._at += len(piece)
                count -= len(piece)
        return b"".join(pieces)

    def write(self, data: Any) -> int:
        self._check(self._writes, "not writable")
        piece = data if isinstance(data, bytes) else bytes(data)
        with self._lock, _naming(self.name):
            if self._appends:
                at, written = self._file.append(piece)
            else:
                at, written = self._at, self._file.write_at(self._at, piece)
            self._at = at + written
        return written

    def write_all(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += self.write(view[done : done + PIECE_BYTES])

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check(True, "")
        base = {io.SEEK_SET: lambda: 0, io.SEEK_CUR: lambda: self._at, io.SEEK_END: self.size}
        if whence not in base:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        at = base[whence]() + offset
        if at < 0:
            raise ValueError(f"negative seek position {at}")
        self._at = at
        return at

    def tell(self) -> int:
        self._check(True, "")
        return self._at

    def truncate(self, size: Optional[int] = None) -> int:
        self._check(self._writes, "not writable")
        size = self._at if size is None else size
        with _naming(self.name):
            self._file.truncate(size)
        return size

    def sync(self) -> None:
        """Returns when everything is on stable storage."""
        self._check(True, "")
        with _naming(self.name):
            self._file.sync()

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _naming(self.name):
                self._file.close()


class _Uncommitted(io.BufferedWriter):
    """A file of a transaction: it gets its name when that is committed."""

    def __init__(self, fs: IsonomiaFileSystem, raw: _Raw, target: str, size: int) -> None:
        super().__init__(raw, size)
        self._fs = fs
        self._temporary = raw.name
        self._target = target

    def commit(self) -> None:
        self.close()
        self._fs._files.rename(self._fs._path(self._temporary)[1], self._fs._path(self._target)[1])

    def discard(self) -> None:
        self.close()
        self._fs._files.unlink(self._fs._path(self._temporary)[1])
