//! What placing a large job's files takes: 65,536 files on 1,008 targets of 144 servers, as on the paper's machine.
//!
//! Prints a JSON line: the median, least and greatest time for all files, by the thread's processor time; first the paper's choice
//! ([`Balancer`]), then one by one as a server makes it ([`Placer`]), knowing what others leave of each target.

use isonomia_placement::{Balancer, NewFile, Placer, Room, Topology, Weights, Zone};
use isonomia_units::{JobId, Placement, ServerId, TargetId};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::sync::Arc;

const FILES: u64 = 65_536;
const TARGETS: u16 = 1_008;
const TARGETS_EACH: u16 = 7;
const ROUNDS: usize = 7;

fn processor_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn report(name: &str, mut round: impl FnMut()) {
    let mut took: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let before = processor_ms();
            round();
            processor_ms() - before
        })
        .collect();
    took.sort_unstable_by(f64::total_cmp);
    let (median, least, most) = (took[ROUNDS / 2], took[0], took[ROUNDS - 1]);
    println!(
        "{{\"choice\":\"{name}\",\"files\":{FILES},\"targets\":{TARGETS},\"median_ms\":{median:.1},\
         \"least_ms\":{least:.1},\"most_ms\":{most:.1}}}"
    );
}

fn main() {
    let targets = (0..TARGETS).map(|target| (TargetId(target), ServerId(target / TARGETS_EACH)));
    let topology = Arc::new(Topology::direct(targets).expect("it is one"));
    report("balancer", || {
        let mut balancer = Balancer::new(topology.clone(), Weights::EQUAL, 0);
        for _ in 0..FILES {
            black_box(balancer.place_file(Zone(0)).expect("there are targets"));
        }
    });
    report("placer", || {
        let mut placer = Placer::new(topology.clone());
        let mut generator = Pcg64Mcg::seed_from_u64(1);
        let room = |target: TargetId| Room::new(f64::from(target.0 % 5) / 4.0, 1, 1);
        placer.tell_room(JobId(0), 1, || room);
        for number in 0..FILES {
            let file = NewFile { number, job: JobId(0), stripes: 1, among: None };
            black_box(placer.place(Placement::Balanced, &file, &mut generator));
        }
    });
}
