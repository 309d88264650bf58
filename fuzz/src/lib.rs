//! A running server for the targets that talk to one, and what it has to keep from strangers. It is the only one of a cluster, so
//! that it takes requests for objects of spread files, and from those who know the key messages of other servers.
//!
//! The bytes of such a target are what a client sends. Through shared memory it is an ordinary user's, for whom the kernel
//! vouches; on TCP it knows the key, and so is the server's own user's. Whatever comes, the server ends the connection in
//! time and keeps serving others, and no stranger sees or changes what is closed to him.

use isonomia_client::{Client, ClientConfig, OpenFile, OpenHow, XattrHow, access};
use isonomia_cluster::peer::Envelope;
use isonomia_proto::fs::Capability;
use isonomia_proto::object::{FileObjects, ObjectCapability};
use isonomia_proto::request::{Op, REQUEST_MAGIC, RequestHeader};
use isonomia_proto::setup::Claims;
use isonomia_proto::striping::XATTR;
use isonomia_server::{Config, Server};
use isonomia_transport::address::Address;
use isonomia_transport::channel::Manner;
use isonomia_transport::handshake::Identity;
use isonomia_transport::key::{Key, Secret};
use isonomia_transport::line::Line;
use isonomia_transport::socket::{Deadline, wait};
use isonomia_units::{Ino, Nanos};
use rustix::event::PollFlags;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use rustix::thread::{Uid, set_thread_res_uid};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Mutex;
use zerocopy::FromBytes;

/// The content of a file that is closed to strangers.
pub const SECRET: &[u8; 16] = b"\xd1\x07\xee\x92\x5a\xc3\x18\xb4\x6f\x29\xf7\x80\x3d\xa6\x4b\x1c";
/// A user who is neither root nor the server's own.
const STRANGER: u32 = 1_234_501;
/// Far longer than any answer takes.
const PATIENCE: Nanos = Nanos::from_secs(20);
/// The server, in the cluster file.
const SERVER: &str = "one";
/// More than there are kinds of messages between servers.
const KINDS: u32 = 16;
/// After so many inputs there is another server, in an empty directory: what they left takes room.
const INPUTS_OF_A_SERVER: u32 = 2_000;

/// The server, in this process, and a client that means well.
pub struct Running {
    /// The Unix socket.
    pub local: Address,
    /// TCP.
    pub remote: Address,
    /// What the stranger may read and write.
    pub own: Capability,
    /// What he may do with each object of a spread file.
    objects: Vec<ObjectCapability>,
    key_file: PathBuf,
    secret: OpenFile,
    client: Client,
    inputs: u32,
    _server: Server,
}

/// When whoever waits has waited for too long.
pub fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// Runs `input` on a server, and sees to it that the server serves others afterwards.
pub fn with_server(input: impl FnOnce(&Running)) {
    static RUNNING: Mutex<Option<Running>> = Mutex::new(None);
    let mut running = RUNNING.lock().expect("one input after the other");
    if running.as_ref().is_some_and(|running| running.inputs >= INPUTS_OF_A_SERVER) {
        *running = None;
    }
    let running = running.get_or_insert_with(start);
    running.inputs += 1;
    input(running);
    let mut found = [0; SECRET.len()];
    assert_eq!(running.client.read_at(&running.secret, 0, &mut found).expect("the server serves"), found.len());
    assert_eq!(found, *SECRET);
}

fn start() -> Running {
    let dir = std::env::temp_dir().join(format!("isonomia-fuzz-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).expect("a directory");
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).expect("open to the stranger");
    let key_file = dir.join("key");
    std::fs::write(&key_file, [7; 32]).expect("a key file");
    std::fs::set_permissions(&key_file, PermissionsExt::from_mode(0o600)).expect("closed to others");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    let file = dir.join("cluster.toml");
    let (shown, data) = (dir.display(), dir.join("data"));
    let text = format!(
        "name = \"fuzz\"\nepoch = 1\n[[server]]\nname = \"{SERVER}\"\nnumber = 1\ntargets = 2\ndir = {data:?}\n\
         listen = [\"unix:{shown}/socket\", \"tcp:127.0.0.1:{port}\"]\n"
    );
    std::fs::write(&file, text).expect("a cluster file");
    let mut config = Config { key_file: Some(key_file.clone()), ..Config::default() };
    config.join(&file, SERVER).expect("a server of the cluster");
    let server = Server::start(config).expect("a server");
    let [local, remote] = server.addresses() else { unreachable!("two addresses were asked for") };
    let (local, remote) = (local.clone(), remote.clone());
    let client = || {
        Client::new(ClientConfig {
            addresses: vec![local.clone()],
            timeout: PATIENCE,
            claims: Claims::default(),
            key_file: None,
        })
    };
    let open = |client: &Client, name: &[u8], mode| {
        let how = OpenHow { access: access::READ | access::WRITE, create: true, mode, ..OpenHow::default() };
        client.open(Ino::ROOT, name, &how).expect("a file")
    };
    let owner = client();
    let secret = open(&owner, b"secret", 0o600);
    assert_eq!(owner.write_at(&secret, 0, SECRET).expect("written"), SECRET.len());
    open(&owner, b"own", 0o666);
    let own = as_stranger(|| open(&client(), b"own", 0o666)).capability;
    owner.mkdir(Ino::ROOT, b"spread", 0o777).expect("a volume");
    owner.set_xattr(Ino::ROOT, b"spread", true, XATTR, b"count=2 size=4KiB", XattrHow::default()).expect("striped");
    open(&owner, b"spread/own", 0o666);
    let objects = as_stranger(|| objects_of(&local, &open(&client(), b"spread/own", 0o666)));
    Running { local, remote, own, objects, key_file, secret, client: owner, inputs: 0, _server: server }
}

/// What its holder may do with the objects of a spread file.
fn objects_of(local: &Address, file: &OpenFile) -> Vec<ObjectCapability> {
    let mut line = Line::open(local, &Identity { client: 9, ..Identity::default() }, soon()).expect("welcome");
    let request = RequestHeader::with_capability(Op::FindObjects, &file.capability);
    let targets = &file.layout.targets;
    let mut reply = vec![0; FileObjects::len(targets.len())];
    let (header, _) = line.exchange(&request, [b"", b""], &mut reply, PATIENCE, Manner::default()).expect("an answer");
    assert_eq!(header.errno, 0);
    let (found, codes, _) = FileObjects::decode(&reply).expect("a file's objects");
    let each = (0..).zip(targets).zip(codes);
    each.map(|((index, target), code)| found.capability_for(index, *target, code)).collect()
}

/// What `connect` gives while this thread is the stranger, if it may be another one.
pub fn as_stranger<T>(connect: impl FnOnce() -> T) -> T {
    let own = rustix::process::geteuid();
    let become_user = |uid| !own.is_root() || set_thread_res_uid(own, uid, own).is_ok();
    assert!(become_user(Uid::from_raw(STRANGER)));
    let outcome = connect();
    assert!(become_user(own));
    outcome
}

impl Running {
    /// Somebody who knows the key.
    pub fn identity(&self) -> Identity {
        Identity { client: 7, key_file: Some(self.key_file.display().to_string()), ..Identity::default() }
    }

    /// What the handshake of those who know the key begins with.
    pub fn secret_of_key(&self) -> Secret {
        Key::read(&self.key_file.display().to_string()).expect("the key").secret()
    }

    /// The next request in `bytes`, and what may follow its header: names and payload. The first byte says what is put
    /// right of it, so that many get further than to the first check.
    pub fn request<'b>(&self, bytes: &mut &'b [u8]) -> Option<(RequestHeader, &'b [u8])> {
        let (how, rest) = bytes.split_first()?;
        let (mut header, rest) = RequestHeader::read_from_prefix(rest).ok()?;
        let puts_right = |bit: u8| how & bit == 0;
        if puts_right(1) {
            header.magic = REQUEST_MAGIC;
            header.op = Op::ALL[usize::from(header.op) % Op::ALL.len()] as u16;
        }
        if puts_right(2) {
            (header.path_len, header.path2_len, header.len) =
                (header.path_len % 8, header.path2_len % 8, header.len % 4096);
            (header.atime.nanos, header.mtime.nanos) =
                (header.atime.nanos % 1_000_000_000, header.mtime.nanos % 1_000_000_000);
            (header.server, header.target) = (0, 0);
        }
        if puts_right(4) {
            let Capability { ino, access, generation, mac, holder, .. } = self.own;
            header = RequestHeader { ino, access, generation, mac, holder, ..header };
        } else if puts_right(8) {
            header.ino = Ino::ROOT.0;
        }
        if how & 16 != 0 {
            let (op, index) =
                (Op::ALL[usize::from(header.op) % Op::ALL.len()], header.mode as usize % self.objects.len());
            let object = RequestHeader::of_object(op, &self.objects[index]);
            let RequestHeader { seq, ino2, offset, len, valid, path_len, path2_len, .. } = header;
            let flags = header.flags | object.flags;
            header = RequestHeader { seq, flags, ino2, offset, len, valid, path_len, path2_len, ..object };
        } else if how & 32 != 0 {
            // As another server would say it.
            (header.op, header.valid, header.offset) = (Op::Peer as u16, header.valid % KINDS, 1);
        }
        if header.op == Op::AwaitMappings as u16 {
            // Such a one may wait for seconds.
            header.ino2 %= 1_000_000;
        }
        let payload = if header.op == Op::Write as u16 { header.len as usize } else { 0 };
        let (more, rest) = rest.split_at((header.names_len() + payload).min(rest.len()));
        *bytes = rest;
        let said = more.get(usize::from(header.path_len) + usize::from(header.path2_len)..).unwrap_or_default();
        if header.op == Op::Peer as u16 && may_end(said) {
            return Some((RequestHeader { seq: header.seq, ..RequestHeader::new(Op::FindServer, Ino::ROOT) }, &[]));
        }
        Some((header, more))
    }
}

/// Whether a server of the cluster may have this one end by saying so: that it knows another process of this one.
fn may_end(said: &[u8]) -> bool {
    Envelope::decode(said).is_ok_and(|envelope| envelope.knows.is_some())
}

/// Says that no more will come, and takes what the server has said until it ends the connection.
pub fn said_at_the_end(socket: impl AsFd) -> Vec<u8> {
    // It may have ended the connection already.
    let _ = rustix::net::shutdown(&socket, Shutdown::Write);
    let (mut said, mut part, deadline) = (Vec::new(), [0; 1 << 14], soon());
    loop {
        match rustix::net::recv(&socket, &mut part, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return said,
            Ok((len, _)) => said.extend(&part[..len]),
            Err(Errno::AGAIN) => wait(socket.as_fd(), PollFlags::IN, deadline).expect("the server ends the connection"),
            Err(error) => panic!("{error}"),
        }
    }
}
