//! The server: it admits requests, lets the policy pick, and moves the bytes.
//!
//! * [`acceptor`] accepts connections and decides who they are ([`identity`]) and whether they may ([`usage`]).
//! * [`intake`] takes requests in from connections; [`target`] queues them, one arbiter a target.
//! * [`charge`] says what a request costs. [`write_back`] sees to it that what is acknowledged is soon on the device,
//!   [`read_ahead`] finds streams of reads, and [`pacing`] acts on both.
//! * [`worker`] threads ask whose turn it is and serve ([`execute`]) from the store. The payload of a write
//!   stays with the client until then.
//! * [`segments`] are the memory that stands for files that programs of this host have mapped.
//! * [`scrub`] looks through all objects in the background, as a job among others.
//! * [`sessions`] is the one table of client processes: what each has, and its end. [`mod@proof`] is what a request has to show.
//! * [`jobs`] and [`status`] tell operators who got what; [`operator`] lets them set the policy; [`control`] is the
//!   thread that they talk with.
//!
//! Memory is bounded ([`limits`]): what clients share with the server is counted for each user, a stream's payload waits
//! in the socket, at most a fixed number of streams may stall in the middle of one, and every queue has a limit.

mod acceptor;
mod advice;
mod backup;
mod caretaker;
mod changes;
mod charge;
mod clock;
mod cluster;
mod cluster_config;
mod config;
mod connection;
mod control;
mod core;
mod cut_off;
mod debts;
mod declared;
mod directory_check;
mod engine;
mod execute;
mod fetch;
mod fetches;
mod first_writes;
#[doc(hidden)]
pub mod from_peers;
mod histories;
mod holders;
mod identity;
mod inquiries;
mod intake;
mod jobs;
mod keeper;
mod limits;
mod listen;
mod lock;
mod locks;
mod mapping;
mod mappings;
mod munge;
mod names;
mod operation;
mod operator;
pub mod outside;
mod ownership;
mod pacing;
mod page_cache;
mod pages;
mod pending;
mod phases;
mod pools;
mod prefixes;
mod prices;
mod processors;
mod proof;
mod rates;
mod read_ahead;
mod recorder;
mod references;
mod refusal;
mod rejections;
mod release_queue;
mod requests;
mod scrub;
mod segment;
mod segment_home;
mod segments;
mod service;
mod sessions;
mod shadow;
mod short_reads;
mod stalls;
mod start_error;
mod status;
mod stopping;
mod stream;
mod substitutes;
mod target;
mod temporary;
#[cfg(test)]
mod testing;
mod unfinished;
mod unsynced;
mod usage;
mod worker;
mod write_back;

pub use cluster::CLOCKS_APART_SECS_MAX;
pub use cluster_config::{ClusterConfig, read_cluster_file, usable_cluster_file};
pub use config::{CgroupConfig, Config, ConfigError, TargetConfig};
pub use directory_check::BadDirectory;
pub use isonomia_store::{Fence, Loss};
pub use limits::LimitsConfig;
pub use listen::ListenError;
pub use page_cache::{PageCache, ParsePageCacheError};
pub use scrub::period::{ParseScrubPeriodError, ScrubPeriod};
pub use start_error::StartError;

use crate::acceptor::{Acceptor, Terms};
use crate::cluster::{Cluster, Commander, Driver, Exchanger, Publisher};
use crate::control::Control;
use crate::core::Core;
use crate::jobs::Jobs;
use crate::limits::Limits;
use crate::munge::Library;
use crate::names::LookUp;
use crate::outside::{Outside, OutsideError};
use crate::ownership::Owner;
use crate::pending::Proof;
use crate::phases::Phases;
use crate::read_ahead::ReadAhead;
use crate::recorder::Record;
use crate::scrub::Scrub;
use crate::status::About;
use crate::target::{Policy, Target};
use crate::write_back::WriteBack;
use isonomia_policy::DepthSpec;
use isonomia_proto::control::Status;
use isonomia_proto::setup::{Auth, SERVER_NAME_LEN_MAX};
use isonomia_store::{DefaultLayout, Ownership, Store, StoreConfig, TargetDir};
use isonomia_transport::address::Address;
use isonomia_transport::handshake::Protection;
use isonomia_transport::key::Key;
use isonomia_units::TargetId;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The directory of the metadata, below the server's.
pub const METADATA: &str = "metadata";
/// Targets of one server at most.
const TARGETS_MAX: usize = 1_024;
/// Worker threads at most.
const WORKERS_MAX: usize = 256;

/// A running server.
pub struct Server {
    core: Arc<Core>,
    about: Arc<About>,
    addresses: Vec<Address>,
    dir: PathBuf,
    is_temporary: bool,
    threads: Vec<JoinHandle<()>>,
    /// Who keeps the directory this process's, until all is written.
    _owner: Option<Owner>,
    /// It is complete when this is dropped.
    _record: Option<Record>,
}

impl Server {
    /// Starts a server; it runs on threads of its own until [`Self::shutdown`].
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, names::look_up)
    }

    /// The same with names of users and groups from elsewhere.
    fn start_with(config: Config, look_up: impl LookUp) -> Result<Self, StartError> {
        let (dir, is_temporary) = match &config.dir {
            Some(dir) => {
                temporary::keep(dir);
                (dir.clone(), false)
            }
            None => (temporary::create()?, true),
        };
        let result = Self::start_in(&config, &dir, is_temporary, look_up);
        if result.is_err() && is_temporary {
            temporary::remove(&dir);
        }
        result
    }

    fn start_in(config: &Config, dir: &Path, is_temporary: bool, look_up: impl LookUp) -> Result<Self, StartError> {
        if config.cluster.is_none() {
            operator::check_alone(&config.policy).map_err(StartError::Config)?;
        }
        let record = config.record_decisions.as_deref().map(Record::create).transpose();
        let record = record.map_err(|error| StartError::System { what: "cannot record decisions", error })?;
        let journal = record.as_ref().map(Record::journal);
        let (spec, phases) = (config.policy.clone(), Phases::default());
        let io_node = phases.begin(&spec, None);
        let fair_clock = config.fair_clock;
        let policy = Policy { spec, draw: config.draw, seed: config.seed, journal, io_node, fair_clock };
        let workers = config.workers.map_or_else(default_workers, |n| n as usize).clamp(1, WORKERS_MAX);
        let descriptors = limits::raise_descriptors();
        let ownership = config.cluster.as_ref().map(ClusterConfig::ownership);
        let owner = ownership.as_ref().map(Owner::start).transpose();
        let owner = owner.map_err(|error| StartError::System { what: "cannot start a thread", error })?;
        let (store, targets, limits) = open_store(config, dir, ownership, &policy, workers, descriptors)?;
        let (proof, terms) = proof(config)?;
        if config.listen.is_empty() {
            return Err(StartError::Config("no address to listen on".to_owned()));
        }
        let addresses_wanted = config.listen.len();
        if addresses_wanted as u64 > acceptor::LISTENERS_MAX {
            let text = format!("{addresses_wanted} addresses to listen on, {} at most", acceptor::LISTENERS_MAX);
            return Err(StartError::Config(text));
        }
        let (mut listeners, mut elsewhere) = (Vec::new(), None);
        let mut addresses = Vec::new();
        for address in &config.listen {
            match listen::open(address, proof.as_ref()) {
                Ok((listener, address)) => {
                    listeners.push(listener);
                    addresses.push(address);
                }
                // That of another host on which this server may run.
                Err(error) if config.cluster.is_some() && error.is_of_another_host() => {
                    tracing::info!(%address, "not an address of this host");
                    elsewhere = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if let (true, Some(error)) = (listeners.is_empty(), elsewhere) {
            return Err(error.into());
        }
        let system = |what| move |errno: rustix::io::Errno| StartError::System { what, error: errno.into() };
        let jobs = Jobs::new(limits.jobs, limits.jobs_per_user);
        let scrub =
            Scrub::new(config.scrub, &targets.iter().filter_map(|target| target.id).collect::<Vec<_>>(), clock::now());
        let core = Core::new(store, targets, policy, workers, jobs, scrub);
        let core = core.map_err(system("cannot prepare to wait"))?;
        core.holders
            .load(&core.store)
            .map_err(|error| StartError::Config(format!("who had locks is not to be read: {error}")))?;
        core.segments.lie_beside(&dir.join(METADATA));
        core.histories.load(&dir.join(METADATA), &core.targets);
        segments::serving::adopt(&core);
        let about = Arc::new(About {
            server: config.server.0,
            started_at: clock::now(),
            dir: dir.display().to_string(),
            listen: addresses.iter().map(Address::to_string).collect(),
            trust_clients: config.trust_clients,
        });
        if config.trust_clients {
            tracing::warn!("clients are trusted: what they claim of user, group, size and priority is believed");
        }
        limit_outside(config, dir, &core)?;
        let driver = match &config.cluster {
            None => {
                core.holders.begin(clock::now());
                None
            }
            Some(cluster) => {
                let key = config.cluster_key_file.as_ref().or(config.key_file.as_ref());
                let key = key.map(|path| Key::read(&path.to_string_lossy())).transpose()?;
                let (own, events) = Cluster::new(cluster.clone(), key);
                own.choose_layouts(&core.store);
                // It is set once, before anybody can ask for it.
                let _ = core.cluster.set(own);
                let key_file = config.key_file.as_ref().map(|path| path.display().to_string());
                let protection = Protection {
                    integrity: config.integrity,
                    munge_socket: config.munge_socket.clone(),
                    server_name: None,
                };
                let way = (key_file, protection);
                let publisher = Publisher::new(core.clone(), cluster.clone(), way.clone());
                let driver = Driver::new(core.clone(), cluster.clone(), events, way.clone());
                let driver = driver.map_err(|error| StartError::Config(error.to_string()))?;
                let exchanger = Exchanger::new(core.clone(), cluster.clone(), way.clone(), driver.instance);
                let commander = Commander::new(core.clone(), cluster.clone(), way, driver.instance);
                Some((driver, exchanger, publisher, commander))
            }
        };
        core.prefixes.set(&config.policy.prefixes(), &[]);
        core.rates.begin(&core.targets);
        let control = Control::new(core.clone(), about.clone(), limits.control);
        let control = Arc::new(control.map_err(system("cannot prepare for operators"))?);
        let acceptor = Acceptor::new(core.clone(), about.clone(), control.clone(), limits, (listeners, terms), look_up);
        let mut acceptor = acceptor.map_err(|error| StartError::System { what: "cannot listen", error })?;
        let threads = Vec::new();
        let mut server =
            Self { core, about, addresses, dir: dir.to_owned(), is_temporary, threads, _owner: owner, _record: record };
        for number in 0..workers {
            let core = server.core.clone();
            server.spawn(format!("worker-{number}"), move || worker::run(&core, number))?;
        }
        server.spawn("acceptor".to_owned(), move || acceptor.run())?;
        server.spawn("control".to_owned(), move || control.run())?;
        let core = server.core.clone();
        server.spawn("keeper".to_owned(), move || keeper::run(&core))?;
        let core = server.core.clone();
        server.spawn("caretaker".to_owned(), move || caretaker::run(&core))?;
        let core = server.core.clone();
        server.spawn("settler".to_owned(), move || caretaker::settle(&core))?;
        let core = server.core.clone();
        server.spawn("segments".to_owned(), move || segments::serving::run(&core))?;
        let core = server.core.clone();
        server.spawn("backup".to_owned(), move || backup::run(&core.backups, &core.store, &core.is_stopping))?;
        if let Some((mut driver, mut exchanger, mut publisher, commander)) = driver {
            server.spawn("phases".to_owned(), move || publisher.run())?;
            if let Some(mut commander) = commander {
                server.spawn("controller".to_owned(), move || commander.run())?;
            }
            server.spawn("exchange".to_owned(), move || exchanger.run())?;
            if let Some(mut objects) = driver.objects_worker() {
                server.spawn("objects".to_owned(), move || objects.run())?;
            }
            server.spawn("cluster".to_owned(), move || driver.run())?;
        }
        if server.core.scrub.is_on() {
            let core = server.core.clone();
            server.spawn("scrub".to_owned(), move || scrub::pass::run(&core))?;
        }
        Ok(server)
    }

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let spawned = std::thread::Builder::new().name(name).spawn(body);
        match spawned {
            Ok(handle) => {
                self.threads.push(handle);
                Ok(())
            }
            Err(error) => Err(StartError::System { what: "cannot start a thread", error }),
        }
    }

    /// Where it listens, with the ports that were chosen.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Where its metadata lie.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its state.
    pub fn status(&self) -> Status {
        status::snapshot(&self.core, &self.about)
    }

    /// Something that gives the state to other threads.
    pub fn status_source(&self) -> impl Fn() -> Status + Send + Sync + 'static {
        let (core, about) = (self.core.clone(), self.about.clone());
        move || status::snapshot(&core, &about)
    }

    /// What says whether the directory is still this process's; in a cluster another one may take it over, and the server has
    /// to end then.
    pub fn fence(&self) -> Arc<Fence> {
        self.core.store.fence().clone()
    }

    /// Stops: requests that are being served are finished, everything is on stable storage afterwards.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where the store of a server with `config` lies that is started with the directory `dir`.
pub fn store_config(config: &Config, dir: &Path) -> StoreConfig {
    let defaults = [TargetConfig::default()];
    let wanted = if config.targets.is_empty() { &defaults[..] } else { &config.targets[..] };
    let ids = target_ids(config, wanted.len());
    let dir_of = |(index, target)| TargetDir { id: ids[index], dir: target_dir(target, dir, index) };
    let targets = wanted.iter().enumerate().map(dir_of);
    let mut store = StoreConfig::new(dir.join(METADATA), config.server, targets.collect());
    store.checksums = config.checksums;
    // What is in memory has nothing to go past, and nothing ahead of it.
    let on_device = |cache: PageCache| {
        let is_so = move |(index, target): &(usize, &TargetConfig)| {
            target.cache == cache && !directory_check::is_memory(&target_dir(target, dir, *index))
        };
        wanted.iter().enumerate().filter(is_so).map(|(index, _)| ids[index]).collect()
    };
    store.direct = on_device(PageCache::Never);
    store.direct_on_request = on_device(PageCache::Auto);
    // Here the server reads ahead.
    store.reads_as_asked = on_device(PageCache::Auto);
    store
}

/// The numbers of a server's targets: those of the cluster file, or from 0 on.
fn target_ids(config: &Config, count: usize) -> Vec<TargetId> {
    let ids = config.cluster.as_ref().and_then(|cluster| {
        let map = cluster.map();
        Some(map.server(cluster.number)?.targets.iter().map(|target| target.id).collect::<Vec<_>>())
    });
    ids.filter(|ids| ids.len() == count).unwrap_or_else(|| (0..count as u16).map(TargetId).collect())
}

fn target_dir(target: &TargetConfig, dir: &Path, index: usize) -> PathBuf {
    target.dir.clone().unwrap_or_else(|| dir.join(format!("target-{index}")))
}

/// Removes the limits of control groups that an earlier process of this directory left, and has them set if that is wanted. Only if it
/// is, a failure keeps the server from starting.
fn limit_outside(config: &Config, dir: &Path, core: &Core) -> Result<(), StartError> {
    let refused = |error: OutsideError| StartError::Config(error.to_string());
    let Some(cgroup) = &config.cgroup else {
        match isonomia_cgroup::remove(&outside::record_of(None, dir)) {
            Ok(outcome) if outcome.removed > 0 => {
                tracing::warn!(
                    removed = outcome.removed,
                    "limits of control groups were left by a server that was killed"
                );
            }
            Ok(_) => {}
            // The records are another user's on a host where his server sets limits. This one has none to set.
            Err(error) => tracing::warn!(%error, "cannot look for limits of control groups that were left"),
        }
        return Ok(());
    };
    if config.cluster.is_none() {
        return Err(refused(OutsideError::NoCluster));
    }
    let defaults = [TargetConfig::default()];
    let targets = if config.targets.is_empty() { &defaults[..] } else { &config.targets[..] };
    let targets: Vec<PathBuf> =
        targets.iter().enumerate().map(|(index, target)| target_dir(target, dir, index)).collect();
    let outside = Outside::new(cgroup, dir, &targets).map_err(refused)?;
    // It is set once, before anybody can ask for it.
    let _ = core.outside.set(outside);
    Ok(())
}

fn open_store(
    config: &Config,
    dir: &Path,
    ownership: Option<Ownership>,
    policy: &Policy,
    workers: usize,
    descriptors: u64,
) -> Result<(Store, Vec<Target>, Limits), StartError> {
    let defaults = [TargetConfig::default()];
    let wanted = if config.targets.is_empty() { &defaults[..] } else { &config.targets[..] };
    if wanted.len() > TARGETS_MAX {
        return Err(StartError::Config(format!("{} targets, {TARGETS_MAX} at most", wanted.len())));
    }
    let metadata = Target::new(
        None,
        dir.display().to_string(),
        None,
        config.metadata_per_op,
        policy,
        workers,
        (false, DepthSpec::Auto),
    );
    let mut targets = vec![metadata];
    let ids = target_ids(config, wanted.len());
    let memory_bytes = limits::usable_memory_bytes();
    for (index, target) in wanted.iter().enumerate() {
        let id = ids[index];
        let shown = target_dir(target, dir, index).display().to_string();
        let is_memory = directory_check::is_memory(&target_dir(target, dir, index));
        let device = (is_memory, target.depth);
        let mut made = Target::new(Some(id), shown, target.bandwidth, target.per_op, policy, workers, device);
        made.index = targets.len();
        if let Some(profile) =
            prices::read_profile(target, &target_dir(target, dir, index)).map_err(StartError::Config)?
        {
            made.expect(&profile);
        }
        // What is in memory is nowhere else, and a write to an emulated device takes that one's time.
        made.write_back = (!is_memory && !made.is_capped() && target.cache != PageCache::Always)
            .then(|| WriteBack::new(memory_bytes, target.cache != PageCache::Never));
        made.read_ahead = (!is_memory && target.cache == PageCache::Auto).then(ReadAhead::default);
        targets.push(made);
    }
    let own: Vec<String> = (0..wanted.len()).map(|index| format!("target-{index}")).collect();
    let own: Vec<&str> = own.iter().map(String::as_str).chain([METADATA]).collect();
    let mut store_config = store_config(config, dir);
    store_config.ownership = ownership;
    for dir in [dir].into_iter().chain(store_config.targets.iter().map(|target| target.dir.as_path())) {
        directory_check::check(dir)?;
    }
    isonomia_store::own_directory(dir, &own)?;
    store_config.default_layout =
        DefaultLayout { stripe_bytes: config.stripe_size.0, stripe_count: usize::from(config.stripe_count) };
    store_config.root_owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let objects = limits::open_objects(&config.limits, descriptors, store_config.bounds.objects);
    store_config.bounds.objects = objects.map_err(StartError::Config)?;
    let kept = limits::descriptors_of_store(store_config.bounds.objects, wanted.len(), workers);
    let limits = Limits::settle(&config.limits, descriptors, kept, memory_bytes);
    let limits = limits.map_err(StartError::Config)?;
    let store = Store::open(&store_config)?;
    for target in &mut targets {
        // A write to an emulated device takes that one's time.
        target.takes_direct = !target.is_capped() && target.id.is_some_and(|id| store.objects().takes_direct(id));
    }
    Ok((store, targets, limits))
}

/// How clients on TCP prove who they are, and what else is asked of them.
fn proof(config: &Config) -> Result<(Option<Proof>, Terms), StartError> {
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = config.name.clone().unwrap_or_else(host);
    if name.is_empty() || name.len() > SERVER_NAME_LEN_MAX || name.chars().any(char::is_control) {
        let text = format!("the server's name {name:?}: 1 to {SERVER_NAME_LEN_MAX} bytes, no control characters");
        return Err(StartError::Config(text));
    }
    let is_on_tcp = config.listen.iter().any(|address| matches!(address, Address::Tcp(_)));
    let (proof, munge) = match (config.auth, &config.key_file) {
        (Auth::Key, path) => {
            let key = path.as_ref().map(|path| Key::read(&path.to_string_lossy())).transpose()?;
            (key.map(|key| Proof::Key(key.secret())), None)
        }
        (Auth::Munge, Some(_)) => {
            let text = "auth = \"munge\" uses no key file: leave key_file out, or set auth = \"key\"";
            return Err(StartError::Config(text.to_owned()));
        }
        (Auth::Munge, None) if is_on_tcp => (Some(Proof::Munge), Some(Library::load(config.munge_socket.as_deref())?)),
        (Auth::Munge, None) => (None, None),
    };
    Ok((proof, Terms { name, integrity: config.integrity, munge }))
}

fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 8)
}
