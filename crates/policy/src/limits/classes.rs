//! The classes that rules make of requests, each with one queue: requests of a class leave in the order they came.
//!
//! The first rule that selects a request decides. A rule for `user:*` makes a class of every user, one for `user:ada`
//! a class of ada; all jobs of ada's are in it and share what it is given. What no rule selects of a job is in a class
//! of its own; so is that of all jobs together that are only claimed within one proof ([`JobInfo::within`]). (Lustre's TBF has
//! classes by uid, gid, or jobid in the same way; mClock's are virtual machines.)
//!
//! A class without jobs keeps its state until the arbiter says that it makes no difference: leaving and coming
//! back must not renew a limit.
//!
//! Which rules can select requests of a job is known when it is announced. Rules that do not look at operations and paths cost nothing
//! more for each request; where others make several classes of a job, a request that leaves before earlier ones of its job is
//! taken out of the middle of the job's queue, which is linear in that.

use crate::RequestId;
use crate::arbiter::{EnqueueError, Request};
use crate::nature::Nature;
use crate::queueing::roster::Roster;
use crate::spec::rates::Scope;
use crate::spec::{Entity, Level, proof_of};
use isonomia_units::{JobId, JobInfo, Nanos};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A rule: which requests it is for, and what it says of them.
pub(crate) struct Rule<T> {
    pub(crate) scope: Scope,
    /// The bits of [`Nature::below`] of which one has to be set, if the rule is for a path.
    pub(crate) below: Option<u64>,
    /// What a server does by itself for a job is not selected.
    pub(crate) is_for_requests: bool,
    pub(crate) value: T,
}

/// Whose class it is: the rule and the name that it selects, or a job that no rule does, or a proof with all that is
/// claimed within it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Rule(usize, Arc<str>),
    Job(JobId),
    Proof(Arc<str>),
}

/// The class of what no rule selects of a job.
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
    /// By slot: the classes of the job in the order of their rules. The last one takes everything that no other does.
    members: Vec<Vec<Member>>,
    /// Of requests in service whose jobs have several classes: the one that they are of.
    in_service: BTreeMap<RequestId, u32>,
}

/// A job in a class.
struct Member {
    class: u32,
    queued: u32,
    in_flight: u32,
    /// The time that the class was held by its rule while the job had something queued in it,
    held: Nanos,
    /// and what the class's own was when that began.
    held_from: Nanos,
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
    /// The sum over time of how many were queued, in request · ns, up to a time.
    backlog: (u128, Nanos),
    /// It was held by its rule for so long before, and is from the first time to the second.
    held: Nanos,
    hold: Option<(Nanos, Nanos)>,
}

/// What an enqueue found.
pub(crate) struct ClassArrival {
    pub(crate) class: u32,
    /// Nothing of the class was queued before.
    pub(crate) first: bool,
    /// Nothing of the class was queued or in flight for longer than the active window.
    pub(crate) returned: bool,
}

/// What is known of a class.
pub(crate) struct ClassReport<'a, S> {
    /// The rule, by its index,
    pub(crate) rule: usize,
    /// and whom of those that it selects the class is of.
    pub(crate) name: Arc<str>,
    pub(crate) state: &'a S,
    pub(crate) queued: usize,
    /// The sum over time of how many were queued, in request · ns.
    pub(crate) backlog: u128,
    /// How long it was held by its rule.
    pub(crate) held: Nanos,
    pub(crate) is_held: bool,
    /// Its jobs that were, and for how long.
    pub(crate) jobs: Vec<(JobId, Nanos)>,
}

impl<S> Class<S> {
    fn held(&self, now: Nanos) -> Nanos {
        self.held + self.hold.map_or(Nanos::ZERO, |(from, until)| until.min(now).since(from))
    }

    fn backlog(&self, now: Nanos) -> u128 {
        let (sum, at) = self.backlog;
        sum + self.queue.len() as u128 * u128::from(now.since(at).0)
    }

    /// To be called before the length of its queue changes.
    fn note_backlog(&mut self, now: Nanos) {
        self.backlog = (self.backlog(now), now);
    }
}

impl<T, S> Classes<T, S> {
    pub(crate) fn new(rules: Vec<Rule<T>>, active_window: Nanos) -> Self {
        Self {
            roster: Roster::new(&[Level::new(Entity::Job)], active_window),
            rules,
            active_window,
            classes: Vec::new(),
            vacant: Vec::new(),
            numbers: BTreeMap::new(),
            deserted: Vec::new(),
            members: Vec::new(),
            in_service: BTreeMap::new(),
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

    /// The rule of a class and whom of those that it selects it is of; `None` of what no rule selects.
    pub(crate) fn rule_of(&self, class: u32) -> Option<(usize, &Arc<str>)> {
        match &self.classes[class as usize].owner {
            Owner::Rule(at, name) => Some((*at, name)),
            Owner::Job(_) | Owner::Proof(_) => None,
        }
    }

    /// The classes that have an owner.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.numbers.values().copied().collect()
    }

    pub(crate) fn has_queued(&self, class: u32) -> bool {
        !self.classes[class as usize].queue.is_empty()
    }

    /// The oldest request of a class.
    pub(crate) fn first(&self, class: u32) -> Option<&Request> {
        let (number, slot) = *self.classes[class as usize].queue.front()?;
        self.roster.job(slot).request_at(number)
    }

    /// From `now` on the class is held by its rule until this time, or not at all.
    pub(crate) fn set_hold(&mut self, now: Nanos, class: u32, until: Option<Nanos>) {
        let class = &mut self.classes[class as usize];
        class.held = class.held(now);
        class.hold = until.filter(|until| *until > now).map(|until| (now, until));
    }

    /// Adds a job, or moves its requests to the classes that they belong to now. Gives the classes whose first requests may have
    /// changed. `state` makes the state of a new class, by rule and name; classes without jobs go if `is_spent` says so.
    pub(crate) fn set_job(
        &mut self,
        now: Nanos,
        job: JobId,
        info: &JobInfo,
        state: impl Fn(Option<(&T, usize, &Arc<str>)>) -> S,
        is_spent: impl Fn(&S) -> bool,
    ) -> Vec<u32> {
        let (slot, new) = self.roster.set_job(job, info);
        let owners = self.owners_of(job, info);
        if slot as usize == self.members.len() {
            self.members.push(Vec::new());
        }
        let is_of = |member: &Member, owner: &Owner| self.classes[member.class as usize].owner == *owner;
        let members = &self.members[slot as usize];
        if !new && members.len() == owners.len() && members.iter().zip(&owners).all(|(one, other)| is_of(one, other)) {
            return Vec::new();
        }
        let left = if new { Vec::new() } else { self.leave(now, slot) };
        self.drop_deserted(&left, is_spent);
        let mut joined = Vec::new();
        for owner in owners {
            let class = self.class_for(now, owner, &state);
            self.deserted.retain(|&other| other != class);
            let of = &mut self.classes[class as usize];
            of.jobs += 1;
            joined.push(Member { class, queued: 0, in_flight: 0, held: Nanos::ZERO, held_from: of.held(now) });
        }
        self.members[slot as usize] = joined;
        if new {
            return Vec::new();
        }
        // What is in service counts for the class that takes what no other does: nobody else knows of it any more.
        let in_flight = self.roster.job(slot).in_flight;
        if let Some(last) = self.members[slot as usize].last_mut() {
            last.in_flight = in_flight;
            self.classes[last.class as usize].in_flight += in_flight;
        }
        let queued: Vec<_> =
            self.roster.job(slot).requests().map(|(number, request)| (number, request.nature)).collect();
        for (number, nature) in queued {
            let class = self.member_for(slot, nature).0;
            let of = &mut self.classes[class as usize];
            of.note_backlog(now);
            of.queue.push_back((number, slot));
            self.count_queued(now, slot, class);
        }
        let mut affected = left;
        for member in &self.members[slot as usize] {
            self.classes[member.class as usize].queue.make_contiguous().sort_unstable();
            affected.push(member.class);
        }
        affected
    }

    /// Removes a job. Returns its classes and its queue.
    pub(crate) fn remove_job(&mut self, now: Nanos, job: JobId) -> Option<(Vec<u32>, Vec<Request>)> {
        let left = self.leave(now, self.roster.slot(job)?);
        let (_, queue) = self.roster.remove_job(job)?;
        Some((left, queue))
    }

    pub(crate) fn enqueue(&mut self, now: Nanos, request: Request) -> Result<ClassArrival, EnqueueError> {
        let arrival = self.roster.enqueue(request)?;
        let number = self.member_for(arrival.slot, request.nature).0;
        let class = &mut self.classes[number as usize];
        class.note_backlog(now);
        let first = class.queue.is_empty();
        let idle = first && class.in_flight == 0;
        let returned = idle && now.since(class.busy_until) >= self.active_window;
        class.queue.push_back((arrival.number, arrival.slot));
        self.count_queued(now, arrival.slot, number);
        Ok(ClassArrival { class: number, first, returned })
    }

    /// The oldest request of a class goes into service; with what it is charged.
    pub(crate) fn dispatch(&mut self, now: Nanos, class: u32) -> Option<(Request, Nanos)> {
        let own = &mut self.classes[class as usize];
        own.note_backlog(now);
        let (number, slot) = own.queue.pop_front()?;
        let (request, cost) = self.roster.dispatch_at(slot, number)?;
        own.in_flight += 1;
        self.count_out(now, slot, class);
        let members = &mut self.members[slot as usize];
        if members.len() > 1 {
            self.in_service.insert(request.id, class);
        }
        if let Some(member) = members.iter_mut().find(|member| member.class == class) {
            member.in_flight += 1;
        }
        Some((request, cost))
    }

    /// A request in service has ended.
    pub(crate) fn complete(&mut self, now: Nanos, request: RequestId, job: JobId) {
        let of = self.in_service.remove(&request);
        let Some(slot) = self.roster.complete(job) else { return };
        let members = &mut self.members[slot as usize];
        // Those that were in service when the job changed its classes count for the last one.
        let at = of.and_then(|of| members.iter().position(|member| member.class == of && member.in_flight > 0));
        let at = at.or_else(|| members.iter().position(|member| member.in_flight > 0));
        let Some(member) = at.map(|at| &mut members[at]) else { return };
        member.in_flight -= 1;
        let class = &mut self.classes[member.class as usize];
        class.in_flight -= 1;
        class.busy_until = now;
    }

    /// Drops a queued request. Returns its class. Linear in the queue of the class.
    pub(crate) fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> Option<u32> {
        let (slot, number, nature) = self.roster.cancel(request, job)?;
        let class = self.member_for(slot, nature).0;
        let own = &mut self.classes[class as usize];
        own.note_backlog(now);
        own.queue.retain(|&(other, _)| other != number);
        own.busy_until = now;
        self.count_out(now, slot, class);
        Some(class)
    }

    pub(crate) fn drain(&mut self) -> Vec<Request> {
        let now = self.roster.advance(Nanos::ZERO);
        for class in &mut self.classes {
            class.note_backlog(now);
            class.queue.clear();
        }
        self.members.iter_mut().flatten().for_each(|member| member.queued = 0);
        self.roster.drain()
    }

    pub(crate) fn queued(&self) -> usize {
        self.roster.queued()
    }

    pub(crate) fn queued_of(&self, job: JobId) -> usize {
        self.roster.queued_of(job)
    }

    /// The classes that rules make, by rule and name.
    pub(crate) fn reports(&self, now: Nanos) -> Vec<ClassReport<'_, S>> {
        let mut jobs: BTreeMap<u32, Vec<(JobId, Nanos)>> = BTreeMap::new();
        for slot in self.roster.slots() {
            for member in &self.members[slot as usize] {
                let held = member.held(now, &self.classes[member.class as usize]);
                if held > Nanos::ZERO {
                    jobs.entry(member.class).or_default().push((self.roster.job(slot).id, held));
                }
            }
        }
        let report = |(owner, number): (&Owner, &u32)| {
            let Owner::Rule(rule, name) = owner else { return None };
            let class = &self.classes[*number as usize];
            Some(ClassReport {
                rule: *rule,
                name: name.clone(),
                state: &class.state,
                queued: class.queue.len(),
                backlog: class.backlog(now),
                held: class.held(now),
                is_held: class.hold.is_some_and(|(_, until)| until > now),
                jobs: jobs.remove(number).unwrap_or_default(),
            })
        };
        self.numbers.iter().filter_map(report).collect()
    }

    /// The owners of the classes that a job's requests are in, in the order of their rules.
    fn owners_of(&self, job: JobId, info: &JobInfo) -> Vec<Owner> {
        let mut owners = Vec::new();
        for (at, rule) in self.rules.iter().enumerate().filter(|(_, rule)| rule.scope.selects_job(info)) {
            owners.push(Owner::Rule(at, rule.scope.class_of(info)));
            if rule.takes_all() {
                return owners;
            }
        }
        owners.push(own_class(job, info));
        owners
    }

    /// The class of a job's request, and its position among the job's.
    fn member_for(&self, slot: u32, nature: Nature) -> (u32, usize) {
        let members = &self.members[slot as usize];
        let last = members.len() - 1;
        let selects = |member: &Member| match &self.classes[member.class as usize].owner {
            Owner::Rule(at, _) => self.rules[*at].selects(nature),
            Owner::Job(_) | Owner::Proof(_) => true,
        };
        let at = members[..last].iter().position(selects).unwrap_or(last);
        (members[at].class, at)
    }

    /// A job has one more request queued in a class.
    fn count_queued(&mut self, now: Nanos, slot: u32, class: u32) {
        let held = self.classes[class as usize].held(now);
        if let Some(member) = self.members[slot as usize].iter_mut().find(|member| member.class == class) {
            if member.queued == 0 {
                member.held_from = held;
            }
            member.queued += 1;
        }
    }

    /// A job has one less.
    fn count_out(&mut self, now: Nanos, slot: u32, class: u32) {
        let of = &self.classes[class as usize];
        if let Some(member) = self.members[slot as usize].iter_mut().find(|member| member.class == class) {
            if member.queued == 1 {
                member.held = member.held(now, of);
            }
            member.queued = member.queued.saturating_sub(1);
        }
    }

    /// Takes a job out of its classes, which it returns.
    fn leave(&mut self, now: Nanos, slot: u32) -> Vec<u32> {
        let members = std::mem::take(&mut self.members[slot as usize]);
        for member in &members {
            let class = &mut self.classes[member.class as usize];
            class.note_backlog(now);
            class.jobs -= 1;
            class.in_flight -= member.in_flight;
            class.queue.retain(|&(_, other)| other != slot);
            if class.jobs == 0 {
                self.deserted.push(member.class);
            }
        }
        members.iter().map(|member| member.class).collect()
    }

    /// The class of `owner`, which is made if there is none.
    fn class_for(&mut self, now: Nanos, owner: Owner, state: &impl Fn(Option<(&T, usize, &Arc<str>)>) -> S) -> u32 {
        if let Some(&class) = self.numbers.get(&owner) {
            return class;
        }
        let state = match &owner {
            Owner::Rule(at, name) => state(Some((&self.rules[*at].value, *at, name))),
            Owner::Job(_) | Owner::Proof(_) => state(None),
        };
        let class = Class {
            owner: owner.clone(),
            state,
            jobs: 0,
            in_flight: 0,
            busy_until: Nanos::ZERO,
            queue: VecDeque::new(),
            backlog: (0, now),
            held: Nanos::ZERO,
            hold: None,
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
    fn drop_deserted(&mut self, keep: &[u32], is_spent: impl Fn(&S) -> bool) {
        let (classes, numbers, vacant) = (&self.classes, &mut self.numbers, &mut self.vacant);
        self.deserted.retain(|&number| {
            let class = &classes[number as usize];
            if keep.contains(&number) || !is_spent(&class.state) {
                return true;
            }
            numbers.remove(&class.owner);
            vacant.push(number);
            false
        });
    }
}

impl Member {
    fn held<S>(&self, now: Nanos, class: &Class<S>) -> Nanos {
        if self.queued == 0 { self.held } else { self.held + class.held(now).since(self.held_from) }
    }
}

impl<T> Rule<T> {
    /// For all requests of those that it selects.
    fn takes_all(&self) -> bool {
        !self.is_for_requests && self.scope.operations.is_none() && self.below.is_none()
    }

    fn selects(&self, nature: Nature) -> bool {
        let is_below = self.below.is_none_or(|bits| nature.below & bits != 0);
        let of_operation = match nature.operation {
            Some(operation) => self.scope.operations.as_ref().is_none_or(|all| all.contains(&operation)),
            None => !self.is_for_requests,
        };
        is_below && of_operation
    }
}
