//! Random operations, done by actors on tmpfs, through the client library, below the preload client's prefix, and in a
//! mount: every outcome must be the same. What proptest finds it shrinks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_client::{Claims, Client, ClientConfig};
use isonomia_conformance::clib::CLibrary;
use isonomia_conformance::library::Library;
use isonomia_conformance::{Action, Actor, OpenHow, Operation, Outcome, RenameHow, SLOTS};
use isonomia_testbed::{PREFIX, TestServer, built, can_mount};
use isonomia_units::Nanos;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

/// Directories around the one where operations are done, so that paths that climb stay among equals.
const NEST: &str = "x/y/z";
const UMASK: u32 = 0o022;

/// An actor in a process of its own.
struct Remote {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Remote {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, input, output }
    }

    fn ask(&mut self, action: &Action) -> Outcome {
        writeln!(self.input, "{}", serde_json::to_string(action).unwrap()).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

impl Actor for Remote {
    fn begin(&mut self, root: &str) {
        self.ask(&Action::Begin(root.to_owned()));
    }

    fn act(&mut self, operation: &Operation) -> Outcome {
        self.ask(&Action::Do(operation.clone()))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn path() -> impl Strategy<Value = String> {
    let component = prop_oneof![
        20 => prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned),
        1 => Just(".".to_owned()),
        1 => Just("..".to_owned()),
        1 => prop::sample::select(vec![255usize, 256]).prop_map(|n| "n".repeat(n)),
    ];
    (prop::collection::vec(component, 1..4), prop::bool::weighted(0.07))
        .prop_map(|(parts, slash)| parts.join("/") + if slash { "/" } else { "" })
}

/// Without set-id bits: a server clears them at every write, Linux leaves root's.
fn mode() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![0o777u32, 0o755, 0o600, 0o644, 0o000, 0o1777])
}

fn directory_mode() -> impl Strategy<Value = u32> {
    prop_oneof![3 => mode(), 1 => prop::sample::select(vec![0o2775u32, 0o4755])]
}

fn open() -> impl Strategy<Value = Operation> {
    let flags = prop::collection::vec(prop::bool::weighted(0.25), 5);
    (path(), 0..SLOTS, any::<(bool, bool, bool)>(), flags, mode()).prop_map(
        |(path, slot, (read, write, create), flags, mode)| {
            let how = OpenHow {
                read: read || !write,
                write,
                create,
                append: flags[0] && write,
                exclusive: flags[1] && create,
                truncate: flags[2] && write,
                no_follow: flags[3],
                directory: flags[4] && !create,
                mode,
            };
            Operation::Open { slot, path, how }
        },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::{
        Chmod, Close, Link, List, Mkdir, Read, ReadAt, Readlink, Rename, Resize, Rmdir, Seek, SeekEnd, Stat, StatSlot,
        Symlink, Sync, Times, Truncate, Unlink, Write, WriteAt,
    };
    let slot = 0..SLOTS;
    let offset = prop_oneof![4 => 0u64..40_000, 1 => Just(4096), 1 => Just(1 << 33)];
    let size = prop_oneof![4 => 0u64..40_000, 1 => Just(0), 1 => Just(1 << 40)];
    let how = prop::sample::select(vec![RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange]);
    prop_oneof![
        8 => open(),
        1 => slot.clone().prop_map(|slot| Close { slot }),
        3 => (slot.clone(), 0usize..50_000).prop_map(|(slot, len)| Read { slot, len }),
        4 => (slot.clone(), 0usize..20_000, any::<u8>()).prop_map(|(slot, len, fill)| Write { slot, len, fill }),
        2 => (slot.clone(), offset.clone(), 0usize..50_000).prop_map(|(slot, offset, len)| ReadAt { slot, offset, len }),
        2 => (slot.clone(), offset.clone(), 0usize..20_000, any::<u8>())
            .prop_map(|(slot, offset, len, fill)| WriteAt { slot, offset, len, fill }),
        2 => (slot.clone(), offset).prop_map(|(slot, to)| Seek { slot, to }),
        1 => slot.clone().prop_map(|slot| SeekEnd { slot }),
        2 => (slot.clone(), size.clone()).prop_map(|(slot, size)| Resize { slot, size }),
        1 => (path(), size).prop_map(|(path, size)| Truncate { path, size }),
        1 => slot.clone().prop_map(|slot| Sync { slot }),
        1 => slot.prop_map(|slot| StatSlot { slot }),
        3 => (path(), any::<bool>()).prop_map(|(path, follow)| Stat { path, follow }),
        5 => (path(), directory_mode()).prop_map(|(path, mode)| Mkdir { path, mode }),
        2 => path().prop_map(|path| Rmdir { path }),
        3 => path().prop_map(|path| Unlink { path }),
        5 => (path(), path(), how).prop_map(|(path, to, how)| Rename { path, to, how }),
        2 => (path(), path()).prop_map(|(path, to)| Link { path, to }),
        2 => (path(), path()).prop_map(|(text, path)| Symlink { text, path }),
        1 => path().prop_map(|path| Readlink { path }),
        2 => path().prop_map(|path| List { path }),
        1 => (path(), mode()).prop_map(|(path, mode)| Chmod { path, mode }),
        1 => (path(), 1i64..900_000_000).prop_map(|(path, secs)| Times { path, secs }),
    ]
}

/// A way to files, and where its actor finds the directories that all have.
struct Way {
    name: &'static str,
    actor: Box<dyn Actor>,
    root: String,
}

#[test]
fn all_ways_are_tmpfs() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(UMASK));
    let server = TestServer::start();
    let mount = can_mount().then(|| server.mount(""));
    let tmpfs = tempfile::tempdir_in("/dev/shm").unwrap();
    let client = Client::new(ClientConfig {
        address: server.address().parse().unwrap(),
        timeout: Nanos::from_secs(60),
        claims: Claims::default(),
        key_file: None,
    });
    let client = Arc::new(client);
    let actor = built("isonomia-conformance-actor");
    let preloaded = server.command(actor.to_str().unwrap());
    let reference = tmpfs.path().to_str().unwrap().to_owned();
    let mut ways = vec![
        Way { name: "tmpfs", actor: Box::new(CLibrary::default()), root: reference.clone() },
        Way { name: "library", actor: Box::new(Library::new(Arc::clone(&client), UMASK)), root: String::new() },
        Way { name: "preload", actor: Box::new(Remote::start(preloaded)), root: PREFIX.to_owned() },
    ];
    if let Some(mount) = &mount {
        let root = mount.path().to_str().unwrap().to_owned();
        ways.push(Way { name: "mount", actor: Box::new(Remote::start(Command::new(&actor))), root });
    }
    let maker = RefCell::new(CLibrary::default());
    let (ways, number) = (RefCell::new(ways), Cell::new(0));
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(150);
    let mut runner =
        TestRunner::new(Config { cases, max_shrink_iters: 2_000, failure_persistence: None, ..Config::default() });
    let result = runner.run(&prop::collection::vec(operation(), 1..60), |operations| {
        number.set(number.get() + 1);
        let mut ways = ways.borrow_mut();
        let mut maker = maker.borrow_mut();
        for way in ways.iter_mut() {
            // Each way has a tree of its own: a directory of the server's for each, in the same place.
            let mut dir = format!("case-{}-{}", number.get(), way.name);
            for part in std::iter::once("").chain(NEST.split('/')) {
                dir = if part.is_empty() { dir } else { format!("{dir}/{part}") };
                if way.name == "tmpfs" {
                    maker.begin(&reference);
                    prop_assert_eq!(maker.act(&Operation::Mkdir { path: dir.clone(), mode: 0o777 }), Outcome::Done);
                } else {
                    client.mkdir(isonomia_client::Ino::ROOT, dir.as_bytes(), 0o755).unwrap();
                }
            }
            way.actor.begin(&format!("{}/{dir}", way.root));
        }
        for (at, operation) in operations.iter().enumerate() {
            let (tmpfs, others) = ways.split_first_mut().unwrap();
            let expected = tmpfs.actor.act(operation);
            for way in others {
                let outcome = way.actor.act(operation);
                prop_assert_eq!(&outcome, &expected, "{}, operation {}: {:?}", way.name, at, operation);
            }
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
