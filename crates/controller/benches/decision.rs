//! What a whole decision takes at the controller, from the reports as they come off the network to the allocations as they go
//! onto it, with the ledger's changes; and the bytes of these messages.
//!
//! 1,000 applications on 200 targets of 50 servers, of 1 to 8 targets each as in GIFT's population, a tenth of which change
//! from one decision to the next. Prints a JSON line: the median, least and greatest time of a decision, by the thread's
//! processor time, beside what it may take, and the bytes of one decision.

use isonomia_controller::{
    Allocation, Controller, Decision, Effect, Follower, Kept, Moment, Plan, Report, ReportedJob, Settings, Term, Use,
    Using,
};
use isonomia_policy::PolicySpec;
use isonomia_units::{JobInfo, Nanos, ServerId, TargetId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::hint::black_box;

/// That of the program in which controllers run.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const APPS: u32 = 1_000;
const SERVERS: u16 = 50;
const TARGETS_EACH: u16 = 4;
const STRIPES_MAX: u16 = 8;
const DECISIONS: usize = 60;
/// What a decision may take at the median.
const DECISION_US_MAX: u32 = 5_000;

fn processor_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn main() {
    let mut chance = Pcg64Mcg::seed_from_u64(1);
    let policy: PolicySpec = "gift{tree=user-then-size-fair}".parse().expect("it is a policy");
    let interval = Nanos::from_secs(10);
    let plan = Plan::new(&policy, interval, Kept::default()).expect("it is valid").expect("it is decided");
    let term = Term { epoch: 1, number: 1 };
    let servers = || (1..=SERVERS).map(ServerId);
    let mut controller = Controller::new(Nanos::ZERO, Settings { term, interval }, plan, servers());
    let mut draw = |app: u32| -> (JobInfo, Vec<u16>) {
        let nodes = chance.random_range(1..=64);
        let info = JobInfo { nodes, ..JobInfo::new(&format!("job{app:04}"), &format!("user{:02}", app % 40), "astro") };
        let width = chance.random_range(1..=STRIPES_MAX);
        let mut at: Vec<u16> = (0..width).map(|_| chance.random_range(0..SERVERS * TARGETS_EACH)).collect();
        at.sort_unstable();
        at.dedup();
        (info, at)
    };
    let mut apps: BTreeMap<u32, (JobInfo, Vec<u16>)> = (0..APPS).map(|app| (app, draw(app))).collect();
    let mut followers: BTreeMap<ServerId, Follower> = servers().map(|server| (server, Follower::default())).collect();
    let (mut took_us, mut bytes) = (Vec::new(), Vec::new());
    for round in 1..=DECISIONS as u64 {
        let now = Nanos(interval.0 * (round - 1));
        let at = Moment { now, wall: now };
        let mut using: BTreeMap<ServerId, Vec<Using>> = BTreeMap::new();
        for (info, at) in apps.values() {
            for at in at.chunk_by(|one, other| one / TARGETS_EACH == other / TARGETS_EACH) {
                let here = at.iter().map(|target| (TargetId(*target), Use::default())).collect();
                let server = ServerId(at[0] / TARGETS_EACH + 1);
                using.entry(server).or_default().push(Using { job: ReportedJob::from(info), at: here });
            }
        }
        // What has changed is reported before, but for the first time.
        let mut reports: Vec<(ServerId, Vec<u8>)> = Vec::new();
        for (server, follower) in &mut followers {
            let report = follower.look(now, interval, false, using.get(server).map_or(&[], |using| using));
            reports.extend(report.filter(|_| round > 1).map(|report| (*server, report.encode())));
        }
        let begin = processor_us();
        let mut effects = Vec::new();
        for (server, bytes) in &reports {
            let report = Report::decode(bytes).expect("it was encoded");
            controller.report(at, *server, report, &mut effects).expect("it follows the one before");
        }
        controller.tick(at, &mut effects);
        let mut took = processor_us() - begin;
        let mut sent = reports.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        let asked = effects.extract_if(.., |effect| matches!(effect, Effect::Ask { .. })).collect::<Vec<_>>();
        let mut answers = Vec::new();
        for effect in asked {
            let Effect::Ask { to, ask } = effect else { continue };
            let follower = followers.get_mut(&to).expect("it is there");
            follower.ask(now, ServerId(1), &ask).expect("it is new");
            let answer = follower.answer(using.get(&to).map_or(&[], |using| using)).encode();
            sent += ask.encode().len() + answer.len();
            answers.push((to, answer));
        }
        let begin = processor_us();
        for (server, bytes) in &answers {
            let report = Report::decode(bytes).expect("it was encoded");
            controller.report(at, *server, report, &mut effects).expect("it was asked for");
        }
        let told: Vec<(ServerId, Vec<u8>)> = effects
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Allocate { to, allocation } => Some((to, Allocation::encode(&allocation))),
                _ => None,
            })
            .collect();
        took += processor_us() - begin;
        took_us.push(took);
        sent += told.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        bytes.push(sent);
        for (server, bytes) in &told {
            let allocation = Allocation::decode(bytes).expect("it was encoded");
            let follower = followers.get_mut(server).expect("it is there");
            let taken = follower.take(now, ServerId(1), allocation).expect("it is new");
            assert!(matches!(taken, Decision::Parts(_)), "gift gives parts");
        }
        black_box(told);
        for app in 0..APPS / 10 {
            let app = (round as u32 * (APPS / 10) + app) % APPS;
            apps.insert(app, draw(app));
        }
    }
    took_us.sort_by(f64::total_cmp);
    bytes.sort_unstable();
    println!(
        "{{\"applications\":{APPS},\"targets\":{},\"servers\":{SERVERS},\"decision_us\":{{\"median\":{:.0},\"least\":{:.0},\
         \"greatest\":{:.0},\"median_max\":{DECISION_US_MAX}}},\"bytes\":{}}}",
        SERVERS * TARGETS_EACH,
        took_us[took_us.len() / 2],
        took_us[0],
        took_us[took_us.len() - 1],
        bytes[bytes.len() / 2],
    );
}
