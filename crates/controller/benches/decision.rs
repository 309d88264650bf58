//! What a whole decision takes at the controller, from the reports as they come off the network to the allocations as they go
//! onto it, with the ledger's changes; and the bytes of these messages.
//!
//! 1,000 applications on 200 targets of 50 servers, of 1 to 8 targets each as in GIFT's population, a tenth of which change
//! from one decision to the next. Prints a JSON line: the median, least and greatest time of a decision, by the thread's
//! processor time, and the bytes of one decision.

use isonomia_controller::{Allocation, Controller, Effect, Kept, Plan, Report, ReportedJob, Row, Settings, Term};
use isonomia_policy::PolicySpec;
use isonomia_units::{JobInfo, Nanos, ServerId, TargetId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::hint::black_box;

const APPS: u32 = 1_000;
const SERVERS: u16 = 50;
const TARGETS_EACH: u16 = 4;
const STRIPES_MAX: u16 = 8;
const DECISIONS: usize = 60;

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
    let mut held: BTreeMap<ServerId, u64> = BTreeMap::new();
    let (mut took_us, mut bytes) = (Vec::new(), Vec::new());
    for round in 1..=DECISIONS as u64 {
        let now = Nanos(interval.0 * (round - 1));
        let mut effects = Vec::new();
        controller.tick(now, now, &mut effects);
        let mut sent: usize = effects
            .iter()
            .map(|effect| match effect {
                Effect::Ask { ask, .. } => ask.encode().len(),
                _ => 0,
            })
            .sum();
        let reports: Vec<(ServerId, Vec<u8>)> = servers()
            .map(|server| {
                let (mut jobs, mut rows) = (Vec::new(), Vec::new());
                for (info, at) in apps.values() {
                    let here = at.iter().filter(|target| *target / TARGETS_EACH + 1 == server.0);
                    let first = rows.len();
                    rows.extend(here.map(|target| Row {
                        job: jobs.len() as u32,
                        target: TargetId(*target),
                        service_us: 12_345,
                        is_short: true,
                        progress: None,
                    }));
                    if rows.len() > first {
                        jobs.push(ReportedJob::from(info));
                    }
                }
                let version = held.get(&server).copied().unwrap_or(0);
                (server, Report { term, round, version, window_ns: 500_000_000, jobs, rows }.encode())
            })
            .collect();
        sent += reports.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        let begin = processor_us();
        let mut effects = Vec::new();
        for (server, bytes) in &reports {
            let report = Report::decode(bytes).expect("it was encoded");
            controller.report(now, *server, report, &mut effects).expect("it was asked for");
        }
        let told: Vec<(ServerId, u64, Vec<u8>)> = effects
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Allocate { to, allocation } => Some((to, allocation.version, Allocation::encode(&allocation))),
                _ => None,
            })
            .collect();
        took_us.push(processor_us() - begin);
        sent += told.iter().map(|(_, _, bytes)| bytes.len()).sum::<usize>();
        bytes.push(sent);
        held.extend(told.iter().map(|(server, version, _)| (*server, *version)));
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
         \"greatest\":{:.0}}},\"bytes\":{}}}",
        SERVERS * TARGETS_EACH,
        took_us[took_us.len() / 2],
        took_us[0],
        took_us[took_us.len() - 1],
        bytes[bytes.len() / 2],
    );
}
