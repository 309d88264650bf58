//! The coordinator of exclusive phases changes hands, in virtual time: servers that decide are killed, and others take over, while
//! applications alternate at all of them, hang, and are killed, and messages are lost, late, and doubled.
//!
//! Each server has an I/O node and believes in a coordinator, which it hears of late, as `server::cluster::phases` does it live.

use isonomia_planning::Order;
use isonomia_planning::coordinator::{Publication, Report};
use isonomia_planning::io_node::{AppId, Declared, IoNode, PhaseRules, SILENCE_MAX};
use isonomia_units::{Nanos, ServerId};
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const SERVERS: usize = 3;
const APPS: [&str; 3] = ["a", "b", "c"];
const STEP: Nanos = Nanos::from_millis(10);
const LEASE: Nanos = Nanos::from_secs(2);
const REPEAT_EVERY: Nanos = Nanos::from_secs(1);
/// What is lost is said again each second: several times in a row nothing may arrive, or all of it late. Whoever is forgotten waits for
/// ever.
const PATIENCE: Nanos = Nanos(5 * SILENCE_MAX.0);

#[derive(Clone)]
enum Message {
    Report(Report),
    Publication(Publication),
}

struct Server {
    node: IoNode,
    apps: Vec<AppId>,
    /// Phases that last until then; one that hangs lasts for ever.
    busy_until: [Option<Nanos>; APPS.len()],
    /// What it knows of who decides.
    believes: Option<usize>,
    reported_at: Nanos,
    /// Somebody waits, nobody has the node, and it is not open: since then.
    idle_since: Option<Nanos>,
    /// Who has the node, after so many grants that have ended, since when.
    granted: Option<(Arc<str>, u64, Nanos)>,
}

struct World {
    now: Nanos,
    random: Pcg64Mcg,
    order: Order,
    servers: Vec<Server>,
    /// Who decides, if anybody does.
    decides: Option<usize>,
    under_way: BTreeMap<(Nanos, u64), (usize, usize, Message)>,
    sent: u64,
    processes: u64,
    losses: f64,
    /// Application by node, its process, and number of the grant.
    granted: HashMap<(usize, u64, u64), Arc<str>>,
    phases: [u64; APPS.len()],
}

impl World {
    fn new(seed: u64, order: Order) -> Self {
        let mut world = Self {
            now: Nanos::from_secs(1),
            random: Pcg64Mcg::seed_from_u64(seed),
            order,
            servers: Vec::new(),
            decides: Some(0),
            under_way: BTreeMap::new(),
            sent: 0,
            processes: 0,
            losses: 0.1,
            granted: HashMap::new(),
            phases: [0; APPS.len()],
        };
        for _ in 0..SERVERS {
            let server = world.started();
            world.servers.push(server);
        }
        world
    }

    fn started(&mut self) -> Server {
        self.processes += 1;
        let rules = PhaseRules { order: self.order, lease: LEASE, gap: Nanos::from_millis(20) };
        let mut node = IoNode::new(rules, self.processes);
        let apps = APPS.iter().map(|name| node.join(self.now, &Arc::from(*name))).collect();
        let (reported_at, busy_until) = (Nanos::ZERO, [None; APPS.len()]);
        Server { node, apps, busy_until, believes: None, reported_at, idle_since: None, granted: None }
    }

    fn send(&mut self, from: usize, to: usize, message: &Message) {
        for _ in 0..if self.random.random_bool(0.05) { 2 } else { 1 } {
            if self.random.random_bool(self.losses) {
                continue;
            }
            let late = if self.random.random_bool(0.05) { 2_000 } else { 20 };
            let at = self.now + Nanos::from_millis(self.random.random_range(0..late));
            self.sent += 1;
            self.under_way.insert((at, self.sent), (from, to, message.clone()));
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (from, to, message) = entry.remove();
            let server = &mut self.servers[to];
            match message {
                Message::Report(report) => _ = server.node.coordinate(self.now, ServerId(from as u16 + 1), report),
                Message::Publication(said) if server.believes == Some(from) => _ = server.node.hear(self.now, said),
                Message::Publication(_) => {}
            }
        }
    }

    /// What each server's thread does.
    fn tell(&mut self, at: usize) -> Result<(), TestCaseError> {
        // Who decides knows it; the others hear of it sooner or later.
        let knows = self.decides == Some(at) || self.servers[at].believes == Some(at) || self.random.random_bool(0.05);
        let (now, decides) = (self.now, self.decides);
        let server = &mut self.servers[at];
        if knows {
            server.believes = decides;
        }
        server.node.set_coordinator(now, ServerId(at as u16 + 1), server.believes == Some(at));
        server.node.settle(now);
        match server.believes {
            Some(own) if own == at => {
                let said = server.node.publications();
                for (to, publication) in said {
                    self.send(at, usize::from(to.0) - 1, &Message::Publication(publication));
                }
            }
            Some(other) if server.node.has_changed() || now.since(server.reported_at) >= REPEAT_EVERY => {
                server.reported_at = now;
                let report = server.node.report(now);
                if let Some(grant) = &report.granted {
                    let key = (at, report.instance, grant.number);
                    let first = self.granted.entry(key).or_insert_with(|| grant.application.clone());
                    prop_assert_eq!(&*first, &grant.application, "one grant of node {} was given to two", at);
                }
                self.send(at, other, &Message::Report(report));
            }
            _ => {}
        }
        Ok(())
    }

    /// Applications begin phases, and end those that they got the node for.
    fn work(&mut self, at: usize, begins: bool) {
        let (now, random, server) = (self.now, &mut self.random, &mut self.servers[at]);
        for app in 0..APPS.len() {
            let id = server.apps[app];
            match server.busy_until[app] {
                None if begins && random.random_bool(0.02) => {
                    // Now and then somebody hangs; the others have to wait for the lease then, and no longer.
                    let ms = if random.random_bool(0.02) { 10_000 } else { random.random_range(20..200) };
                    server.busy_until[app] = Some(Nanos::from_millis(ms));
                    server.node.begin(now, id, app as u64, Declared::default());
                }
                // Its process is killed, in a phase or waiting for one.
                Some(_) if random.random_bool(0.002) => {
                    server.busy_until[app] = None;
                    server.node.forget_session(now, app as u64);
                    server.node.leave(now, id);
                }
                Some(left) if server.node.admits(id) => {
                    let left = left.since(STEP);
                    server.busy_until[app] = Some(left);
                    if left == Nanos::ZERO {
                        server.busy_until[app] = None;
                        server.node.end(now, id, app as u64);
                        self.phases[app] += 1;
                    }
                }
                _ => {}
            }
        }
    }

    fn check(&mut self, at: usize) -> Result<(), TestCaseError> {
        let (now, server) = (self.now, &mut self.servers[at]);
        let admitted = server.apps.iter().filter(|id| server.node.admits(**id)).count();
        let is_open = server.node.is_open();
        prop_assert!(is_open || admitted <= 1, "{admitted} have node {at}");
        let is_waited_for =
            (0..APPS.len()).any(|app| server.busy_until[app].is_some() && !server.node.admits(server.apps[app]));
        let endings = server.node.endings();
        let ended = endings.gap + endings.told + endings.lease + endings.crossed + endings.gone;
        let holder = server.node.holder().cloned();
        let is_granted = holder.is_some();
        match (server.granted.take(), holder) {
            (Some((before, count, since)), Some(holder)) if before == holder && count == ended => {
                let over = now.since(since) > LEASE + STEP + STEP;
                prop_assert!(!(over && is_waited_for), "node {at} is granted to {holder} for longer than the lease");
                server.granted = Some((holder, count, since));
            }
            (_, holder) => server.granted = holder.map(|holder| (holder, ended, now)),
        }
        let is_idle = is_waited_for && !is_granted && !is_open;
        server.idle_since = server.idle_since.filter(|_| is_idle).or(is_idle.then_some(now));
        let stalled = server.idle_since.map_or(Nanos::ZERO, |since| now.since(since));
        prop_assert!(stalled <= PATIENCE, "node {at} is idle for {stalled:?} while somebody waits");
        Ok(())
    }

    fn step(&mut self, begins: bool) -> Result<(), TestCaseError> {
        self.now += STEP;
        self.deliver();
        for at in 0..SERVERS {
            self.tell(at)?;
            self.work(at, begins);
            self.check(at)?;
        }
        Ok(())
    }

    /// Another server decides; the one before is killed, or only told so. For a while nobody may.
    fn take_over(&mut self) {
        match self.decides.take() {
            Some(at) if self.random.random_bool(0.5) => self.servers[at] = self.started(),
            Some(_) => {}
            None => self.decides = Some(self.random.random_range(0..SERVERS)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_granted_twice_and_nobody_waits_longer_than_a_lease(
        seed in any::<u64>(),
        order in proptest::sample::select(Order::ALL.to_vec()),
    ) {
        let mut world = World::new(seed, order);
        for _ in 0..3_000 {
            world.step(true)?;
            if world.random.random_bool(if world.decides.is_some() { 0.004 } else { 0.01 }) {
                world.take_over();
            }
        }
        // With one coordinator and a network that loses nothing, all phases come to their end: none is forgotten.
        (world.decides, world.losses) = (Some(SERVERS - 1), 0.0);
        for _ in 0..6_000 {
            world.step(false)?;
        }
        for server in &world.servers {
            prop_assert_eq!(server.busy_until, [None; APPS.len()]);
        }
        prop_assert!(world.phases.iter().all(|phases| *phases > 2), "{:?}", world.phases);
    }
}
