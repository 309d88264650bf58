//! The records of several servers as one: of all their targets.
//!
//! Each server counts time by its host's own clock and numbers jobs by itself. A record says what the time of day was when it began, by
//! which they are laid beside each other: as exactly as the hosts agree on the time of day. The same job is what has the same user and name,
//! within the same proof. So a program that writes to one server after the other is one stream of requests again.

use super::reading::{read, read_one};
use super::{Asked, Record, Told};
use crate::source::SourceError;
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads the records at `paths`, of servers that were recorded at the same time. A last line without an end is left out of each.
///
/// # Errors
/// As [`read`]; or they cannot be laid beside each other: one is named twice, does not say when it began, was over before another
/// began, or is of another policy.
pub fn read_all(paths: &[PathBuf]) -> Result<Record, SourceError> {
    if let [path] = paths {
        return read(path);
    }
    let mut parts = Vec::new();
    for (at, path) in paths.iter().enumerate() {
        if paths[..at].contains(path) {
            return Err(failed(path, "it is named twice".to_owned()));
        }
        parts.push(part(path, read_one(path)?)?);
    }
    check(&parts)?;
    let mut whole = Record::default();
    let mut numbers = Numbers::default();
    let first = parts.iter().map(|part| part.wall_ns).min().unwrap_or(0);
    for (of, part) in parts.into_iter().enumerate() {
        let shift = |at: Nanos| Nanos(at.since(part.began).0.saturating_add(part.wall_ns - first));
        let before = whole.targets.len();
        let Record { targets, requests, mut told, left_out, .. } = part.record;
        told.iter().for_each(|(_, _, told)| numbers.note(of, told));
        whole.requests.extend(requests.into_iter().map(|asked| Asked {
            target: before + asked.target,
            job: numbers.of(of, asked.job),
            arrived: shift(asked.arrived),
            ended: asked.ended.map(shift),
            ..asked
        }));
        told.iter_mut().for_each(|(at, target, told)| {
            (*at, *target) = (shift(*at), before + *target);
            numbers.renumber(of, told);
        });
        whole.told.extend(told);
        whole.targets.extend(targets);
        whole.left_out += left_out;
        whole.records += 1;
    }
    whole.settle();
    if let (Some(path), true) = (paths.first(), whole.requests.is_empty()) {
        return Err(failed(path, "no request came while it was recorded, nor in the other records".to_owned()));
    }
    Ok(whole)
}

pub(super) fn failed(path: &Path, what: String) -> SourceError {
    SourceError { file: path.to_owned(), line: 0, field: String::new(), what }
}

/// One record, and when it began by its server's clock and by the time of day.
struct Part<'p> {
    path: &'p Path,
    record: Record,
    began: Nanos,
    wall_ns: u64,
}

fn part(path: &Path, record: Record) -> Result<Part<'_>, SourceError> {
    let Some((began, wall_ns)) = record.clock else {
        let what = "it does not say at what time of day it began, by which it would be laid beside others".to_owned();
        return Err(failed(path, what));
    };
    Ok(Part { path, record, began, wall_ns })
}

/// Whether they are of one time and of one policy.
fn check(parts: &[Part<'_>]) -> Result<(), SourceError> {
    let Some(last) = parts.iter().max_by_key(|part| part.wall_ns) else { return Ok(()) };
    let policy = parts.first().and_then(|part| Some((part.path, part.record.policy()?)));
    for part in parts {
        let end_ns = part.wall_ns.saturating_add(part.record.to.since(part.began).0);
        if !part.record.requests.is_empty() && end_ns < last.wall_ns {
            let began = last.path.display();
            return Err(failed(part.path, format!("its last request had ended before {began} began")));
        }
        if let (Some((path, one)), Some(other)) = (policy, part.record.policy())
            && one != other
        {
            let what = format!("its policy is {other}, and that of {} is {one} (allowed: one for all)", path.display());
            return Err(failed(part.path, what));
        }
    }
    Ok(())
}

/// Who a job is, wherever it is.
type Who = (Arc<str>, Arc<str>, Option<Arc<str>>);

/// The numbers of jobs in the whole.
#[derive(Default)]
struct Numbers {
    by_name: HashMap<Who, JobId>,
    /// By record and the number there.
    by_number: BTreeMap<(usize, JobId), JobId>,
    next: u32,
}

impl Numbers {
    fn next(&mut self) -> JobId {
        self.next += 1;
        JobId(self.next - 1)
    }

    fn note(&mut self, record: usize, told: &Told) {
        let Told::Job(job, JobInfo { user, name, within, .. }) = told else { return };
        let who = (user.clone(), name.clone(), within.clone());
        let number = match self.by_name.get(&who) {
            Some(number) => *number,
            None => self.next(),
        };
        self.by_name.insert(who, number);
        self.by_number.insert((record, *job), number);
    }

    /// One of which nothing was told is a job of its own.
    fn of(&mut self, record: usize, job: JobId) -> JobId {
        if let Some(number) = self.by_number.get(&(record, job)) {
            return *number;
        }
        let number = self.next();
        self.by_number.insert((record, job), number);
        number
    }

    fn renumber(&mut self, record: usize, told: &mut Told) {
        match told {
            Told::Job(job, _) | Told::Expect(job, _) | Told::Rank(job, _) => *job = self.of(record, *job),
            Told::Apportion(parts) => parts.iter_mut().for_each(|(job, _)| *job = self.of(record, *job)),
            Told::FairEnds(ends) => ends.iter_mut().for_each(|(job, _)| *job = self.of(record, *job)),
            Told::Parts(_) => {}
        }
    }
}
