//! The record of which process has a store's directory: `<dir>/owner`, text, one `key value` a line.
//!
//! | key | meaning |
//! |---|---|
//! | `server` | name of the server |
//! | `epoch` | of its cluster file, when it began |
//! | `instance` | number of the process among those that had the directory |
//! | `token` | a random number that tells it from any other |
//! | `past` | number and token of a process before it, in their order: the last [`PAST_MAX`] |
//! | `all_below` | whoever has a lower number counts as one of those |
//! | `host`, `boot`, `pid` | where it is: name of the host, identity of its kernel's start, process id |
//! | `state` | `claiming` while it waits for the process before it, `open`, `closed` once it gave the directory up, or `refused` |
//!
//! A process that begins reads what the one before left, and writes its own. Whether the other one may still be there depends:
//!
//! | the one before | the lock | |
//! |---|---|---|
//! | gave up | free | begins at once |
//! | was of this kernel | free | begins at once: the kernel frees a lock with its process |
//! | was of this host, before it was started anew; | free | waits until the other's lease is over |
//! | was of another host | free | the same, if the operator says that it is to take over; else it is refused |
//! | any | locked | the same; then the lock file is replaced by another one |
//!
//! Other servers know a server's process by number and token, and refuse one whose directory does not list it: the directory is
//! empty then, or an older copy. Such a start does not count: the next process has the same number, and does not list the one that
//! was refused. [`START_OVER`], a file in the directory, has the next process say that it comes after all others of its
//! server, whatever the directory knows of them. It is removed then.
//!
//! Who waited makes sure that nobody wrote the record meanwhile, and then moves the database to another name: what the process
//! before it still does to files by their names fails.

use crate::durable;
use crate::fence::{self, Fence, LEASE, MARGIN};
use crate::{OpenError, journal};
use isonomia_units::Nanos;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const NAME: &str = "owner";
/// The longest record that is read.
const RECORD_LEN_MAX: u64 = 16_384;
/// Processes that are listed; earlier ones are known by their number.
const PAST_MAX: usize = 256;
/// See the module.
pub const START_OVER: &str = "start-over";

/// How a process is to have the directory of a store.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// The server's name.
    pub server: String,
    /// The epoch of its cluster file.
    pub epoch: u64,
    /// It may have been another process's, which is to be replaced.
    pub take_over: bool,
    /// How long the process before this one may still change something, if it is not known to be gone.
    pub wait: Nanos,
    /// What the process has then.
    pub fence: Arc<Fence>,
}

impl Ownership {
    /// Of the server `server`, with the wait that is always right.
    pub fn new(server: String, epoch: u64, take_over: bool) -> Self {
        Self { server, epoch, take_over, wait: LEASE + MARGIN, fence: Arc::default() }
    }
}

/// What a process that has a directory wrote into the record.
#[derive(Debug)]
pub(crate) struct Claim {
    dir: PathBuf,
    record: Record,
}

/// The processes that had a directory, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Number and token of the one that has it.
    pub own: (u64, u64),
    /// Those of the ones before it, in their order.
    pub past: Vec<(u64, u64)>,
    /// Whoever has a lower number counts as one of those.
    pub all_below: u64,
}

/// Who is in the record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This process.
    Own,
    /// The process of this number.
    Other(u64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Record {
    server: String,
    epoch: u64,
    instance: u64,
    token: u64,
    past: Vec<(u64, u64)>,
    all_below: u64,
    host: String,
    boot: String,
    pid: u32,
    state: State,
}

/// What the process of a record does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// It has the directory.
    #[default]
    Open,
    /// It gave the directory up.
    Closed,
    /// So it did, because other servers know of a process that the directory does not list.
    Refused,
    /// It waits for the one before it, of which nothing else is known any more: whoever comes next has to wait as well, and to
    /// move the database.
    Claiming,
}

impl State {
    const ALL: [(Self, &str); 4] =
        [(Self::Open, "open"), (Self::Closed, "closed"), (Self::Refused, "refused"), (Self::Claiming, "claiming")];
}

impl Record {
    fn read(dir: &Path) -> io::Result<Option<Self>> {
        let path = dir.join(NAME);
        let found = match fs::File::open(&path) {
            Ok(file) => io::read_to_string(io::Read::take(file, RECORD_LEN_MAX))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut record = Self::default();
        for (key, value) in found.lines().filter_map(|line| line.split_once(' ')) {
            match key {
                "server" => value.clone_into(&mut record.server),
                "epoch" => record.epoch = value.parse().unwrap_or_default(),
                "instance" => record.instance = value.parse().unwrap_or_default(),
                "token" => record.token = u64::from_str_radix(value, 16).unwrap_or_default(),
                "past" => record.past.extend(
                    value
                        .split_once(' ')
                        .and_then(|(number, token)| Some((number.parse().ok()?, u64::from_str_radix(token, 16).ok()?))),
                ),
                "all_below" => record.all_below = value.parse().unwrap_or_default(),
                "host" => value.clone_into(&mut record.host),
                "boot" => value.clone_into(&mut record.boot),
                "pid" => record.pid = value.parse().unwrap_or_default(),
                "state" => {
                    let found = State::ALL.iter().find(|(_, name)| *name == value);
                    record.state = found.map_or(State::Claiming, |(state, _)| *state);
                }
                _ => {}
            }
        }
        let is_whole = record.instance > 0 && record.token > 0;
        if is_whole { Ok(Some(record)) } else { Err(io::Error::other("the record of the owner is not legible")) }
    }

    fn text(&self) -> String {
        let Self { server, epoch, instance, token, past, all_below, host, boot, pid, state } = self;
        let state = State::ALL.iter().find(|(known, _)| known == state).map_or("", |(_, name)| *name);
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "server {server}\nepoch {epoch}\ninstance {instance}\ntoken {token:016x}\nall_below {all_below}\nhost {host}\n\
             boot {boot}\npid {pid}\nstate {state}\n"
        );
        for (number, token) in past {
            let _ = writeln!(text, "past {number} {token:016x}");
        }
        text
    }
}

impl Claim {
    /// Who is in the record now.
    pub fn look(&self) -> io::Result<Found> {
        let found = Record::read(&self.dir)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(if found.token == self.record.token { Found::Own } else { Found::Other(found.instance) })
    }

    /// See [`Line`].
    pub fn line(&self) -> Line {
        let Record { instance, token, past, all_below, .. } = &self.record;
        Line { own: (*instance, *token), past: past.clone(), all_below: *all_below }
    }

    /// Says that this process has the directory no more; `is_refused` if it is not to count among those that had it.
    pub fn release(&self, is_refused: bool) -> io::Result<()> {
        let state = if is_refused { State::Refused } else { State::Closed };
        let record = Record { state, ..self.record.clone() };
        match self.look()? {
            Found::Own => durable::write(&self.dir, NAME, record.text().as_bytes()).map_err(io::Error::other),
            Found::Other(_) => Ok(()),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join(NAME)
    }
}

/// Has this process own `dir`, whose lock it has; `is_forced` if another process had that. Waits if another one may still
/// change something there.
pub(crate) fn claim(dir: &Path, how: &Ownership, token: u64, is_forced: bool) -> Result<(), OpenError> {
    let fail = |error| OpenError::io(&dir.join(NAME), error);
    let before = Record::read(dir).map_err(fail)?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    let open = before.as_ref().filter(|before| !matches!(before.state, State::Closed | State::Refused));
    let is_gone = open.is_none_or(|before| before.state == State::Open && before.boot == boot && !boot.is_empty());
    if let Some(before) = open
        && !is_gone
        && before.host != host
        && !how.take_over
    {
        return Err(OpenError::Elsewhere { dir: dir.to_owned(), host: before.host.clone(), pid: before.pid });
    }
    let Line { own: (instance, _), past, all_below } = next_line(dir, before.as_ref(), is_forced)?;
    let record = Record {
        server: how.server.clone(),
        epoch: how.epoch,
        instance,
        token: token | 1,
        past,
        all_below,
        host,
        boot,
        pid: std::process::id(),
        state: if is_forced || !is_gone { State::Claiming } else { State::Open },
    };
    let mut claim = Claim { dir: dir.to_owned(), record };
    let mut since = fence::now();
    durable::write(dir, NAME, claim.record.text().as_bytes())?;
    start_over_is_done(dir).map_err(fail)?;
    if is_forced || !is_gone {
        let (host, pid) = before.map(|before| (before.host, before.pid)).unwrap_or_default();
        tracing::warn!(dir = %dir.display(), %host, pid, wait = %how.wait,
            "taking over; waiting until the process before this one cannot change anything any more");
        std::thread::sleep(Duration::from_nanos(how.wait.0));
        since = fence::now();
        if let Found::Other(instance) = claim.look().map_err(fail)? {
            return Err(OpenError::TakenOver { dir: dir.to_owned(), instance });
        }
        move_database(dir, instance)?;
        claim.record.state = State::Open;
        durable::write(dir, NAME, claim.record.text().as_bytes())?;
    }
    how.fence.begin(claim, since);
    Ok(())
}

/// What the next process in `dir` is after the one `before`.
fn next_line(dir: &Path, before: Option<&Record>, is_forced: bool) -> Result<Line, OpenError> {
    let number = before.map_or(0, |before| before.instance) + 1;
    let start_over = dir.join(START_OVER);
    if start_over.try_exists().map_err(|error| OpenError::io(&start_over, error))? {
        // Higher than that of any process before it, as each of those began with 0 or at an earlier time.
        let secs = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let number = number.max(secs << 16);
        tracing::warn!(dir = %dir.display(), "an operator says that this is the server's directory, whatever it lacks");
        return Ok(Line { own: (number, 0), past: Vec::new(), all_below: number });
    }
    let Some(before) = before else { return Ok(Line { own: (number, 0), ..Line::default() }) };
    let (mut past, mut all_below) = (before.past.clone(), before.all_below);
    if before.state == State::Refused && !is_forced {
        return Ok(Line { own: (before.instance, 0), past, all_below });
    }
    past.push((before.instance, before.token));
    let dropped = past.len().saturating_sub(PAST_MAX);
    all_below = past.drain(..dropped).fold(all_below, |below, (number, _)| below.max(number + 1));
    Ok(Line { own: (number, 0), past, all_below })
}

/// What an operator said is in the record: it counts once.
fn start_over_is_done(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(START_OVER)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where the database of the store in `dir` lies: `db`, or after a take-over `db.INSTANCE`.
pub fn database_dir(dir: &Path) -> PathBuf {
    let number = |name: &str| name.strip_prefix("db.")?.parse::<u64>().ok();
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let last = entries.filter_map(|entry| number(entry.file_name().to_str()?)).max();
    last.map_or_else(|| dir.join("db"), |last| dir.join(format!("db.{last}")))
}

/// Whether a file in a store's directory is called as the database may be.
pub(crate) fn is_database(name: &str) -> bool {
    name == "db" || name.strip_prefix("db.").is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Puts what another process may have open, or may open by its name, out of its reach.
fn move_database(dir: &Path, instance: u64) -> Result<(), OpenError> {
    let (from, to) = (database_dir(dir), dir.join(format!("db.{instance}")));
    match fs::rename(&from, &to) {
        Ok(()) => {}
        // It was never opened.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(OpenError::io(&from, error)),
    }
    let copy = |path: &Path| -> io::Result<()> {
        let fresh = path.with_extension("new");
        fs::copy(path, &fresh)?;
        fs::File::open(&fresh)?.sync_all()?;
        fs::rename(fresh, path)
    };
    // What a database has open to write to; the rest of it never changes, or is replaced by its name.
    let journals = journal::paths(&to).map_err(|error| OpenError::io(&to, error))?;
    for path in journals.into_iter().chain([to.join("lock")]) {
        copy(&path).map_err(|error| OpenError::io(&path, error))?;
    }
    let sync = |dir: &Path| fs::File::open(dir)?.sync_all();
    sync(&to).and_then(|()| sync(dir)).map_err(|error| OpenError::io(dir, error))
}

#[cfg(test)]
mod tests;
