//! What a client may do with inodes that it did not come to, and with proofs that are another user's.

use crate::running::{ALICE, MALLORY, READ_WRITE, Running, as_user, can_be_others, create, start};
use isonomia_client::{
    Capability, Change, Client, Error, Ino, LockKind, LockOwner, LockRange, OpenFile, OpenHow, RenameHow, TimeChange,
    XattrHow, access,
};
use isonomia_proto::request::{Op, RequestHeader};
use isonomia_server::TargetConfig;
use isonomia_transport::channel::{Channel, Manner};
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::{Bytes, Nanos};
use rustix::io::Errno;

/// The errno of an operation that must have failed; `None` if it did not.
fn errno<T>(outcome: Result<T, Error>) -> Option<Errno> {
    outcome.err().map(|error| error.errno())
}

const BYTES: LockRange = LockRange::Bytes { start: 0, len: 0 };

fn to_read() -> OpenHow {
    OpenHow { access: access::READ, ..OpenHow::default() }
}

fn by_path_only() -> OpenHow {
    OpenHow { path_only: true, ..OpenHow::default() }
}

/// What [`ALICE`] keeps to herself: a directory that only she may enter, and in it what everybody could use.
struct Private {
    alice: Client,
    dir: Capability,
    below: Capability,
    file: OpenFile,
}

impl Private {
    fn new(running: &Running) -> Self {
        let alice = running.client_of(ALICE);
        let dir = alice.mkdir(Ino::ROOT, b"private", 0o700).unwrap().capability;
        let below = alice.mkdir(dir, b"below", 0o777).unwrap().capability;
        let file = alice.open(dir, b"shown", &create()).unwrap();
        alice.write_at(&file, 0, b"secret").unwrap();
        alice.set_xattr(file.capability, b"", true, b"user.a", b"1", XattrHow::default()).unwrap();
        Self { alice, dir, below, file }
    }
}

/// Everything that a request can begin with, begun at `dir`, a directory, or at `file`.
fn tried(client: &Client, dir: Capability, file: Capability) -> Vec<(&'static str, Option<Errno>)> {
    let chmod = Change { mode: Some(0o777), ..Change::default() };
    let cut = Change { size_bytes: Some(0), ..Change::default() };
    let now = Some(TimeChange::Now);
    let touch = Change { atime: now, mtime: now, ..Change::default() };
    let root = Ino::ROOT;
    let mut room = [0; 16];
    vec![
        ("open", errno(client.open(file, b"", &to_read()))),
        ("open by path only", errno(client.open(file, b"", &by_path_only()))),
        ("open below", errno(client.open(dir, b"planted", &create()))),
        ("stat", errno(client.get_attr(file, b"", true))),
        ("stat below", errno(client.get_attr(dir, b".", true))),
        ("chmod", errno(client.set_attr(file, b"", true, &chmod))),
        ("touch", errno(client.set_attr(file, b"", true, &touch))),
        ("truncate", errno(client.set_attr(file, b"", true, &cut))),
        ("mkdir", errno(client.mkdir(dir, b"d", 0o777))),
        ("rmdir", errno(client.rmdir(dir, b"d"))),
        ("mknod", errno(client.mknod(dir, b"fifo", 0o010_644, 0))),
        ("symlink", errno(client.symlink(b"text", dir, b"s"))),
        ("readlink", errno(client.readlink(dir, b"s"))),
        ("rename from", errno(client.rename(dir, b"s", root, b"stolen", RenameHow::Replace))),
        ("rename to", errno(client.rename(root, b"stolen", dir, b"s", RenameHow::Replace))),
        ("unlink", errno(client.unlink(dir, b"s"))),
        ("link from", errno(client.link(file, b"", false, root, b"linked"))),
        ("link to", errno(client.link(root, b"linked", false, dir, b"linked"))),
        ("list", errno(client.read_dir(dir, 0))),
        ("access", errno(client.access(file, b"", 4, true))),
        ("path", errno(client.path_of(dir))),
        ("get xattr", errno(client.get_xattr(file, b"", true, b"user.a", &mut room))),
        ("list xattrs", errno(client.list_xattrs(file, b"", true, &mut room))),
        ("set xattr", errno(client.set_xattr(file, b"", true, b"user.b", b"1", XattrHow::default()))),
        ("remove xattr", errno(client.remove_xattr(file, b"", true, b"user.b"))),
        ("delegate", errno(client.delegate(&file, MALLORY))),
    ]
}

fn all(errno: Option<Errno>) -> impl Fn(&(&'static str, Option<Errno>)) -> bool {
    move |(_, outcome)| *outcome == errno
}

#[test]
fn nobody_begins_at_an_inode_that_he_did_not_come_to() {
    if !can_be_others() {
        return;
    }
    let running = start(|_| {});
    let Private { alice, below, file, .. } = Private::new(&running);
    let mallory = running.client_of(MALLORY);
    let file = file.capability;
    mallory.open(Ino::ROOT, b"stolen", &create()).unwrap();
    mallory.open(Ino::ROOT, b"linked", &create()).unwrap();
    // By their numbers, with alice's own proofs, and with proofs made up.
    let forged = |of: Capability| Capability { holder: MALLORY, ..of };
    for (expected, dir, file) in [
        (Errno::ACCESS, Ino(below.ino).into(), Ino(file.ino).into()),
        (Errno::ACCESS, below, file),
        (Errno::STALE, forged(below), forged(file)),
        (Errno::STALE, Capability { mac: 1, ..forged(below) }, Capability { mac: 1, ..forged(file) }),
    ] {
        let tried = tried(&mallory, dir, file);
        assert!(tried.iter().all(all(Some(expected))), "{expected:?} expected: {tried:?}");
    }
    assert_eq!(alice.read_dir(below, 0).unwrap().len(), 2, "nothing was planted");
}

#[test]
fn one_begins_wherever_one_came_to() {
    if !can_be_others() {
        return;
    }
    let running = start(|_| {});
    let Private { alice, dir, below, file } = Private::new(&running);
    alice.open(Ino::ROOT, b"stolen", &create()).unwrap();
    let fine = tried(&alice, below, file.capability);
    assert!(fine.iter().all(all(None)), "{fine:?}");
    // An open for the path alone is proof enough, and so is what was found.
    let named = alice.open(dir, b"below", &by_path_only()).unwrap().capability;
    let found = alice.look_up(dir, b"below", true).unwrap().capability;
    assert_eq!((named, found), (below, below));
    assert_eq!(alice.path_of(found).unwrap(), b"/private/below");
    // Having come there is no permission to read.
    let shut = Change { mode: Some(0o300), ..Change::default() };
    alice.set_attr(below, b"", true, &shut).unwrap();
    assert_eq!(errno(alice.read_dir(below, 0)), Some(Errno::ACCESS));
    assert_eq!(errno(alice.read_open_dir(&below, 0)), Some(Errno::BADF));
}

#[test]
fn trusted_sessions_begin_anywhere() {
    let running = start(|_| {});
    for client in running.clients() {
        let name = if matches!(client.config().addresses[0], isonomia_client::Address::Tcp(_)) { b"t" } else { b"u" };
        let dir = client.mkdir(Ino::ROOT, name, 0o700).unwrap();
        assert_eq!(dir.capability, Capability::unproven(Ino(dir.attr.ino)));
        client.open(Ino(dir.attr.ino), b"f", &create()).unwrap();
        assert_eq!(client.read_dir(Ino(dir.attr.ino), 0).unwrap().len(), 3);
    }
}

/// Everything that is done on the strength of a capability alone.
fn used(client: &Client, file: &OpenFile, dir: &Capability) -> Vec<(&'static str, Option<Errno>)> {
    let (capability, owner) = (&file.capability, LockOwner::Process(0));
    let outcomes = vec![
        ("read", errno(client.read_at(file, 0, &mut [0; 6]))),
        ("write", errno(client.write_at(file, 0, b"s"))),
        ("append", errno(client.append(file, b"s"))),
        ("sync", errno(client.sync(file, false))),
        ("resize", errno(client.set_size(capability, 6))),
        ("adopt", errno(client.adopt(capability, 9))),
        ("list", errno(client.read_open_dir(dir, 0))),
        ("lock", errno(client.lock(capability, owner, BYTES, LockKind::Exclusive, false))),
        ("lock the file", errno(client.lock(capability, owner, LockRange::Whole, LockKind::Shared, false))),
        ("ask", errno(client.lock_in_the_way(capability, owner, BYTES, LockKind::Shared))),
        ("unlock for the open file", errno(client.unlock(capability, LockOwner::File(9), BYTES))),
        ("map", errno(client.take_mapping(capability, true)).filter(|errno| *errno != Errno::STALE)),
    ];
    // What a session has locked it may always give up.
    [BYTES, LockRange::Whole].iter().for_each(|range| client.unlock(capability, owner, *range).unwrap());
    outcomes
}

#[test]
fn a_capability_is_its_holders_alone_until_it_is_delegated() {
    if !can_be_others() {
        return;
    }
    let mut running = start(|_| {});
    let Private { alice, dir, file, .. } = Private::new(&running);
    let mallory = running.client_of(MALLORY);
    let listed = alice.open(dir, b"", &to_read()).unwrap().capability;
    let leaked = used(&mallory, &file, &listed);
    assert!(leaked.iter().all(all(Some(Errno::ACCESS))), "{leaked:?}");
    let claimed = OpenFile { capability: Capability { holder: MALLORY, ..file.capability }, ..file.clone() };
    let forged = used(&mallory, &claimed, &Capability { holder: MALLORY, ..listed });
    let is_refused = |(what, errno): &(&str, Option<Errno>)| *errno == Some(Errno::STALE) || *what == "map";
    assert!(forged.iter().all(is_refused), "{forged:?}");
    assert_eq!(errno(mallory.delegate(&file.capability, MALLORY)), Some(Errno::ACCESS));

    // An open file stays what it was, whatever becomes of its permissions and of the server.
    let none = Change { mode: Some(0), ..Change::default() };
    alice.set_attr(file.capability, b"", true, &none).unwrap();
    assert_eq!(errno(alice.open(dir, b"shown", &to_read())), Some(Errno::ACCESS));
    let own = used(&alice, &file, &listed);
    assert!(own.iter().all(all(None)), "{own:?}");
    running.restart();
    let own = as_user(ALICE, || used(&alice, &file, &listed));
    assert!(own.iter().all(all(None)), "{own:?}");

    // A program that becomes another user takes its files along.
    let given = as_user(ALICE, || [&file.capability, &listed].map(|own| alice.delegate(own, MALLORY).unwrap()));
    assert_eq!(given.map(|c| c.holder), [MALLORY; 2]);
    let taken = OpenFile { capability: given[0], ..file.clone() };
    let used = as_user(MALLORY, || used(&mallory, &taken, &given[1]));
    assert!(used.iter().all(all(None)), "{used:?}");
    let [trusted, _] = running.clients().try_into().ok().unwrap();
    assert_eq!(trusted.read_at(&file, 0, &mut [0; 6]).unwrap(), 6, "who could read the disk");
}

#[test]
fn locks_and_syncs_need_the_access_that_they_need_on_linux() {
    if !can_be_others() {
        return;
    }
    let running = start(|_| {});
    let (alice, mallory) = (running.client_of(ALICE), running.client_of(MALLORY));
    let opened = |access| alice.open(Ino::ROOT, b"f", &OpenHow { access, ..create_0600() }).unwrap();
    let (both, read, write) = (opened(READ_WRITE), opened(access::READ), opened(access::WRITE));
    let owner = LockOwner::Process(0);
    let lock = |client: &Client, file: &OpenFile, range, kind| {
        let outcome = errno(client.lock(&file.capability, owner, range, kind, false));
        client.unlock(&file.capability, owner, range).unwrap();
        outcome
    };
    for kind in [LockKind::Shared, LockKind::Exclusive] {
        let other = if kind == LockKind::Shared { (&read, &write) } else { (&write, &read) };
        assert_eq!(lock(&alice, &both, BYTES, kind), None);
        assert_eq!(lock(&alice, other.0, BYTES, kind), None);
        assert_eq!(lock(&alice, other.1, BYTES, kind), Some(Errno::BADF));
        for file in [&both, &read, &write] {
            assert_eq!(lock(&alice, file, LockRange::Whole, kind), None);
        }
    }
    assert_eq!(errno(alice.sync(&read, false)), None);

    // Anybody may open a file for its path: that locks nothing, and puts nothing on stable storage.
    let named = mallory.open(Ino::ROOT, b"f", &by_path_only()).unwrap();
    for range in [BYTES, LockRange::Whole] {
        for kind in [LockKind::Shared, LockKind::Exclusive] {
            assert_eq!(lock(&mallory, &named, range, kind), Some(Errno::BADF));
        }
    }
    assert_eq!(errno(mallory.lock_in_the_way(&named.capability, owner, BYTES, LockKind::Shared)), Some(Errno::BADF));
    assert_eq!(errno(mallory.sync(&named, false)), Some(Errno::BADF));
    assert_eq!(errno(mallory.read_at(&named, 0, &mut [0; 1])), Some(Errno::BADF));
}

fn create_0600() -> OpenHow {
    OpenHow { exclusive: false, mode: 0o600, ..create() }
}

#[test]
fn what_others_keep_to_themselves_gets_no_other_name() {
    if !can_be_others() {
        return;
    }
    let running = start(|_| {});
    let (alice, mallory) = (running.client_of(ALICE), running.client_of(MALLORY));
    alice.open(Ino::ROOT, b"secret", &create_0600()).unwrap();
    let dir = mallory.mkdir(Ino::ROOT, b"d", 0o700).unwrap().capability;
    let link = |client: &Client| errno(client.link(Ino::ROOT, b"secret", false, dir, b"kept"));
    assert_eq!(link(&mallory), Some(Errno::PERM));
    let opened = mallory.open(Ino::ROOT, b"secret", &by_path_only()).unwrap();
    assert_eq!(errno(mallory.link(opened.capability, b"", false, dir, b"kept")), Some(Errno::PERM));
    let [trusted, _] = running.clients().try_into().ok().unwrap();
    assert_eq!(errno(trusted.link(Ino::ROOT, b"secret", false, Ino::ROOT, b"another")), None, "of the superuser");
    assert_eq!(errno(alice.link(Ino::ROOT, b"secret", false, Ino::ROOT, b"own")), None);
}

#[test]
fn the_locks_of_one_user_leave_others_theirs() {
    if !can_be_others() {
        return;
    }
    let running = start(|_| {});
    let (alice, mallory) = (running.client_of(ALICE), running.client_of(MALLORY));
    let shared = alice.open(Ino::ROOT, b"f", &create()).unwrap();
    let read = mallory.open(Ino::ROOT, b"f", &to_read()).unwrap();
    let lock = |client: &Client, file: &OpenFile, start| {
        let range = LockRange::Bytes { start, len: 1 };
        errno(client.lock(&file.capability, LockOwner::Process(0), range, LockKind::Shared, false))
    };
    let refused = (0..20_000).find_map(|n| lock(&mallory, &read, 2 * n));
    assert_eq!(refused, Some(Errno::NOLCK));
    assert_eq!(lock(&alice, &shared, 1 << 30), None);
}

#[test]
fn a_target_is_charged_for_its_own_data_only() {
    let running = start(|config| {
        config.targets = vec![TargetConfig::default(), TargetConfig::default(), TargetConfig::default()];
        config.stripe_count = 2;
        config.stripe_size = Bytes::kib(64);
    });
    let client = &running.clients()[0];
    // Until one begins on the first target: the others follow.
    let file = (0..8u8)
        .map(|n| client.open(Ino::ROOT, &[b'a' + n], &create()).unwrap())
        .find(|file| file.layout.targets[0].0 != 0)
        .unwrap();
    let [first, second] = [file.layout.targets[0].0, file.layout.targets[1].0];
    let other = (0..3).find(|target| ![first, second].contains(target)).unwrap();
    let identity = Identity { client: 7, ..Identity::default() };
    let mut channel = Channel::open(&running.addresses[0], &identity, Deadline::after(Nanos::from_secs(20))).unwrap();
    let mut ask = |op, offset, len, target, flags| {
        let header =
            RequestHeader { offset, len, target, flags, ..RequestHeader::with_capability(op, &file.capability) };
        let slot = channel.send(&header).unwrap();
        channel.wait(slot, Nanos::from_secs(20), Manner::default()).unwrap().errno
    };
    const STALE: u32 = Errno::STALE.raw_os_error() as u32;
    let kib = |n: u64| n << 10;
    for op in [Op::Read, Op::Write] {
        assert_eq!(ask(op, 0, 4096, first, 0), 0);
        assert_eq!(ask(op, kib(64), 4096, second, 0), 0);
        for (offset, len, lie) in [(0, 4096, second), (0, 4096, other), (kib(64), 4096, first), (kib(60), 8192, first)]
        {
            assert_eq!(ask(op, offset, len, lie, 0), STALE, "{op:?} of {len} bytes at {offset} on {lie}");
        }
    }
    let append = isonomia_proto::request::flag::APPEND;
    assert_eq!(ask(Op::Write, 0, 4096, first, append), STALE, "its end may lie on the other target");
    for op in [Op::Fsync, Op::ReserveAppend] {
        assert_eq!((ask(op, 0, 1, first, 0), ask(op, 0, 1, second, 0)), (0, 0), "{op:?}");
        assert_eq!(ask(op, 0, 1, other, 0), STALE, "{op:?}");
    }
    assert_eq!(ask(Op::Fsync, 0, 0, isonomia_proto::request::NO_TARGET, 0), STALE, "it has data");

    // What a client of ours does is charged where it is done.
    let served = |target: u16| running.server().status().targets[usize::from(target) + 1].requests_total;
    let before = [first, second, other].map(served);
    client.sync(&file, false).unwrap();
    client.append(&file, b"x").unwrap();
    let after = [first, second, other].map(served);
    assert!(after[0] > before[0] && after[1] > before[1], "{before:?} {after:?}");
    assert_eq!(after[2], before[2], "{before:?} {after:?}");
    let dir = client.open(Ino::ROOT, b"", &to_read()).unwrap();
    client.sync(&dir, false).unwrap();
    assert_eq!([first, second, other].map(served), after, "a directory has no data");
}

#[test]
fn one_session_has_as_many_references_as_it_may_have() {
    if !can_be_others() {
        return;
    }
    let running = start(|_| {});
    let (mallory, again) = (running.client_of(MALLORY), running.client_of(MALLORY));
    let file = mallory.open(Ino::ROOT, b"f", &create()).unwrap();
    let refused = (0..100_000).map(|_| errno(mallory.adopt(&file.capability, 1))).position(|errno| errno.is_some());
    assert_eq!(refused, Some(65_535), "with the open");
    assert_eq!(errno(mallory.open(Ino::ROOT, b"f", &to_read())), Some(Errno::MFILE));
    assert_eq!(errno(again.open(Ino::ROOT, b"f", &to_read())), None);
    mallory.release(Ino(file.attr.ino), 1).unwrap();
    assert_eq!(errno(mallory.open(Ino::ROOT, b"f", &to_read())), None);
}
