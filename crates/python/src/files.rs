//! Files on a server, for `isonomia.fs`: paths are bytes relative to the root, errors are Python's `OSError` with an
//! errno. Python can go on in other threads during every operation.

use isonomia_client::{
    Addresses, Attr, Change, Client, ClientConfig, Error, Ino, OpenFile, OpenHow, Protection, RenameHow, TimeChange,
    access, default_address, identity, owner,
};
use isonomia_units::Nanos;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What `stat` gives: mode, size, inode, links, owner, group, and the times of the last access, modification and change
/// in nanoseconds since 1970.
type Stat = (u32, u64, u64, u32, u32, u32, i128, i128, i128);

/// A server, as this process sees it. It is reached at the first operation.
#[pyclass(frozen, weakref, module = "isonomia._native")]
pub struct Files {
    client: Arc<Client>,
}

/// An open file.
#[pyclass(frozen, module = "isonomia._native")]
pub struct File {
    client: Arc<Client>,
    file: OpenFile,
    is_closed: AtomicBool,
}

fn refuse(error: &Error) -> PyErr {
    let errno = error.errno().raw_os_error();
    let text = match error {
        Error::Server(_) | Error::Argument(_) => std::io::Error::from_raw_os_error(errno).to_string(),
        other => other.to_string(),
    };
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    // Python makes the fitting subclass of it, such as `FileNotFoundError`.
    PyOSError::new_err((errno, text))
}

fn stat_of(attr: &Attr) -> Stat {
    let ns = |time: isonomia_client::Timestamp| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    let Attr { mode, size_bytes, ino, nlink, uid, gid, atime, mtime, ctime, .. } = *attr;
    (mode, size_bytes, ino, nlink, uid, gid, ns(atime), ns(mtime), ns(ctime))
}

#[pymethods]
impl Files {
    /// `server` is an address, or several parted by commas; who the job is, what is not given here, comes from the environment.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        server: Option<&str>,
        timeout_s: u64,
        key_file: Option<String>,
        job: Option<String>,
        user: Option<String>,
        group: Option<String>,
        nodes: Option<u32>,
        priority: Option<u32>,
    ) -> PyResult<Self> {
        let variable = |name: &str| std::env::var(name).ok();
        let addresses: Addresses = match server.map(str::to_owned).or_else(|| variable("ISONOMIA_SERVER")) {
            Some(text) => text.parse().map_err(|reason| crate::refuse(format!("{text}: {reason}")))?,
            None => {
                let uid = rustix::process::geteuid().as_raw();
                default_address(uid, variable("XDG_RUNTIME_DIR").as_deref()).into()
            }
        };
        let mut claims = identity::from_environment(variable);
        claims.job = job.or(claims.job);
        claims.user = user.or(claims.user);
        claims.group = group.or(claims.group);
        claims.nodes = nodes.or(claims.nodes);
        claims.priority = priority.or(claims.priority);
        let key_file = key_file.or_else(|| variable("ISONOMIA_KEY_FILE"));
        let timeout = Nanos::from_secs(timeout_s);
        let server_user = variable("ISONOMIA_SERVER_USER").filter(|text| !text.is_empty());
        let server_user = server_user.map(|text| owner::user(&text)).transpose();
        let server_user = server_user.map_err(|reason| crate::refuse(format!("ISONOMIA_SERVER_USER: {reason}")))?;
        let protection = Protection::from_environment(variable);
        let protection = protection.map_err(|reason| crate::refuse(format!("ISONOMIA_INTEGRITY: {reason}")))?;
        let client = Client::new(ClientConfig { addresses: addresses.as_slice().to_vec(), timeout, claims, key_file });
        let client = client.trusting(server_user).protected(protection);
        Ok(Self { client: Arc::new(client) })
    }

    /// To be called in the child of a fork before anything else.
    fn after_fork_in_child(&self) {
        self.client.after_fork_in_child();
    }

    fn stat(&self, py: Python<'_>, path: &[u8], follow: bool) -> PyResult<Stat> {
        let attr = py.detach(|| self.client.get_attr(Ino::ROOT, path, follow)).map_err(|error| refuse(&error))?;
        Ok(stat_of(&attr))
    }

    /// Names in a directory, without `.` and `..`, in no order.
    fn list<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let names = py.detach(|| self.names(path)).map_err(|error| refuse(&error))?;
        Ok(names.iter().map(|name| PyBytes::new(py, name)).collect())
    }

    fn mkdir(&self, py: Python<'_>, path: &[u8], mode: u32) -> PyResult<()> {
        self.run(py, |client| client.mkdir(Ino::ROOT, path, mode).map(drop))
    }

    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, |client| client.rmdir(Ino::ROOT, path))
    }

    fn unlink(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, |client| client.unlink(Ino::ROOT, path))
    }

    fn rename(&self, py: Python<'_>, path: &[u8], to: &[u8]) -> PyResult<()> {
        self.run(py, |client| client.rename(Ino::ROOT, path, Ino::ROOT, to, RenameHow::Replace))
    }

    /// Sets the times of access and modification to the server's present.
    fn touch(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        let change = Change { atime: Some(TimeChange::Now), mtime: Some(TimeChange::Now), ..Change::default() };
        self.run(py, |client| client.set_attr(Ino::ROOT, path, true, &change).map(drop))
    }

    /// Opens a file; `mode` is of one that is created, with the umask applied.
    #[expect(clippy::too_many_arguments, reason = "as in open(2)")]
    fn open(
        &self,
        py: Python<'_>,
        path: &[u8],
        read: bool,
        write: bool,
        create: bool,
        exclusive: bool,
        truncate: bool,
        mode: u32,
    ) -> PyResult<File> {
        let access = if read { access::READ } else { 0 } | if write { access::WRITE } else { 0 };
        let how = OpenHow { access, create, exclusive, truncate, mode, ..OpenHow::default() };
        let file = py.detach(|| self.client.open(Ino::ROOT, path, &how)).map_err(|error| refuse(&error))?;
        Ok(File { client: self.client.clone(), file, is_closed: AtomicBool::new(false) })
    }
}

impl Files {
    fn run(&self, py: Python<'_>, operation: impl FnOnce(&Client) -> Result<(), Error> + Send) -> PyResult<()> {
        py.detach(|| operation(&self.client)).map_err(|error| refuse(&error))
    }

    fn names(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let how = OpenHow { access: access::READ, directory: true, ..OpenHow::default() };
        let dir = self.client.open(Ino::ROOT, path, &how)?;
        let mut names = Vec::new();
        let mut cookie = 0;
        let listed = loop {
            let entries = match self.client.read_open_dir(&dir.capability, cookie) {
                Ok(entries) => entries,
                Err(error) => break Err(error),
            };
            let Some(last) = entries.last() else { break Ok(names) };
            cookie = last.cookie;
            let own = |name: &[u8]| name != b"." && name != b"..";
            names.extend(entries.into_iter().map(|entry| entry.name).filter(|name| own(name)));
        };
        // The listing is what was asked for.
        let _ = self.client.release(Ino(dir.attr.ino), 0);
        listed
    }
}

#[pymethods]
impl File {
    /// Up to `len` bytes from `offset`; fewer only at the end of the file.
    fn read_at<'py>(&self, py: Python<'py>, offset: u64, len: usize) -> PyResult<Bound<'py, PyBytes>> {
        let read = || {
            let mut buffer = vec![0; len];
            let len = self.client.read_at(&self.file, offset, &mut buffer)?;
            buffer.truncate(len);
            Ok(buffer)
        };
        py.detach(read).map(|buffer| PyBytes::new(py, &buffer)).map_err(|error| refuse(&error))
    }

    /// Writes at `offset`; gives how much. The next call tells the error that stopped it.
    fn write_at(&self, py: Python<'_>, offset: u64, data: &[u8]) -> PyResult<usize> {
        py.detach(|| self.client.write_at(&self.file, offset, data)).map_err(|error| refuse(&error))
    }

    /// Writes at the end of the file as one piece; gives where, and how much.
    fn append(&self, py: Python<'_>, data: &[u8]) -> PyResult<(u64, usize)> {
        py.detach(|| self.client.append(&self.file, data)).map_err(|error| refuse(&error))
    }

    fn truncate(&self, py: Python<'_>, size_bytes: u64) -> PyResult<()> {
        py.detach(|| self.client.truncate(&self.file, size_bytes)).map(drop).map_err(|error| refuse(&error))
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        let attr =
            py.detach(|| self.client.get_attr(self.file.capability, b"", true)).map_err(|error| refuse(&error))?;
        Ok(stat_of(&attr))
    }

    /// Waits until everything is on stable storage.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.client.sync(&self.file, false)).map_err(|error| refuse(&error))
    }

    /// Gives the file back; nothing happens the second time.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        py.detach(|| self.client.close(&self.file, 0)).map_err(|error| refuse(&error))
    }
}
