//! A controller and its followers in virtual time, with messages that are lost, come twice or late, and processes that are
//! killed at any moment.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use isonomia_controller::{
    Allocation, Ask, CHECK_EVERY, Change, Controller, Decision, Effect, FLOOR, Follower, Kept, Moment,
    PARTS_PER_TARGET, Plan, Reached, Refused, Report, ReportedJob, Settings, TIMEOUT, Term, Use, Using, Wanted,
    lease_looked_at_every, lease_s, renewed_every, validity,
};
use isonomia_policy::PolicySpec;
use isonomia_units::{JobInfo, Nanos, ServerId, TargetId};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use std::collections::{BTreeMap, BTreeSet};

const INTERVAL: Nanos = Nanos::from_secs(10);
const SERVERS: u16 = 4;
/// How long messages take that are not late.
const DELAY_MAX: Nanos = Nanos::from_millis(40);
/// Followers look after their state so often.
const LOOK_EVERY: Nanos = Nanos::from_millis(500);

#[derive(Clone)]
enum Message {
    Ask(Ask),
    Report(Report),
    Allocation(Allocation),
}

/// Why things go wrong.
#[derive(Clone, Copy, Debug)]
struct Faults {
    lost: f64,
    twice: f64,
    late: f64,
    kills: bool,
}

/// What does not come through between a server and all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Both,
    ToIt,
    FromIt,
}

fn moment(now: Nanos) -> Moment {
    Moment { now, wall: now }
}

struct World {
    now: Nanos,
    interval: Nanos,
    /// Everybody looks whether something is due so often.
    look_every: Nanos,
    cut: Option<(ServerId, Cut)>,
    chance: Pcg32,
    faults: Faults,
    /// By time and a number.
    sent: BTreeMap<(Nanos, u64), (ServerId, ServerId, Message)>,
    count: u64,
    /// Of the present and of a former controller, which may not know that it is one no more.
    controllers: BTreeMap<ServerId, Controller>,
    followers: BTreeMap<ServerId, Follower>,
    /// Who follows an allocation, and when that came or was renewed.
    applied: BTreeMap<ServerId, Nanos>,
    /// The highest term and version that each follower followed.
    followed: BTreeMap<ServerId, (Term, u64)>,
    /// What is on stable storage: of the ledger, which whoever takes over finds.
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    term: u64,
    bytes: usize,
    gift: PolicySpec,
    /// Whose I/O goes where at present.
    busy: BTreeSet<(ServerId, u8)>,
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let servers = || (1..=SERVERS).map(ServerId);
        Self {
            now: Nanos::ZERO,
            interval: INTERVAL,
            look_every: LOOK_EVERY,
            cut: None,
            chance: Pcg32::seed_from_u64(seed),
            faults,
            sent: BTreeMap::new(),
            count: 0,
            controllers: BTreeMap::new(),
            followers: servers().map(|server| (server, Follower::default())).collect(),
            applied: BTreeMap::new(),
            followed: BTreeMap::new(),
            records: BTreeMap::new(),
            term: 0,
            bytes: 0,
            gift: "gift{window=2000000,system-window=2000000,period=100s}".parse().unwrap(),
            busy: BTreeSet::new(),
        }
    }

    fn kept(&self) -> Kept {
        let kept = Kept::read(self.records.iter().map(|(key, value)| (&key[..], &value[..]))).unwrap();
        assert!(kept.accounts.values().all(|account| account.record.balance().is_some_and(|b| b.is_conserved())));
        kept
    }

    /// Another process on `server` is the controller from now on; the one before may go on for a while.
    fn take_over(&mut self, server: ServerId) {
        self.term += 1;
        let plan = Plan::new(&self.gift, self.interval, self.kept()).unwrap().unwrap();
        let settings = Settings { term: Term { epoch: 1, number: self.term }, interval: self.interval };
        let controller = Controller::new(self.now, settings, plan, (1..=SERVERS).map(ServerId));
        self.controllers.insert(server, controller);
    }

    fn send(&mut self, from: ServerId, to: ServerId, message: Message) {
        self.bytes += match &message {
            Message::Ask(ask) => ask.encode().len(),
            Message::Report(report) => report.encode().len(),
            Message::Allocation(allocation) => allocation.encode().len(),
        };
        if let Some((server, cut)) = self.cut
            && (from == server && to != server && cut != Cut::ToIt
                || to == server && from != server && cut != Cut::FromIt)
        {
            return;
        }
        let copies = if self.chance.random_bool(self.faults.twice) { 2 } else { 1 };
        for _ in 0..copies {
            if self.chance.random_bool(self.faults.lost) {
                continue;
            }
            let is_late = self.chance.random_bool(self.faults.late);
            let most = if is_late { INTERVAL.0 * 3 } else { DELAY_MAX.0 };
            let at = self.now + Nanos(self.chance.random_range(1..most));
            self.count += 1;
            self.sent.insert((at, self.count), (from, to, message.clone()));
        }
    }

    fn act(&mut self, from: ServerId, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Keep(changes) => {
                    // A process may be killed before it has stored anything, or before it has sent what it decided.
                    if self.faults.kills && self.chance.random_bool(0.05) {
                        self.controllers.remove(&from);
                        return;
                    }
                    self.keep(changes);
                    if self.faults.kills && self.chance.random_bool(0.05) {
                        self.controllers.remove(&from);
                        return;
                    }
                }
                Effect::Ask { to, ask } => self.send(from, to, Message::Ask(ask)),
                Effect::Allocate { to, allocation } => self.send(from, to, Message::Allocation(allocation)),
                Effect::NoQuorum { .. } => {}
                Effect::Failed(error) => panic!("{error}"),
            }
        }
    }

    fn keep(&mut self, changes: Vec<Change>) {
        for (key, value) in changes {
            match value {
                Some(value) => self.records.insert(key, value),
                None => self.records.remove(&key),
            };
        }
        self.kept();
    }

    /// What uses the target of a server now.
    fn using(&self, server: ServerId) -> Vec<Using> {
        let here = self.busy.iter().filter(|(at, _)| *at == server);
        let using = |(_, job): &(ServerId, u8)| {
            let info = JobInfo { nodes: 4, ..JobInfo::new(&format!("job{job}"), "ada", "astro") };
            Using { job: ReportedJob::from(&info), at: vec![(TargetId(server.0), Use::default())] }
        };
        here.map(using).collect()
    }

    fn receive(&mut self, from: ServerId, to: ServerId, message: Message) {
        let (now, using) = (self.now, self.using(to));
        let follower = self.followers.get_mut(&to).unwrap();
        match message {
            Message::Ask(ask) => {
                let before = follower.controller().map(|(_, term)| term);
                let taken = follower.ask(now, from, &ask);
                assert!(before.is_none_or(|before| before <= follower.controller().unwrap().1));
                if let Ok(wanted) = taken {
                    if let Some(at) = self.applied.get_mut(&to) {
                        *at = now;
                    }
                    let report = match wanted {
                        Wanted::Answer => follower.answer(&using),
                        Wanted::Report => follower.report(now, &using),
                        Wanted::Nothing => return,
                    };
                    self.send(to, from, Message::Report(report));
                }
            }
            Message::Report(report) => {
                let mut effects = Vec::new();
                if let Some(controller) = self.controllers.get_mut(&to) {
                    let _ = controller.report(moment(now), from, report, &mut effects);
                }
                self.act(to, effects);
            }
            Message::Allocation(allocation) => {
                let is = (allocation.term, allocation.version);
                match follower.take(now, from, allocation) {
                    Ok(Decision::Parts(parts)) => {
                        let given: u64 = parts.values().map(|parts| u64::from(*parts)).sum();
                        let rounding = parts.len() as u64;
                        assert!(given <= u64::from(PARTS_PER_TARGET) + rounding, "{given} of one target");
                    }
                    Ok(Decision::Ranks(_)) => panic!("an order under gift"),
                    // It says so at once, as something that has changed.
                    Err(Refused::NotCurrent { .. }) => {
                        let report = follower.report(now, &using);
                        return self.send(to, from, Message::Report(report));
                    }
                    Err(_) => return,
                }
                let before = self.followed.insert(to, is);
                assert!(before.is_none_or(|before| before < is), "{before:?} {is:?}");
                self.applied.insert(to, now);
            }
        }
    }

    /// What each server does by itself.
    fn look(&mut self) {
        let now = self.now;
        for server in (1..=SERVERS).map(ServerId) {
            let follower = self.followers.get_mut(&server).unwrap();
            if follower.expire(now) {
                self.applied.remove(&server);
            }
            // What has not been renewed is over.
            let longest = validity(renewed_every(self.interval, false)) + LOOK_EVERY;
            let is_stale = |at: &Nanos| now.since(*at) > longest;
            assert!(!self.applied.get(&server).is_some_and(is_stale), "server {server} at {now:?}");
            let using = self.using(server);
            let follower = self.followers.get_mut(&server).unwrap();
            if let Some(report) = follower.look(now, self.interval, false, &using)
                && let Some((to, _)) = self.controllers.iter().max_by_key(|(_, controller)| controller.term())
            {
                let to = *to;
                self.send(server, to, Message::Report(report));
            }
        }
        for server in self.controllers.keys().copied().collect::<Vec<_>>() {
            let mut effects = Vec::new();
            let controller = self.controllers.get_mut(&server).unwrap();
            if controller.wake_at() <= now {
                controller.tick(moment(now), &mut effects);
            }
            self.act(server, effects);
        }
    }

    fn run(&mut self, until: Nanos) {
        let mut next_look = self.now + self.look_every;
        while self.now < until {
            let next = self.sent.first_key_value().map(|(key, _)| *key).filter(|(at, _)| *at < next_look);
            match next {
                Some(key) => {
                    self.now = key.0;
                    let (from, to, message) = self.sent.remove(&key).unwrap();
                    self.receive(from, to, message);
                }
                None => {
                    self.now = next_look;
                    next_look = self.now + self.look_every;
                    self.look();
                }
            }
        }
    }

    /// Some jobs begin and end.
    fn change_jobs(&mut self) {
        for server in 1..=SERVERS {
            for job in 0..6 {
                if self.chance.random_bool(0.3) {
                    self.busy.insert((ServerId(server), job));
                } else if self.chance.random_bool(0.3) {
                    self.busy.remove(&(ServerId(server), job));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whatever happens: nobody follows an old controller, nothing is followed that was not renewed, no coupon is lost or made
    /// up. And once things go well again, everybody with jobs follows the last controller within two intervals.
    #[test]
    fn it_is_right_whatever_is_lost_late_or_repeated(
        seed in any::<u64>(), lost in 0.0..0.5, twice in 0.0..0.3, late in 0.0..0.3, kills in any::<bool>(),
    ) {
        let mut world = World::new(seed, Faults { lost, twice, late, kills });
        world.take_over(ServerId(1));
        for _ in 0..30 {
            world.change_jobs();
            if world.controllers.is_empty() || world.chance.random_bool(0.1) {
                let server = ServerId(world.chance.random_range(1..=SERVERS));
                world.take_over(server);
            }
            let until = world.now + INTERVAL;
            world.run(until);
        }
        world.faults = Faults { lost: 0.0, twice: 0.0, late: 0.0, kills: false };
        // What is under way from before still comes.
        let until = world.now + Nanos(INTERVAL.0 * 3);
        world.run(until);
        world.controllers.clear();
        world.take_over(ServerId(2));
        (1..=SERVERS).for_each(|server| _ = world.busy.insert((ServerId(server), 0)));
        let until = world.now + Nanos(INTERVAL.0 * 2);
        world.run(until);
        for server in (1..=SERVERS).map(ServerId) {
            let follower = &world.followers[&server];
            prop_assert_eq!(follower.controller(), Some((ServerId(2), Term { epoch: 1, number: world.term })));
            prop_assert!(follower.version() > 0, "server {} has nothing", server);
        }
        prop_assert!(!world.kept().accounts.is_empty() || world.kept().system.is_some());
    }
}

/// Fewer than four of five servers: nothing is decided, and what was decided ends.
#[test]
fn without_a_quorum_targets_share_fairly() {
    let mut world = World::new(7, Faults { lost: 0.0, twice: 0.0, late: 0.0, kills: false });
    world.take_over(ServerId(1));
    (1..=SERVERS).for_each(|server| _ = world.busy.insert((ServerId(server), 0)));
    world.run(Nanos::from_secs(15));
    assert_eq!(world.applied.len(), usize::from(SERVERS));
    world.faults.lost = 1.0;
    world.run(Nanos::from_secs(15) + validity(renewed_every(INTERVAL, false)) + LOOK_EVERY + LOOK_EVERY);
    assert_eq!(world.applied, BTreeMap::new());
    // Who decides notices when he asks the next time.
    world.run(Nanos::from_secs(15) + CHECK_EVERY + INTERVAL + INTERVAL);
    assert!(world.controllers[&ServerId(1)].counts().without_quorum > 0);
}

/// A cut network between a server and the controller: three intervals and a second after it hears nothing more it shares fairly, the others
/// follow on without it, and when it is heard again it is told everything.
#[test]
fn a_server_that_is_cut_off_soon_shares_fairly_and_comes_back() {
    let mut world = World::new(7, Faults { lost: 0.0, twice: 0.0, late: 0.0, kills: false });
    world.take_over(ServerId(1));
    (1..=SERVERS).for_each(|server| _ = world.busy.insert((ServerId(server), 0)));
    world.run(Nanos::from_secs(95));
    let cut = ServerId(2);
    for direction in [Cut::Both, Cut::ToIt, Cut::FromIt] {
        world.cut = Some((cut, direction));
        let begun = world.now;
        let mut soonest = None;
        while world.now < begun + Nanos(INTERVAL.0 * 12) {
            let until = world.now + LOOK_EVERY;
            world.run(until);
            if soonest.is_none() && !world.applied.contains_key(&cut) {
                soonest = Some(world.now.since(begun));
            }
        }
        // The others are too few to decide until it counts as gone.
        let others = (1..=SERVERS).map(ServerId).filter(|server| *server != cut);
        assert!(others.clone().all(|server| world.applied.contains_key(&server)), "{direction:?}: {:?}", world.applied);
        let expired = soonest.filter(|after| *after <= Nanos(INTERVAL.0 * 3) + TIMEOUT + LOOK_EVERY);
        assert!(soonest.is_some() && (direction == Cut::FromIt || expired.is_some()), "{direction:?}: for {soonest:?}");
        world.cut = None;
        // It is asked when the next interval begins, and told by the end of that round.
        let until = world.now + INTERVAL + TIMEOUT;
        world.run(until);
        assert_eq!(world.applied.len(), usize::from(SERVERS), "after {direction:?}");
        assert!(world.controllers[&ServerId(1)].counts().absent == 0);
        let until = world.now + Nanos(INTERVAL.0 * 4);
        world.run(until);
    }
}

/// What an hour costs on the network, without I/O and with it.
#[test]
fn where_nothing_changes_next_to_nothing_is_said() {
    let mut world = World::new(7, Faults { lost: 0.0, twice: 0.0, late: 0.0, kills: false });
    world.take_over(ServerId(1));
    world.run(Nanos::from_secs(3_600));
    let idle = world.bytes;
    assert!(idle < usize::from(SERVERS) * 12 * 20, "{idle} bytes in an hour without I/O");
    (1..=SERVERS).for_each(|server| _ = world.busy.insert((ServerId(server), 0)));
    world.run(Nanos::from_secs(7_200));
    let busy = world.bytes - idle;
    // A question and its answer every minute, and four bytes that renew four times in between.
    assert!(busy < usize::from(SERVERS) * (60 * (12 + 4 * 4) + 100), "{busy} bytes in an hour with I/O");
    assert_eq!(world.applied.len(), usize::from(SERVERS), "and all follow the controller");
}

/// A server that is killed and comes back knows nothing, and is soon told everything.
#[test]
fn a_server_that_begins_anew_follows_again() {
    let mut world = World::new(7, Faults { lost: 0.0, twice: 0.0, late: 0.0, kills: false });
    world.take_over(ServerId(1));
    (1..=SERVERS).for_each(|server| _ = world.busy.insert((ServerId(server), 0)));
    world.run(Nanos::from_secs(15));
    let again = ServerId(2);
    world.followers.insert(again, Follower::default());
    world.applied.remove(&again);
    world.followed.remove(&again);
    let until = world.now + INTERVAL + INTERVAL;
    world.run(until);
    assert!(world.followers[&again].version() > 0);
    assert_eq!(world.controllers[&ServerId(1)].counts().jobs, 1);
}

/// A server without jobs that is silent once is asked again within a minute, and not as late as one that has said so.
#[test]
fn who_is_silent_at_first_is_soon_asked_again() {
    let mut world = World::new(7, Faults { lost: 1.0, twice: 0.0, late: 0.0, kills: false });
    world.take_over(ServerId(1));
    world.run(Nanos::from_secs(5));
    world.faults.lost = 0.0;
    world.run(Nanos::from_secs(75));
    let heard = |follower: &Follower| follower.controller().map(|(server, _)| server);
    assert!(world.followers.values().all(|follower| heard(follower) == Some(ServerId(1))));
}

/// A report that is lost is missed when the server is asked the next time, and what it said is asked for.
#[test]
fn what_is_lost_is_asked_for() {
    let mut world = World::new(7, Faults { lost: 0.0, twice: 0.0, late: 0.0, kills: false });
    world.take_over(ServerId(1));
    let both = [(ServerId(1), 0), (ServerId(2), 0)];
    world.busy.extend(both);
    world.run(Nanos::from_secs(15));
    world.faults.lost = 1.0;
    world.busy.insert((ServerId(2), 1));
    world.run(Nanos::from_secs(17));
    world.faults.lost = 0.0;
    world.run(Nanos::from_secs(16) + CHECK_EVERY + INTERVAL + INTERVAL);
    assert_eq!(world.controllers[&ServerId(1)].counts().jobs, 2);
}

#[test]
fn a_controller_that_begins_again_in_its_term_is_heeded() {
    let spec: PolicySpec = "bsip".parse().unwrap();
    let settings = Settings { term: Term { epoch: 1, number: 7 }, interval: INTERVAL };
    let own = ServerId(1);
    let begin = |now| {
        let plan = Plan::new(&spec, INTERVAL, Kept::default()).unwrap().unwrap();
        Controller::new(now, settings, plan, [own])
    };
    let (mut follower, mut reached, mut now) = (Follower::default(), Reached::default(), Nanos::ZERO);
    // As after each change of the policy, and whenever the ledger could not be stored.
    for _ in 0..3 {
        let mut controller = begin(now).after(reached);
        for _ in 0..4 {
            let mut effects = Vec::new();
            now = controller.wake_at().max(now);
            controller.tick(moment(now), &mut effects);
            let asked = effects.iter().filter_map(|effect| match effect {
                Effect::Ask { ask, .. } => Some(follower.ask(now, own, ask)),
                _ => None,
            });
            assert!(asked.inspect(|heeded| assert!(heeded.is_ok())).count() > 0 || controller.reached().round > 0);
            now += TIMEOUT;
        }
        assert!(controller.reached().round > reached.round);
        reached = controller.reached();
        follower.forget();
    }
    assert_eq!(begin(now).after(Reached { term: Term { epoch: 1, number: 6 }, ..reached }).reached().round, 0);
}

/// The server that decides is killed, with the lease that says so. Another one finds that out, and decides again.
#[test]
fn a_take_over_is_done_within_two_intervals() {
    for interval in [Nanos::from_millis(500), FLOOR, Nanos::from_secs(5), INTERVAL, Nanos::from_secs(60)] {
        for seed in 0..12 {
            let mut world = World::new(seed, Faults { lost: 0.0, twice: 0.0, late: 0.0, kills: false });
            (world.interval, world.look_every) = (interval, Nanos::from_millis(50));
            world.take_over(ServerId(1));
            (1..=SERVERS).for_each(|server| _ = world.busy.insert((ServerId(server), 0)));
            // It is killed at any moment after some intervals, and anything between two looks after it renewed its lease.
            let lease = lease_s(interval);
            let looked_at_every = lease_looked_at_every(lease);
            let killed_at = Nanos(interval.0 * 3 + world.chance.random_range(0..interval.0));
            let renewed_at = killed_at.since(Nanos(world.chance.random_range(0..looked_at_every.0)));
            world.run(killed_at);
            assert_eq!(world.applied.len(), usize::from(SERVERS), "decided every {interval:?}");
            world.controllers.clear();
            world.cut = Some((ServerId(1), Cut::Both));
            let lease_ends_at = renewed_at + Nanos::from_secs(lease);
            let found_at = lease_ends_at + Nanos(world.chance.random_range(0..looked_at_every.0));
            world.run(found_at.max(world.now));
            world.take_over(ServerId(2));
            let within = Nanos(2 * interval.max(FLOOR).0);
            world.run(killed_at + within);
            let counts = world.controllers[&ServerId(2)].counts();
            assert!(counts.decisions > 0, "not within {within:?}: {counts:?}");
            for server in (2..=SERVERS).map(ServerId) {
                let follower = &world.followers[&server];
                let term = Term { epoch: 1, number: world.term };
                assert_eq!((follower.controller(), follower.version() > 0), (Some((ServerId(2), term)), true));
            }
        }
    }
}
