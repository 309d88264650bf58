//! A server in this process, and clients of it.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod between;
pub mod cluster;
pub mod page_counts;
pub mod striped;
pub mod switching;

use isonomia_client::{Address, Claims, Client, ClientConfig, Ino, OpenHow, access};
use isonomia_proto::control::{ControlReply, ControlRequest};
use isonomia_server::{Config, Server};
use isonomia_transport::control::ControlConnection;
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A server that listens on a Unix socket and on TCP, in a directory in memory.
pub struct Running {
    /// The server; `None` while it is away.
    pub server: Option<Server>,
    /// Its configuration.
    pub config: Config,
    /// Where it listens.
    pub addresses: Vec<Address>,
    /// The key for TCP.
    pub key_file: String,
    /// Everything lies below this.
    pub dir: tempfile::TempDir,
}

/// Starts a server, with `change` to its configuration.
pub fn start(change: impl FnOnce(&mut Config)) -> Running {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::tempdir_in(base).unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut config = Config {
        dir: Some(dir.path().join("data")),
        listen: vec![
            format!("unix:{}", dir.path().join("s").display()).parse().unwrap(),
            "tcp:127.0.0.1:0".parse().unwrap(),
        ],
        key_file: Some(key.clone()),
        ..Config::default()
    };
    change(&mut config);
    // Other users come to the socket as well.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start(config.clone()).unwrap();
    let addresses = server.addresses().to_vec();
    Running { server: Some(server), config, addresses, key_file: key.display().to_string(), dir }
}

impl Running {
    /// The running server.
    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("the server runs")
    }

    /// A client on this host, for a process of `job`.
    pub fn client_of_job(&self, job: &str) -> Client {
        Client::new(ClientConfig {
            addresses: vec![self.addresses[0].clone()],
            timeout: Nanos::from_secs(20),
            claims: Claims { job: Some(job.to_owned()), ..Claims::default() },
            key_file: None,
        })
    }

    /// Stops the server and starts it again in the same directory.
    pub fn restart(&mut self) {
        self.stop();
        self.server = Some(Server::start(self.config.clone()).unwrap());
    }

    /// Stops the server.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown();
        }
    }

    /// A client on each transport: shared memory, then TCP.
    pub fn clients(&self) -> Vec<Client> {
        self.addresses.iter().map(|address| self.client(address, &self.key_file, 20)).collect()
    }

    /// A client in shared memory of user `uid`; it must not lose its connections.
    pub fn client_of(&self, uid: u32) -> Client {
        as_user(uid, || {
            let client = self.client(&self.addresses[0], &self.key_file, 20);
            // The first operation connects.
            client.stat_fs().unwrap();
            client
        })
    }

    /// On each transport a client creates a file and writes to it.
    pub fn serves(&self) {
        for (number, client) in self.clients().iter().enumerate() {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_nsec;
            let file = client.open(Ino::ROOT, format!("served{number}-{now}").as_bytes(), &create()).unwrap();
            assert_eq!(client.write_at(&file, 0, b"yes").unwrap(), 3);
        }
    }

    /// A client that gives up after `timeout_s`.
    pub fn client(&self, address: &Address, key_file: &str, timeout_s: u64) -> Client {
        Client::new(ClientConfig {
            addresses: vec![address.clone()],
            timeout: Nanos::from_secs(timeout_s),
            claims: Claims { job: Some("test".to_owned()), ..Claims::default() },
            key_file: Some(key_file.to_owned()),
        })
    }
}

/// Opens for reading and writing.
pub const READ_WRITE: u32 = access::READ | access::WRITE;

/// Creates what must not exist.
pub fn create() -> OpenHow {
    OpenHow { access: READ_WRITE, create: true, exclusive: true, mode: 0o644, ..OpenHow::default() }
}

/// Bytes that differ from those of another seed and offset.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed)).collect()
}

/// Two users who are neither root nor the server's own.
pub const ALICE: u32 = 1_234_501;
/// See [`ALICE`].
pub const MALLORY: u32 = 1_234_502;

/// Whether this process may become others, so that a server sees ordinary users; if not, the test is skipped.
pub fn can_be_others() -> bool {
    isonomia_testbed::is_root_to("become other users")
}

/// Runs `work` on a thread that is user `uid`, without groups of root's: what it connects is that user's.
pub fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    use rustix::process::{Gid, Uid};
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // System calls of a thread change that thread only.
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_gid(Gid::from_raw(uid)).unwrap();
            rustix::thread::set_thread_uid(Uid::from_raw(uid)).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

/// What a server answers an operator.
pub fn ask(address: &Address, request: &ControlRequest) -> ControlReply {
    let mut control = ControlConnection::open(address, &Identity::default(), Nanos::from_secs(20)).unwrap();
    control.ask(request).unwrap()
}

/// For what takes no time.
pub fn soon() -> Deadline {
    Deadline::after(Nanos::from_secs(20))
}

/// Somebody with the key.
pub fn identity(running: &Running) -> Identity {
    Identity { client: 7, key_file: Some(running.key_file.clone()), ..Identity::default() }
}

/// Waits for `condition`, which must come true without further ado.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = soon();
    while !condition() {
        assert!(deadline.left().is_some(), "{what}");
        std::thread::yield_now();
    }
}
