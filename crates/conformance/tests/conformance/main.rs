//! Random operations by several people, done on tmpfs, through the client library, below the preload client's prefix,
//! and in a mount: every outcome must be the model's, on one server and where each file is on three. What proptest finds it
//! shrinks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod drawn;
mod remote;

use drawn::{Bits, deeds};
use isonomia_client::{Claims, Client, ClientConfig, Principal};
use isonomia_conformance::library::Library;
use isonomia_conformance::model::{Model, Person};
use isonomia_conformance::{Actor, Operation, Outcome};
use isonomia_proto::striping::XATTR;
use isonomia_testbed::{PREFIX, STRIPED, TestServer, built, is_root_to, others_reach_the_build, skip, why_no_mount};
use isonomia_units::Nanos;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use remote::Remote;
use rustix::process::{getegid, geteuid, getgroups};
use std::cell::{Cell, RefCell};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Directories around the one where operations are done, so that paths that climb stay among equals.
const NEST: &str = "u/v/w/x/y/z";
const UMASK: u32 = 0o022;

/// Whoever runs this.
fn oneself() -> Person {
    let groups = getgroups().unwrap().into_iter().map(|gid| gid.as_raw()).collect::<Vec<_>>();
    Person { uid: geteuid().as_raw(), gid: getegid().as_raw(), groups: groups.leak() }
}

/// Whether this kernel adds something to POSIX to protect its users, as `proc_sys_fs(5)` says. Servers do so with hard links
/// only, and always.
fn kernel_protects(what: &str) -> bool {
    let value = std::fs::read_to_string(format!("/proc/sys/fs/protected_{what}"));
    value.is_ok_and(|value| value.trim() != "0")
}

/// A way to files: somebody for each of the people, and where all of them find the directories of the cases.
struct Way {
    name: &'static str,
    actors: Vec<Box<dyn Actor>>,
    root: String,
}

impl Way {
    fn new(
        name: &'static str,
        root: &Path,
        people: &[Person],
        actor_of: impl FnMut(&Person) -> Box<dyn Actor>,
    ) -> Self {
        let root = root.to_str().unwrap().to_owned();
        Self { name, actors: people.iter().map(actor_of).collect(), root }
    }

    /// Makes a directory that everybody may use, and has everybody go there.
    fn begin(&mut self, case: &str) -> Result<(), TestCaseError> {
        self.actors[0].begin(&self.root);
        let mut dir = case.to_owned();
        for part in std::iter::once("").chain(NEST.split('/')) {
            dir = if part.is_empty() { dir } else { format!("{dir}/{part}") };
            // The umask takes something of the mode away.
            for prepared in
                [Operation::Mkdir { path: dir.clone(), mode: 0 }, Operation::Chmod { path: dir.clone(), mode: 0o777 }]
            {
                prop_assert_eq!(self.actors[0].act(&prepared), Outcome::Done, "{}: {:?}", self.name, prepared);
            }
        }
        for actor in &mut self.actors {
            actor.begin(&format!("{}/{dir}", self.root));
        }
        Ok(())
    }
}

/// A process of somebody's.
fn process(command: Command, who: &Person) -> Box<dyn Actor> {
    let mut command = command;
    if who.uid != geteuid().as_raw() {
        let groups = who.groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let arguments = [format!("--reuid={}", who.uid), format!("--regid={}", who.gid), format!("--groups={groups}")];
        let mut changed = Command::new("setpriv");
        changed.args(arguments).arg(command.get_program());
        changed.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command = changed;
    }
    Box::new(Remote::start(command))
}

fn library(address: &str, who: &Person) -> Box<dyn Actor> {
    let principal = Principal { uid: who.uid, gid: who.gid, groups: who.groups.to_vec() };
    let is_another = who.uid != geteuid().as_raw();
    let claims = Claims { on_behalf_of: is_another.then_some(principal), ..Claims::default() };
    let config = ClientConfig {
        addresses: vec![address.parse().unwrap()],
        timeout: Nanos::from_secs(60),
        claims,
        key_file: None,
    };
    Box::new(Library::new(Arc::new(Client::new(config)), UMASK))
}

/// A striped directory or file has one extended attribute more, which says so.
fn but_for_layout(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Names(names) => Outcome::Names(names.into_iter().filter(|name| name.as_bytes() != XATTR).collect()),
        other => other,
    }
}

fn model(people: &[Person]) -> Way {
    let mut processes = Model::processes(people, UMASK).into_iter();
    Way::new("model", Path::new(""), people, |_| Box::new(processes.next().unwrap()))
}

#[test]
fn all_ways_are_the_model_for_one() {
    all_ways_are_the_model(&[oneself()], "", None);
}

#[test]
fn striped_over_three_servers_all_ways_are_the_model_for_one() {
    all_ways_are_the_model(&[oneself()], "", Some(3));
}

/// As root only: the superuser, and two users with a group in common.
#[test]
fn all_ways_are_the_model_for_several() {
    for_several(None);
}

#[test]
fn striped_over_three_servers_all_ways_are_the_model_for_several() {
    for_several(Some(3));
}

fn for_several(servers: Option<u16>) {
    let superuser = oneself();
    if !is_root_to("become others") || !others_reach_the_build() {
        return;
    }
    let member = |id| Person { uid: id, gid: id, groups: &[777] };
    all_ways_are_the_model(&[superuser, member(12_345), member(12_346)], "allow_other", servers);
}

/// Checks it for these people, of whom the first one makes the others' directories; with files striped over so many servers.
fn all_ways_are_the_model(people: &[Person], mount_words: &str, servers: Option<u16>) {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(UMASK));
    let server = servers.map_or_else(TestServer::start, TestServer::start_striped);
    // Where the ways' directories are.
    let below = |root: &Path| servers.map_or(root.to_owned(), |_| root.join(STRIPED));
    let tmpfs = tempfile::tempdir_in("/dev/shm").unwrap();
    // Everybody passes through here.
    std::fs::set_permissions(tmpfs.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let actor = built("isonomia-conformance-actor");
    let actor = actor.to_str().unwrap();
    let mut ways = vec![
        Way::new("tmpfs", tmpfs.path(), people, |who| process(Command::new(actor), who)),
        Way::new("library", &below(Path::new("")), people, |who| library(&server.address(), who)),
        Way::new("preload", &below(Path::new(PREFIX)), people, |who| process(server.command(actor), who)),
    ];
    let no_mount = why_no_mount();
    let mount = no_mount.is_none().then(|| server.mount(mount_words));
    if let Some(mount) = &mount {
        ways.push(Way::new("mount", &below(mount.path()), people, |who| process(Command::new(actor), who)));
    }
    let sticky = !["symlinks", "regular"].into_iter().any(kernel_protects);
    let bits = Bits { sticky, sockets: !sticky || people.len() == 1 };
    let links_of_all = kernel_protects("hardlinks");
    let (ways, number) = (RefCell::new(ways), Cell::new(0));
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(150);
    let mut runner =
        TestRunner::new(Config { cases, max_shrink_iters: 2_000, failure_persistence: None, ..Config::default() });
    let result = runner.run(&deeds(people, bits), |deeds| {
        number.set(number.get() + 1);
        let mut ways = ways.borrow_mut();
        let mut model = model(people);
        for way in ways.iter_mut().chain([&mut model]) {
            // Each way has a tree of its own, in the same directory.
            way.begin(&format!("case-{}-{}", number.get(), way.name))?;
        }
        for (at, (who, operation)) in deeds.iter().enumerate() {
            let who = if matches!(operation, Operation::Link { .. }) && !links_of_all { 0 } else { *who };
            let expected = model.actors[who].act(operation);
            for way in ways.iter_mut() {
                let outcome = but_for_layout(way.actors[who].act(operation));
                let doer = people[who].uid;
                prop_assert_eq!(&outcome, &expected, "{}, {}: {} does {:?}", way.name, at, doer, operation);
            }
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    if let Some(reason) = no_mount {
        skip(&format!("all ways but the mount were compared: {reason}"));
    }
}
