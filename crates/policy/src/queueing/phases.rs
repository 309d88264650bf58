//! The I/O phases of one target's jobs in a fair clock: when they begin and end there, and what is told of their sizes.
//!
//! Sizes are *declared*, or expected by the *history* of a job's user and application, which is bounded and belongs to the
//! user: nobody can spoil another's. The application is the job's title if it has one, for schedulers give each run a name of
//! its own (Slurm: the number of the job), and else its name.
//!
//! Or the history only tells the *class*, within a factor of [`CLASS_FACTOR`](crate::history::CLASS_FACTOR), and of a phase its class begins with the
//! least size of that: inside a class, phases are told apart by what they have received.
//!
//! Of a phase of which nothing is known the first thing told is short, whatever its user's other phases are like: by theorem 4 of
//! the scheme in fluid who is told too little is late by no more than his size once more, and who is told k times too much is by k times. A
//! user's median would have his short phases pay for his long ones.

use crate::history::SizeHistory;
use crate::queueing::fair_clock::{Account, FairClock, PhaseReport};
use crate::spec::Level;
use crate::spec::scheme::Sizes;
use isonomia_units::{JobId, JobInfo, Nanos};

/// A phase that turns out to be longer than was told is told to be this many times as long.
pub(super) const GROWTH: f64 = 1.25;
/// The same for one of which nothing was known.
pub(super) const GROWTH_UNKNOWN: f64 = 2.0;
/// What a phase of which nothing is known is told to need.
pub(super) const FIRST_TOLD: Nanos = Nanos::from_millis(1);

pub(crate) struct Phases {
    pub(crate) clock: FairClock,
    sizes: Sizes,
    history: SizeHistory,
    /// By slot.
    jobs: Vec<Job>,
}

/// What came of a job's I/O phases on a target, up to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// Whose they are.
    pub job: JobId,
    /// Phases that have ended.
    pub phases: u64,
    /// Of these, those whose last request was begun when fair sharing would have served all of the phase already.
    pub late: u64,
    /// By how much in all, where the sizes of phases were told as they are.
    pub late_by: Nanos,
}

#[derive(Clone, Debug, Default)]
struct Job {
    account: Account,
    /// Under which its sizes are remembered.
    application: String,
    /// What it said that its phase needs.
    declared: Option<Nanos>,
    /// When its last request was begun, and whether the clock had served more of it by then.
    last: Nanos,
    is_behind: bool,
    phases: u64,
    late: u64,
    late_by: Nanos,
}

impl Phases {
    /// Nobody is in a phase. `levels` are what is fair.
    pub(crate) fn new(levels: &[Level], sizes: Sizes) -> Self {
        Self { clock: FairClock::new(levels), sizes, history: SizeHistory::default(), jobs: Vec::new() }
    }

    /// What is remembered of applications, which may outlive this.
    pub(crate) fn history(&mut self) -> &mut SizeHistory {
        &mut self.history
    }

    /// A job that is in no phase yet.
    pub(crate) fn open(&mut self, slot: u32, job: JobId, info: &JobInfo) {
        let entry = Job { account: self.clock.open(job, info), application: application_of(info), ..Job::default() };
        if slot as usize == self.jobs.len() {
            self.jobs.push(entry);
        } else {
            self.jobs[slot as usize] = entry;
        }
    }

    /// The job is somebody else now.
    pub(crate) fn change(&mut self, slot: u32, info: &JobInfo) {
        self.jobs[slot as usize].application = application_of(info);
        self.clock.change(self.account(slot), info);
    }

    /// The job is gone.
    pub(crate) fn close(&mut self, slot: u32) {
        self.end(slot);
        self.clock.close(self.account(slot));
    }

    /// Its account in the clock.
    pub(crate) fn account(&self, slot: u32) -> Account {
        self.jobs[slot as usize].account
    }

    /// The job has a request for the first time in a while.
    pub(crate) fn begin(&mut self, slot: u32) {
        let job = &mut self.jobs[slot as usize];
        let declared = job.declared.take();
        let from_history = || self.history.expect(&job.application).map(|expected| Nanos(expected.size));
        let told = match self.sizes {
            Sizes::Declared => declared.or_else(from_history),
            Sizes::History => from_history(),
            Sizes::None => self.history.expect_class(&job.application).map(Nanos),
        };
        let (told, growth) = told.map_or((FIRST_TOLD, GROWTH_UNKNOWN), |told| (told.max(Nanos(1)), GROWTH));
        self.clock.begin(job.account, told.0 as f64, growth);
    }

    /// A request came while the phase goes on: what was declared was said of this phase.
    pub(crate) fn go_on(&mut self, slot: u32) {
        self.jobs[slot as usize].declared = None;
    }

    /// A request of the job is begun; `is_last` if no other waits.
    pub(crate) fn serve(&mut self, slot: u32, cost: Nanos, is_last: bool) {
        let job = &mut self.jobs[slot as usize];
        self.clock.serve(job.account, cost);
        job.last = self.clock.time();
        job.is_behind = is_last && self.clock.is_ahead(job.account);
    }

    /// The job had no request for a while.
    pub(crate) fn end(&mut self, slot: u32) {
        let job = &mut self.jobs[slot as usize];
        let left = self.clock.left(job.account);
        let Some(needed) = self.clock.end(job.account) else { return };
        self.history.record(&job.application, needed.0);
        let late_by = left.map_or(Nanos::ZERO, |left| job.last.since(left));
        job.phases += 1;
        job.late += u64::from(job.is_behind || late_by > Nanos::ZERO);
        job.late_by += late_by;
    }

    /// The job's phase needs so much. If no request comes before the present phase is over, it was said of the next one. False if
    /// nobody goes by it.
    pub(crate) fn expect(&mut self, slot: u32, service: Nanos) -> bool {
        if self.sizes != Sizes::Declared {
            return false;
        }
        self.jobs[slot as usize].declared = Some(service);
        self.clock.expect(self.account(slot), service, GROWTH);
        true
    }

    /// What came of the phases of these jobs, ascending by job; of those that ended one.
    pub(crate) fn lateness(&self, slots: impl Iterator<Item = u32>) -> Vec<Lateness> {
        let of = |slot: u32| {
            let Job { account, phases, late, late_by, .. } = self.jobs[slot as usize];
            (phases > 0).then_some(Lateness { job: self.clock.job(account), phases, late, late_by })
        };
        let mut all: Vec<Lateness> = slots.filter_map(of).collect();
        all.sort_unstable_by_key(|lateness| lateness.job);
        all
    }

    /// How far the phases of these jobs have come, ascending by job.
    pub(crate) fn reports(&self, slots: impl Iterator<Item = u32>) -> Vec<PhaseReport> {
        let of = |slot: u32| {
            let report = self.clock.report(self.account(slot))?;
            let known = self.history.expect(&self.jobs[slot as usize].application);
            Some(PhaseReport { error: known.and_then(|known| known.error), ..report })
        };
        let mut phases: Vec<PhaseReport> = slots.filter_map(of).collect();
        phases.sort_unstable_by_key(|phase| phase.job);
        phases
    }
}

/// A user's name has no NUL in it.
fn application_of(info: &JobInfo) -> String {
    format!("{}\0{}", info.user, info.title.as_ref().unwrap_or(&info.name))
}
