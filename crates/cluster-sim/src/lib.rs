//! Whole clusters from a seed, in virtual time.
//!
//! The servers are the state machines of [`isonomia_cluster`], as a live server drives them, for volumes, cuts, removals and
//! policies; directories, disks, network, clocks and clients are simulated. How stripes are written and read, and sizes told, is a
//! model of what clients and stores do, written anew (`files`). Whatever is left to chance comes from the seed, so a seed is a
//! story that can be told again: clients do operations on a few names while things break (`faults`); then everything is put
//! right, and after ten seconds the cluster has to have come to rest.
//!
//! What is checked, in `checks` and `linear`:
//! * the answers that clients got are those of one file system that does one operation after the other (`model`), whatever was
//!   cut off: nothing acknowledged is lost or undone;
//! * at each moment, no name on stable storage points to a volume that is not there;
//! * no volume has the number of another one, none comes twice, no number is used again before its time;
//! * every request that a process gets is answered in time, once;
//! * files whose bytes are on several servers are, each, what one process on one host would see, and no object is left over;
//! * what was synced of a file is there, though hosts lost power (`fsyncs`);
//! * a volume that moved has all that was acknowledged in it, and is there once;
//! * a policy that was set is followed by all, and by a server that starts before it serves;
//! * nothing is done because of a message of an older epoch;
//! * in the end all know the same, nothing is left to do, and every directory has its entry.
//!
//! That these checks find what they are for is shown with clusters that are built wrong ([`doubles`]).

mod checks;
mod client;
pub mod doubles;
mod driving;
mod faults;
mod file_model;
mod file_stores;
mod files;
mod fsyncs;
mod host;
mod linear;
mod model;
mod moves;
mod network;
mod policies;
mod world;

use crate::client::{Client, NAMES};
use crate::doubles::Double;
use crate::file_model::{File, FileAsked};
use crate::files::FileClient;
use crate::linear::{Operation, Verdict};
use crate::model::Asked;
use crate::world::{Event, ROOT, World};
use isonomia_cluster::node::View;
use isonomia_cluster::objects::ObjectsId;
use isonomia_units::{Nanos, ServerId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// How long things break.
const TROUBLE: Nanos = Nanos::from_secs(20);
/// How long a cluster may take to come to rest after everything was put right.
const REST: Nanos = Nanos::from_secs(10);
/// Operations of one client.
const OPERATIONS_EACH: u32 = 14;
/// Operations of one client of files.
const FILE_OPERATIONS_EACH: u32 = 25;

/// What came of one seed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What must not be, and was.
    pub violations: Vec<String>,
    /// Whether the history was too much to search.
    pub is_undecided: bool,
    /// Operations of clients, and how many of them had no answer.
    pub operations: (usize, usize),
    /// What happened, if that was wanted.
    pub trace: Vec<String>,
}

/// Runs the story of `seed` for a cluster that is built as `double` says.
pub fn run(seed: u64, double: Double, trace: bool) -> Report {
    let mut world = World::new(Pcg64::seed_from_u64(seed), double, trace);
    let servers = (1..=world.rng.random_range(1..=4)).map(ServerId).collect();
    world.views.insert(1, View { epoch: 1, root: ROOT, servers });
    for server in world.servers() {
        world.directories.insert(server, crate::host::Directory { epoch: 1, ..Default::default() });
        world.start(server);
    }
    world.names = world.rng.random_range(1..=NAMES);
    let end = world.now + TROUBLE;
    world.clients_end = end;
    world.files.loses_power = world.rng.random_bool(0.25);
    world.files.layout = world.servers().into_iter().collect();
    let (volumes, files) = [(4, 0), (4, 0), (0, 3), (2, 2)][world.rng.random_range(0..4)];
    // What a stop left behind between the first write and the record of the file.
    let lost = ObjectsId { number: 1 << 40, generation: 9 };
    for directory in world.directories.values_mut().take(files) {
        directory.objects.objects.insert((lost, 0), Default::default());
    }
    for client in 0..files {
        world.files.clients.push(FileClient::new(FILE_OPERATIONS_EACH));
        world.at(world.now, Event::FileClient(client));
    }
    for client in 0..world.rng.random_range(0..=volumes) {
        world.clients.push(Client { left: OPERATIONS_EACH, ..Client::default() });
        let at = world.now + Nanos::from_millis(1);
        world.at(at, Event::Client(client));
    }
    if world.rng.random_bool(0.3) {
        world.at(world.now, Event::SetsPolicy);
    }
    world.plan(end);
    world.run_until(end);
    world.heal();
    world.run_until(end + REST);
    if world.violations.is_empty() {
        world.check_rest();
        world.check_files_rest();
        world.check_policies_rest();
    }
    look_at_everything(&mut world);
    look_at_files(&mut world);
    let mut report = Report {
        operations: (
            world.history.len(),
            world.history.iter().filter(|operation| operation.returned.is_none()).count(),
        ),
        ..Report::default()
    };
    if world.violations.is_empty() {
        // What has no answer and changes nothing says nothing.
        world.history.retain(|operation| operation.returned.is_some() || !client::may_repeat(&operation.asked));
        match linear::check(model::Root::default(), &world.history) {
            Verdict::Linearizable => {}
            Verdict::Undecided => report.is_undecided = true,
            Verdict::Not(longest) => {
                let all = world.history.len();
                world.violate(format!("no order of the {all} operations gives these answers; {longest} fit at most"));
                for operation in world.history.clone() {
                    world.note(|| format!("{operation:?}"));
                }
            }
        }
    }
    for file in 0..files::FILES {
        let of_file = |(name, operation): &(u8, _)| (*name == file).then(|| Operation::clone(operation));
        let mut history: Vec<Operation<FileAsked, _>> = world.files.history.iter().filter_map(of_file).collect();
        history.retain(|operation| {
            operation.returned.is_some() || !matches!(operation.asked, FileAsked::Read(_) | FileAsked::Size)
        });
        if !world.violations.is_empty() {
            continue;
        }
        if !world.files.power_losses.is_empty() {
            if let Some(what) = fsyncs::check(&history, &world.files.power_losses) {
                world.violate(format!("file {file}: {what}"));
            }
            continue;
        }
        match linear::check(File::default(), &history) {
            Verdict::Linearizable => {}
            Verdict::Undecided => report.is_undecided = true,
            Verdict::Not(longest) => {
                let all = history.len();
                world.violate(format!(
                    "no order of the {all} operations of file {file} gives these answers; {longest} fit"
                ));
                for operation in history {
                    world.note(|| format!("{operation:?}"));
                }
            }
        }
    }
    report.violations = world.violations;
    report.trace = world.trace.unwrap_or_default();
    report
}

/// Looks up each name at each server, one after the other: part of the history.
fn look_at_everything(world: &mut World) {
    world.clients.push(Client::default());
    let observer = world.clients.len() - 1;
    for server in world.servers() {
        for name in 0..NAMES {
            world.begin(observer, Asked::LookUp(name), server);
            let mut looks = 0;
            while world.clients[observer].current.is_some() && world.violations.is_empty() && looks < 100 {
                let next = world.now + Nanos::from_millis(50);
                world.run_until(next);
                looks += 1;
            }
            let returned = world.history.last().is_some_and(|operation| operation.returned.is_some());
            if !returned && world.violations.is_empty() {
                world.violate(format!("server {server} does not answer though everything was put right"));
            }
        }
    }
}

/// Looks at each file's size and blocks: part of the history.
fn look_at_files(world: &mut World) {
    if world.files.clients.is_empty() || !world.violations.is_empty() {
        return;
    }
    world.files.clients.push(FileClient::default());
    let observer = world.files.clients.len() - 1;
    for file in 0..files::FILES {
        for asked in (0..files::BLOCKS).map(FileAsked::Read).chain([FileAsked::Size]) {
            world.file_begin(observer, file, asked);
            for _ in 0..100 {
                if !world.file_client_rests(observer) && world.violations.is_empty() {
                    let next = world.now + Nanos::from_millis(50);
                    world.run_until(next);
                }
            }
            let is_answered = world.files.history.last().is_some_and(|(_, operation)| operation.returned.is_some());
            if !is_answered && world.violations.is_empty() {
                world.violate(format!("file {file} is not answered for though everything was put right"));
            }
        }
    }
}
