//! The classes that rules make of jobs, each with one queue: requests of a class leave in the order they came.
//!
//! The first rule that selects a job decides. A rule for `user:*` makes a class of every user, one for `user:ada`
//! a class of ada; all jobs of ada's are in it and share what it is given. A job that no rule selects is a class
//! of its own; so are all jobs together that are only claimed within one proof ([`JobInfo::within`]). (Lustre's TBF has classes by uid, gid, or jobid in the same way; mClock's are virtual machines.)
//!
//! A class without jobs keeps its state until the arbiter says that it makes no difference: leaving and coming
//! back must not renew a limit.

use crate::arbiter::{EnqueueError, Request};
use crate::queueing::roster::Roster;
use crate::spec::scheme::Rule;
use crate::spec::{Entity, Level, proof_of};
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Whose class it is: the rule and the name that it selects, or a job that no rule does, or a proof with all that is
/// claimed within it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Rule(usize, Arc<str>),
    Job(JobId),
    Proof(Arc<str>),
}

/// The class of a job that no rule selects.
fn own_class(job: JobId, info: &JobInfo) -> Owner {
    proof_of(info).map_or(Owner::Job(job), Owner::Proof)
}

/// The jobs of one target in classes with a state `S` each.
pub(crate) struct Classes<T, S> {
    roster: Roster,
    rules: Vec<Rule<T>>,
    active_window: Nanos,
    /// By number. Numbers of classes that are gone are reused.
    classes: Vec<Class<S>>,
    vacant: Vec<u32>,
    numbers: BTreeMap<Owner, u32>,
    /// Classes without jobs.
    deserted: Vec<u32>,
    /// By slot.
    class_of: Vec<u32>,
}

struct Class<S> {
    owner: Owner,
    state: S,
    jobs: u32,
    in_flight: u32,
    /// The last time that something of it was queued or in flight.
    busy_until: Nanos,
    /// Arrival numbers and slots of what is queued, ascending.
    queue: VecDeque<(u64, u32)>,
}

/// What an enqueue found.
pub(crate) struct ClassArrival {
    pub(crate) class: u32,
    /// Nothing of the class was queued before.
    pub(crate) first: bool,
    /// Nothing of the class was queued or in flight for longer than the active window.
    pub(crate) returned: bool,
}

impl<T, S> Classes<T, S> {
    pub(crate) fn new(rules: &[Rule<T>], active_window: Nanos) -> Self
    where
        T: Clone,
    {
        Self {
            roster: Roster::new(&[Level::new(Entity::Job)], active_window),
            rules: rules.to_vec(),
            active_window,
            classes: Vec::new(),
            vacant: Vec::new(),
            numbers: BTreeMap::new(),
            deserted: Vec::new(),
            class_of: Vec::new(),
        }
    }

    pub(crate) fn advance(&mut self, now: Nanos) -> Nanos {
        let now = self.roster.advance(now);
        while self.roster.expire_one().is_some() {}
        now
    }

    pub(crate) fn state(&self, class: u32) -> &S {
        &self.classes[class as usize].state
    }

    pub(crate) fn state_mut(&mut self, class: u32) -> &mut S {
        &mut self.classes[class as usize].state
    }

    pub(crate) fn has_queued(&self, class: u32) -> bool {
        !self.classes[class as usize].queue.is_empty()
    }

    /// What the oldest request of a class is charged; zero if there is none.
    pub(crate) fn first_cost(&self, class: u32) -> Nanos {
        let first = self.classes[class as usize].queue.front();
        first.and_then(|&(_, slot)| self.roster.job(slot).first_cost()).unwrap_or(Nanos::ZERO)
    }

    /// Adds a job, or moves it to the class that it belongs to now. Returns the class that it left, if it did, and its
    /// class: their first requests may have changed. `state` makes the state of a new class; classes without
    /// jobs go if `is_spent` says so.
    pub(crate) fn set_job(
        &mut self,
        job: JobId,
        info: &JobInfo,
        state: impl FnOnce(Option<&T>) -> S,
        is_spent: impl Fn(&S) -> bool,
    ) -> (Option<u32>, u32) {
        let (slot, new) = self.roster.set_job(job, info);
        let rule = self.rules.iter().position(|rule| rule.selector.selects(info));
        let owner =
            rule.map_or_else(|| own_class(job, info), |at| Owner::Rule(at, self.rules[at].selector.class_of(info)));
        if !new && self.classes[self.class_of[slot as usize] as usize].owner == owner {
            return (None, self.class_of[slot as usize]);
        }
        let left = (!new).then(|| self.leave(slot));
        self.drop_deserted(left, is_spent);
        let class = self.class_for(owner, rule, state);
        self.deserted.retain(|&other| other != class);
        if slot as usize == self.class_of.len() {
            self.class_of.push(class);
        } else {
            self.class_of[slot as usize] = class;
        }
        let joined = &mut self.classes[class as usize];
        joined.jobs += 1;
        joined.in_flight += self.roster.job(slot).in_flight;
        if !new {
            joined.queue.extend(self.roster.job(slot).arrivals().map(|number| (number, slot)));
            joined.queue.make_contiguous().sort_unstable();
        }
        (left, class)
    }

    /// Removes a job. Returns its class and its queue.
    pub(crate) fn remove_job(&mut self, job: JobId) -> Option<(u32, Vec<Request>)> {
        let class = self.leave(self.roster.slot(job)?);
        let (_, queue) = self.roster.remove_job(job)?;
        Some((class, queue))
    }

    pub(crate) fn enqueue(&mut self, now: Nanos, request: Request) -> Result<ClassArrival, EnqueueError> {
        let arrival = self.roster.enqueue(request)?;
        let number = self.class_of[arrival.slot as usize];
        let class = &mut self.classes[number as usize];
        let first = class.queue.is_empty();
        let idle = first && class.in_flight == 0;
        let returned = idle && now.since(class.busy_until) >= self.active_window;
        class.queue.push_back((arrival.number, arrival.slot));
        Ok(ClassArrival { class: number, first, returned })
    }

    /// The oldest request of a class goes into service; with what it is charged.
    pub(crate) fn dispatch(&mut self, class: u32) -> Option<(Request, Nanos)> {
        let own = &mut self.classes[class as usize];
        let (_, slot) = own.queue.pop_front()?;
        let (request, cost, _) = self.roster.dispatch(slot)?;
        own.in_flight += 1;
        Some((request, cost))
    }

    /// A request in service has ended.
    pub(crate) fn complete(&mut self, now: Nanos, job: JobId) {
        let Some(slot) = self.roster.complete(job) else { return };
        let class = &mut self.classes[self.class_of[slot as usize] as usize];
        class.in_flight -= 1;
        class.busy_until = now;
    }

    /// Drops a queued request. Returns its class. Linear in the queue of the class.
    pub(crate) fn cancel(&mut self, now: Nanos, request: crate::RequestId, job: JobId) -> Option<u32> {
        let (slot, number) = self.roster.cancel(request, job)?;
        let class = self.class_of[slot as usize];
        let own = &mut self.classes[class as usize];
        own.queue.retain(|&(other, _)| other != number);
        own.busy_until = now;
        Some(class)
    }

    pub(crate) fn drain(&mut self) -> Vec<Request> {
        for class in &mut self.classes {
            class.queue.clear();
        }
        self.roster.drain()
    }

    pub(crate) fn queued(&self) -> usize {
        self.roster.queued()
    }

    pub(crate) fn queued_of(&self, job: JobId) -> usize {
        self.roster.queued_of(job)
    }

    /// Takes a job out of its class, which it returns.
    fn leave(&mut self, slot: u32) -> u32 {
        let number = self.class_of[slot as usize];
        let class = &mut self.classes[number as usize];
        class.jobs -= 1;
        class.in_flight -= self.roster.job(slot).in_flight;
        class.queue.retain(|&(_, other)| other != slot);
        if class.jobs == 0 {
            self.deserted.push(number);
        }
        number
    }

    /// The class of `owner`, which is made if there is none.
    fn class_for(&mut self, owner: Owner, rule: Option<usize>, state: impl FnOnce(Option<&T>) -> S) -> u32 {
        if let Some(&class) = self.numbers.get(&owner) {
            return class;
        }
        let state = state(rule.map(|at| &self.rules[at].value));
        let class = Class {
            owner: owner.clone(),
            state,
            jobs: 0,
            in_flight: 0,
            busy_until: Nanos::ZERO,
            queue: VecDeque::new(),
        };
        let number = self.vacant.pop().unwrap_or(self.classes.len() as u32);
        if number as usize == self.classes.len() {
            self.classes.push(class);
        } else {
            self.classes[number as usize] = class;
        }
        self.numbers.insert(owner, number);
        number
    }

    /// Forgets the classes that have no jobs and whose state makes no difference, all but `keep`.
    fn drop_deserted(&mut self, keep: Option<u32>, is_spent: impl Fn(&S) -> bool) {
        let (classes, numbers, vacant) = (&self.classes, &mut self.numbers, &mut self.vacant);
        self.deserted.retain(|&number| {
            let class = &classes[number as usize];
            if Some(number) == keep || !is_spent(&class.state) {
                return true;
            }
            numbers.remove(&class.owner);
            vacant.push(number);
            false
        });
    }
}
