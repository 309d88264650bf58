//! The fair clock of one target: what fair sharing would have served of each job's I/O phase by now.
//!
//! In the clock a target serves everybody who has come at his share under a sharing tree, each until he has had what he asked
//! for, whatever happens to him in reality: who was served sooner stays in the clock until his time has come. Virtual
//! time passes with the service that the target gives in reality, at its part for a weight of 1; a job's *tag* is the
//! virtual time at which the clock has served what was told of its phase. A job has one account: a phase that begins
//! before the clock is done with the one before follows behind it.
//!
//! Every node of the tree has a virtual time of its own, which passes with what the clock serves below it, so that what a
//! job was served is exact whoever comes or goes. With a tree of one level a tag, once told, does not change. With
//! more, a job's pace changes when others of its user come or go; tags are then those at the present paces, brought
//! up to date when a job is served or comes to be first ([`FairClock::tag`]). Service is in ns.
//!
//! A tag is computed when something is told of its phase or a pace has changed, and is that number until then: neither service
//! nor time changes it, but for rounding. The same holds of the virtual time at which a job comes to its floor, except that
//! what it is served itself puts that off.
//!
//! O(log n) for whatever begins or ends, with n jobs in the clock, beside the tree's own; serving costs O(1) unless somebody
//! is done.

use crate::queueing::forecast::{Forecast, Served};
use crate::queueing::tag_heap::TagHeap;
use crate::queueing::tree::{Leaf, ROOT, ShareTree};
use crate::spec::Level;
use isonomia_units::{JobId, JobInfo, Nanos};

/// Service below which a difference is rounding.
const NOTHING_NS: f64 = 1e-3;
/// The slowest pace that is told apart.
const PACE_MIN: f64 = 1e-12;

/// At no count of changes was anything computed.
const NEVER: u64 = u64::MAX;

/// An account in the clock.
pub(crate) type Account = u32;

#[derive(Clone, Debug)]
struct Entry {
    leaf: Leaf,
    job: JobId,
    /// Whether the clock serves it.
    is_in: bool,
    /// Whether the phase goes on in reality: then what was told may be too little.
    is_open: bool,
    /// Nobody will ask for it any more.
    is_gone: bool,
    /// Served in the clock by `settled`, a virtual time of the node above; at most `told`.
    fair: f64,
    settled: f64,
    /// The target's virtual time when the clock was done with what was told, and the time.
    done: f64,
    left: Nanos,
    told: f64,
    received: f64,
    /// What had been received when the phase began.
    begun: f64,
    /// What had been received, and served in the clock, when the job last came back and was not owed all of it: from there on its floor counts.
    forgone_at: (f64, f64),
    growth: f64,
    /// The tag, and [`ShareTree::pace_changes`] when it was computed; [`NEVER`] if what it is made of was told anew since.
    tag: u64,
    tag_of: u64,
    /// The same of the floor, what had been received by then, and how much later it is with each ns more of that.
    floor: f64,
    floor_of: u64,
    floor_by: f64,
    floor_put_off: f64,
}

/// How far a job's I/O phase has come, and how far it would have under fair sharing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseReport {
    /// Whose it is.
    pub job: JobId,
    /// Service that the job received in the phase.
    pub received: Nanos,
    /// What fair sharing would have served of it by now.
    pub fair: Nanos,
    /// What it is expected to need in all.
    pub expected: Nanos,
    /// How far what the history told of the job's application was off, as a mean factor of at least 1; `None` if none of it could be
    /// checked yet.
    pub error: Option<f64>,
}

pub(crate) struct FairClock {
    tree: ShareTree,
    virtual_time: f64,
    now: Nanos,
    /// By node: its virtual time, and that of the node above it at which it was that.
    nodes: Vec<(f64, f64)>,
    entries: Vec<Entry>,
    vacant: Vec<Account>,
    /// Who is in the clock, by tag; one that is out of date is too low or too high, and put right when it comes up.
    ends: TagHeap<u64>,
}

impl Entry {
    /// What the tag and the floor are made of is not what it was.
    fn told_anew(&mut self) {
        (self.tag_of, self.floor_of) = (NEVER, NEVER);
    }

    /// What the clock has served when the node above is at `time`, with the job in it all the while.
    fn fair_at(&self, time: f64, weight: f64) -> f64 {
        (self.fair + weight * (time - self.settled)).min(self.told).max(self.fair)
    }

    /// What was received, and `served` in the clock, since it was last forgone anything.
    fn since_forgone(&self, served: f64) -> (f64, f64) {
        (self.received - self.forgone_at.0, served - self.forgone_at.1)
    }

    fn settle(&mut self, time: f64, weight: f64) {
        if self.is_in {
            self.fair = self.fair_at(time, weight);
        }
        self.settled = time;
    }
}

impl FairClock {
    pub(crate) fn new(levels: &[Level]) -> Self {
        Self {
            tree: ShareTree::new(levels),
            virtual_time: 0.0,
            now: Nanos::ZERO,
            nodes: Vec::new(),
            entries: Vec::new(),
            vacant: Vec::new(),
            ends: TagHeap::default(),
        }
    }

    /// An account for a job.
    pub(crate) fn open(&mut self, job: JobId, info: &JobInfo) -> Account {
        let account = self.vacant.pop().unwrap_or(self.entries.len() as Account);
        let entry = Entry {
            leaf: self.tree.insert(info, account),
            job,
            is_in: false,
            is_open: false,
            is_gone: false,
            fair: 0.0,
            settled: 0.0,
            done: 0.0,
            left: Nanos::ZERO,
            told: 0.0,
            received: 0.0,
            begun: 0.0,
            forgone_at: (0.0, 0.0),
            growth: 1.0,
            tag: 0,
            tag_of: NEVER,
            floor: 0.0,
            floor_of: NEVER,
            floor_by: 0.0,
            floor_put_off: 0.0,
        };
        if account as usize == self.entries.len() {
            self.entries.push(entry);
        } else {
            self.entries[account as usize] = entry;
        }
        account
    }

    /// The job is somebody else now.
    pub(crate) fn change(&mut self, account: Account, info: &JobInfo) {
        self.settle(account);
        let leaf = self.tree.insert(info, account);
        let old = std::mem::replace(&mut self.entries[account as usize].leaf, leaf);
        self.tree.remove(old);
        self.settle_elsewhere(account);
    }

    /// The job has another leaf, in the node of which time is another.
    fn settle_elsewhere(&mut self, account: Account) {
        let entry = &mut self.entries[account as usize];
        entry.told_anew();
        if std::mem::replace(&mut entry.is_in, false) {
            self.enter(account);
        } else {
            self.settle(account);
        }
    }

    /// The job is gone. What the clock owes it still takes its time there.
    pub(crate) fn close(&mut self, account: Account) {
        self.end(account);
        self.entries[account as usize].is_gone = true;
        self.forget_if_done(account);
    }

    /// A phase begins that is told to need `told`; if it needs more, `growth` times as much.
    pub(crate) fn begin(&mut self, account: Account, told: f64, growth: f64) {
        self.settle(account);
        let entry = &mut self.entries[account as usize];
        if !entry.is_in {
            (entry.fair, entry.received, entry.forgone_at) = (0.0, 0.0, (0.0, 0.0));
        }
        entry.begun = entry.received;
        entry.told = entry.received + told;
        entry.told_anew();
        (entry.growth, entry.is_open) = (growth, true);
        self.enter(account);
    }

    /// The job's phase, if it is in one, needs `service` from now on.
    pub(crate) fn expect(&mut self, account: Account, service: Nanos, growth: f64) {
        self.settle(account);
        let entry = &mut self.entries[account as usize];
        if entry.is_open {
            entry.told = (entry.received + service.0 as f64).max(entry.fair);
            entry.growth = growth;
            entry.told_anew();
            self.enter(account);
        }
    }

    /// The job has `next` to be served: if that is more than was told, the phase is longer than that.
    pub(crate) fn needs(&mut self, account: Account, next: Nanos) {
        let entry = &self.entries[account as usize];
        if entry.is_open && entry.received + next.0 as f64 > entry.told + NOTHING_NS {
            self.tell_anew(account, next);
        }
    }

    /// The job had nothing to be served for a while: in the clock, too, it is owed no more than `most`, although the clock
    /// may have finished what was told.
    pub(crate) fn forgo(&mut self, account: Account, most: Nanos) {
        let entry = &self.entries[account as usize];
        let most = entry.received + most.0 as f64;
        if entry.is_open && entry.told > most && self.fair_now(entry) > most {
            self.settle(account);
            let entry = &mut self.entries[account as usize];
            entry.fair = most;
            // What it had received before is not charged against its floor either, or each request would wait for a part of all that.
            entry.forgone_at = (entry.received, most);
            entry.told_anew();
            self.enter(account);
        }
    }

    /// The phase has ended; returns what it needed.
    pub(crate) fn end(&mut self, account: Account) -> Option<Nanos> {
        self.settle(account);
        let entry = &mut self.entries[account as usize];
        if !std::mem::take(&mut entry.is_open) {
            return None;
        }
        // What it turned out to be. The clock takes nothing back.
        entry.told = entry.received.max(entry.fair);
        entry.told_anew();
        let needed = Nanos((entry.received - entry.begun) as u64);
        self.reposition(account);
        self.pass(0.0);
        Some(needed)
    }

    /// The time, of which the clock takes no notice but to tell when it was done with somebody.
    pub(crate) fn at(&mut self, now: Nanos) {
        self.now = now;
    }

    /// The time as it was told last.
    pub(crate) fn time(&self) -> Nanos {
        self.now
    }

    /// When the clock was done with the job; `None` if it serves it.
    pub(crate) fn left(&self, account: Account) -> Option<Nanos> {
        let entry = &self.entries[account as usize];
        (!entry.is_in).then_some(entry.left)
    }

    /// Whether the clock has served the job more than it received.
    pub(crate) fn is_ahead(&self, account: Account) -> bool {
        let entry = &self.entries[account as usize];
        let received = entry.received + NOTHING_NS;
        entry.told > received && self.fair_now(entry) > received
    }

    /// Whose account it is.
    pub(crate) fn job(&self, account: Account) -> JobId {
        self.entries[account as usize].job
    }

    /// The target serves `cost` of the job.
    pub(crate) fn serve(&mut self, account: Account, cost: Nanos) {
        self.entries[account as usize].received += cost.0 as f64;
        self.pass(cost.0 as f64);
    }

    /// Lets so much service pass in the clock.
    fn pass(&mut self, mut service: f64) {
        while let Some(((tag, _), account)) = self.ends.first() {
            let weight = self.tree.active_weight();
            let until = from_key(tag);
            let cost = (until - self.virtual_time) * weight;
            if cost > service {
                self.virtual_time += service / weight;
                return;
            }
            self.virtual_time = self.virtual_time.max(until);
            service -= cost.max(0.0);
            self.settle(account);
            let entry = &self.entries[account as usize];
            if entry.told - entry.fair > NOTHING_NS {
                let (tag, job) = (self.compute_tag(account), self.entries[account as usize].job);
                if tag > key(self.virtual_time) {
                    // Its pace has changed since.
                    self.ends.set(account, (tag, job));
                    continue;
                }
            }
            self.leave(account);
        }
    }

    /// Where the job is in the order in which the clock finishes, at the present paces: the least is first.
    pub(crate) fn tag(&mut self, account: Account) -> u64 {
        let entry = &self.entries[account as usize];
        if entry.tag_of == self.tree.pace_changes() { entry.tag } else { self.compute_tag(account) }
    }

    fn compute_tag(&mut self, account: Account) -> u64 {
        self.settle(account);
        let entry = &self.entries[account as usize];
        let tag = key(self.time_of(entry) + (entry.told - entry.fair) / self.pace(entry.leaf));
        let entry = &mut self.entries[account as usize];
        (entry.tag, entry.tag_of) = (tag, self.tree.pace_changes());
        tag
    }

    /// When the clock will be where, if nobody comes. O(n log n).
    pub(crate) fn forecast(&self) -> Forecast {
        let served = self.entries.iter().filter(|entry| entry.is_in).map(|entry| self.served(entry));
        Forecast::new(self.virtual_time, served)
    }

    /// Of one that is in the clock, at the present paces.
    fn served(&self, entry: &Entry) -> Served {
        let (left, pace) = (entry.told - self.fair_now(entry), self.pace(entry.leaf));
        Served { end: self.virtual_time + left / pace, left, pace }
    }

    /// How long until the clock is done with what was told of the job's phase, by its forecast, in nanoseconds; `None` if it is, or the phase is over.
    pub(crate) fn time_to_end(&self, account: Account, forecast: &Forecast) -> Option<f64> {
        let entry = &self.entries[account as usize];
        let time = || forecast.time_until(self.served(entry).end);
        (entry.is_in && entry.is_open).then(time).filter(|time| *time > 0.0)
    }

    /// The virtual time so long from now, by its forecast, comparable with what [`Self::tag`] gives.
    pub(crate) fn tag_at(&self, time: Nanos, forecast: &Forecast) -> u64 {
        key(forecast.at(time.0 as f64))
    }

    /// When the clock served it last.
    fn time_of(&self, entry: &Entry) -> f64 {
        if entry.is_in { self.virtual_time } else { entry.done }
    }

    fn pace(&self, leaf: Leaf) -> f64 {
        self.tree.pace(leaf).max(PACE_MIN)
    }

    /// The virtual time from which the job will have received less than `part`, more than 0, of what the clock served of it, both since it
    /// was last forgone anything; never, if it has received that part of all that the clock will serve. At the present paces.
    pub(crate) fn floor(&mut self, account: Account, part: f64) -> u64 {
        self.settle(account);
        let entry = &self.entries[account as usize];
        let pace = self.pace(entry.leaf);
        let (received, fair) = entry.since_forgone(entry.fair);
        let floor = self.time_of(entry) + (received / part - fair) / pace;
        let entry = &mut self.entries[account as usize];
        (entry.floor, entry.floor_of) = (floor, self.tree.pace_changes());
        (entry.floor_by, entry.floor_put_off) = (entry.received, 1.0 / (part * pace));
        self.floor_as_known(account, part)
    }

    /// The same at the paces at which it was computed last.
    pub(crate) fn floor_as_known(&self, account: Account, part: f64) -> u64 {
        let entry = &self.entries[account as usize];
        let (received, told) = entry.since_forgone(entry.told);
        if received >= part * told {
            return key(f64::INFINITY);
        }
        key(entry.floor + (entry.received - entry.floor_by) * entry.floor_put_off)
    }

    /// Whether the paces at which the floor was computed last are the present ones, and what was told has not changed since.
    pub(crate) fn knows_floor(&self, account: Account) -> bool {
        self.entries[account as usize].floor_of == self.tree.pace_changes()
    }

    /// Virtual time, comparable with what [`Self::tag`] and [`Self::floor`] give.
    pub(crate) fn now(&self) -> u64 {
        key(self.virtual_time)
    }

    /// How far the job's phase has come, if it is in one.
    pub(crate) fn report(&self, account: Account) -> Option<PhaseReport> {
        let entry = self.entries.get(account as usize).filter(|entry| entry.is_open)?;
        let fair = if entry.is_in { self.fair_now(entry) } else { entry.told };
        let of_phase = |service: f64| Nanos((service - entry.begun).max(0.0) as u64);
        Some(PhaseReport {
            job: entry.job,
            received: of_phase(entry.received),
            fair: of_phase(fair),
            expected: of_phase(entry.told),
            error: None,
        })
    }

    /// What the clock has served of the job by now.
    fn fair_now(&self, entry: &Entry) -> f64 {
        if !entry.is_in {
            return entry.fair;
        }
        if let Some(weight) = self.tree.weight_below_root(entry.leaf) {
            return entry.fair_at(self.virtual_time, weight);
        }
        let (weight, above) = self.tree.links(entry.leaf);
        let mut time = self.virtual_time;
        for (node, factor) in above.into_iter().filter(|(node, _)| *node != ROOT) {
            let (own, at) = self.nodes.get(node as usize).copied().unwrap_or_default();
            time = own + passed(time - at, factor);
        }
        entry.fair_at(time, weight)
    }

    /// Counts what the clock has served of the job up to now. To be called before it is counted in or out.
    fn settle(&mut self, account: Account) {
        let entry = &mut self.entries[account as usize];
        if let Some(weight) = self.tree.weight_below_root(entry.leaf) {
            entry.settle(self.virtual_time, weight);
            return;
        }
        let (weight, above) = self.tree.links(entry.leaf);
        let mut time = self.virtual_time;
        for (node, factor) in above.into_iter().filter(|(node, _)| *node != ROOT) {
            if self.nodes.len() <= node as usize {
                self.nodes.resize(node as usize + 1, (0.0, 0.0));
            }
            let (own, at) = &mut self.nodes[node as usize];
            *own += passed(time - *at, factor);
            *at = time;
            time = *own;
        }
        entry.settle(time, weight);
    }

    /// The phase is longer than was told, by `next` at least.
    fn tell_anew(&mut self, account: Account, next: Nanos) {
        // What was served beyond what was told does not count, as long as that is what is told.
        self.settle(account);
        let entry = &mut self.entries[account as usize];
        let least = entry.received.max(entry.fair) + next.0 as f64;
        entry.told = (entry.begun + (entry.told - entry.begun) * entry.growth).max(least);
        entry.told_anew();
        self.enter(account);
    }

    /// Serves the job in the clock, from now or as before, with what it is told to need.
    fn enter(&mut self, account: Account) {
        self.settle(account);
        let entry = &mut self.entries[account as usize];
        if !std::mem::replace(&mut entry.is_in, true) {
            entry.told_anew();
            self.tree.activate(entry.leaf);
        }
        self.reposition(account);
    }

    /// Brings a job that is in the clock to its position.
    fn reposition(&mut self, account: Account) {
        if self.entries[account as usize].is_in {
            let tag = self.tag(account);
            self.ends.set(account, (tag, self.entries[account as usize].job));
        }
    }

    fn leave(&mut self, account: Account) {
        self.settle(account);
        self.ends.remove(account);
        let entry = &mut self.entries[account as usize];
        (entry.is_in, entry.done, entry.left) = (false, self.virtual_time, self.now);
        entry.told_anew();
        self.tree.deactivate(entry.leaf);
        self.forget_if_done(account);
    }

    fn forget_if_done(&mut self, account: Account) {
        let entry = &self.entries[account as usize];
        if entry.is_gone && !entry.is_in {
            self.tree.remove(entry.leaf);
            self.vacant.push(account);
        }
    }
}

/// Virtual time of a node while that above it passes; none while nobody below is served.
fn passed(above: f64, factor: f64) -> f64 {
    if factor.is_finite() { (above * factor).max(0.0) } else { 0.0 }
}

/// A number that is not negative, as one that is in the same order.
fn key(value: f64) -> u64 {
    value.max(0.0).to_bits()
}

fn from_key(key: u64) -> f64 {
    f64::from_bits(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Entity;

    /// The second job of a user is alone there once the first is done, and so done sooner than was foreseen.
    #[test]
    fn nobody_is_served_beyond_what_was_told_before_it_was_told_anew() {
        let mut clock = FairClock::new(&[Level::new(Entity::User), Level::new(Entity::Job)]);
        let ms = |count: u64| Nanos::from_millis(count);
        let mut open = |job: u32, user: &str, told: u64| {
            let account = clock.open(JobId(job), &JobInfo::new("j", user, "g"));
            clock.begin(account, ms(told).0 as f64, 1.25);
            account
        };
        let (first, second, other) = (open(1, "ada", 1), open(2, "ada", 10), open(3, "ben", 1_000));
        for (account, served) in [(first, 1), (second, 10), (other, 19)] {
            clock.serve(account, ms(served));
        }
        clock.needs(second, ms(1));
        let report = clock.report(second).unwrap();
        assert!(report.fair <= ms(10) && report.expected > ms(10), "{report:?}");
    }
}
