//! Several servers in this process, as one file system.

use isonomia_client::{Address, Claims, Client, ClientConfig, Ino};
use isonomia_server::{Config, Server};
use isonomia_units::{Nanos, VolumeId};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

/// Servers `io1`, `io2`, … of which the first is the root server, each on a socket and on TCP.
pub struct Cluster {
    /// `None` while one is away.
    pub servers: Vec<Option<Server>>,
    /// By server.
    pub configs: Vec<Config>,
    /// Everything lies below this.
    pub dir: tempfile::TempDir,
}

/// An address of the loopback device that is nobody else's: of this process, and no port of it comes twice. A port that was found to be free
/// may be another program's before a server listens there.
fn own_address() -> SocketAddrV4 {
    static PORT: AtomicU16 = AtomicU16::new(20_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // A process id has 22 bits.
    SocketAddrV4::new(Ipv4Addr::new(127, 64 | high, middle, low), PORT.fetch_add(1, Ordering::Relaxed))
}

/// A directory in memory, if there is one.
pub fn in_memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

impl Cluster {
    /// Starts so many servers, of two targets each.
    pub fn start(count: usize) -> Self {
        Self::start_as(&in_memory(), count, "", "2", |_| {})
    }

    /// The same below a directory.
    pub fn start_in(base: &Path, count: usize) -> Self {
        Self::start_as(base, count, "", "2", |_| {})
    }

    /// Starts so many servers below a directory, with such targets and more lines in the cluster file, and with `change` to the
    /// configuration of each.
    pub fn start_as(base: &Path, count: usize, lines: &str, targets: &str, change: impl Fn(&mut Config)) -> Self {
        Self::start_called("scratch", base, count, (lines, targets), change)
    }

    /// The same with another name of the file system.
    pub fn start_called(
        name: &str,
        base: &Path,
        count: usize,
        (lines, targets): (&str, &str),
        change: impl Fn(&mut Config),
    ) -> Self {
        let dir = tempfile::tempdir_in(base).unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let at = dir.path().display();
        let key = dir.path().join("key");
        std::fs::write(&key, [7; 32]).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut text = format!("name = {name:?}\nepoch = 1\n{lines}\n");
        for number in 1..=count {
            let address = own_address();
            write!(
                text,
                "[[server]]\nname = \"io{number}\"\nnumber = {number}\ndir = \"{at}/io{number}\"\n\
                 listen = [\"unix:{at}/io{number}.sock\", \"tcp:{address}\"]\ntargets = {targets}\n"
            )
            .unwrap();
        }
        let file = dir.path().join("cluster.toml");
        std::fs::write(&file, text).unwrap();
        let configs = (1..=count).map(|number| {
            let mut config = Config { key_file: Some(key.clone()), ..Config::default() };
            change(&mut config);
            config.join(&file, &format!("io{number}")).unwrap();
            config
        });
        let configs: Vec<Config> = configs.collect();
        let servers = configs.iter().map(|config| Some(Server::start(config.clone()).unwrap())).collect();
        Self { servers, configs, dir }
    }

    /// Stops a server and starts it again.
    pub fn restart(&mut self, index: usize) {
        self.servers[index] = None;
        self.servers[index] = Some(Server::start(self.configs[index].clone()).unwrap());
    }

    /// A client that knows the address of one server only.
    pub fn client(&self, index: usize, is_tcp: bool) -> Client {
        self.client_of(vec![self.configs[index].listen[usize::from(is_tcp)].clone()])
    }

    /// A client that knows these addresses.
    pub fn client_of(&self, addresses: Vec<Address>) -> Client {
        self.client_as(addresses, Claims { job: Some("test".to_owned()), ..Claims::default() })
    }

    /// A client that knows these addresses and says that it is this job.
    pub fn client_as(&self, addresses: Vec<Address>, claims: Claims) -> Client {
        Client::new(ClientConfig {
            addresses,
            timeout: Nanos::from_secs(20),
            claims,
            key_file: Some(self.dir.path().join("key").display().to_string()),
        })
    }

    /// For each of two servers a volume that it has, by name.
    pub fn volume_on_each(&self) -> [String; 2] {
        let maker = self.client(0, false);
        let mut volumes: [Option<String>; 2] = [None, None];
        for name in (0..40).map(|number| format!("v{number}")) {
            let made = maker.mkdir(Ino::ROOT, name.as_bytes(), 0o755).unwrap();
            volumes[self.has(Ino(made.attr.ino).volume())].get_or_insert(name);
            if volumes.iter().all(Option::is_some) {
                break;
            }
        }
        volumes.map(|name| name.expect("forty volumes are on both servers"))
    }

    /// The server that has a volume.
    pub fn has(&self, volume: VolumeId) -> usize {
        let volumes = |server: &Server| server.status().cluster.unwrap().volumes;
        let has = |server: &Server| volumes(server).iter().any(|known| known.number == volume.0);
        self.servers.iter().position(|server| server.as_ref().is_some_and(has)).unwrap()
    }
}
