//! The scrub finds what nobody reads, takes no more than its share, and can be switched off.

use crate::running::{Running, create, pattern, start};
use isonomia_client::{OpenHow, access};
use isonomia_proto::control::{JobStatus, Status};
use isonomia_server::{ScrubPeriod, Server};
use isonomia_units::{Ino, Nanos, Rate};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A period so short that every pass is late: the scrub then asks for as much as the policy gives it.
const ALWAYS: ScrubPeriod = ScrubPeriod(Some(Nanos(1)));
const OFF: ScrubPeriod = ScrubPeriod(None);
/// The longest wait for a condition.
const WAIT_MAX: Duration = Duration::from_secs(60);
const BLOCK: u64 = 4096;

/// Waits until `is_so` of the server's state.
fn wait_for(server: &Server, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
    let begun = Instant::now();
    loop {
        let status = server.status();
        if is_so(&status) {
            return status;
        }
        assert!(begun.elapsed() < WAIT_MAX, "{what}: {:?}", status.scrub);
        std::thread::yield_now();
    }
}

/// A file that is at rest when the server runs again.
fn leave_file(running: &mut Running, bytes: &[u8]) {
    let client = running.client(&running.addresses[0], &running.key_file, 20);
    let file = client.open(Ino::ROOT, b"cold", &create()).unwrap();
    assert_eq!(client.write_at(&file, 0, bytes).unwrap(), bytes.len());
    drop((file, client));
    running.stop();
}

fn object(dir: &Path) -> PathBuf {
    let mut dirs = vec![dir.join("data/target-0/objects")];
    while let Some(dir) = dirs.pop() {
        for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "0") {
                return path;
            }
        }
    }
    panic!("no object");
}

fn flip(path: &Path, offset: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

fn job<'a>(status: &'a Status, name: &str) -> Option<&'a JobStatus> {
    status.jobs.iter().find(|job| job.job == name)
}

#[test]
fn a_flipped_bit_in_a_cold_object_is_found_and_off_means_off() {
    for lose in [false, true] {
        let mut running = start(|config| config.scrub = OFF);
        leave_file(&mut running, &pattern(200 * BLOCK as usize, 1));
        let path = object(running.dir.path());
        if lose {
            std::fs::remove_file(&path).unwrap()
        } else {
            flip(&path, 150 * BLOCK + 5)
        }
        running.restart();
        let mut other = start(|config| config.scrub = ALWAYS);
        wait_for(other.server(), "an empty server has passes", |status| status.scrub.passes_total >= 3);
        other.stop();
        let status = running.server().status();
        assert_eq!((status.scrub.period_s, status.scrub.verified_bytes_total), (None, 0));
        assert!(job(&status, "scrub").is_none());

        running.config.scrub = ALWAYS;
        running.restart();
        let status = wait_for(running.server(), "a pass ends", |status| status.scrub.passes_total >= 1);
        let damaged = if lose { 200 } else { 1 };
        assert!(status.scrub.damaged_total >= damaged, "{:?}", status.scrub);
        assert!(status.scrub.verified_bytes_total >= 200 * BLOCK && status.scrub.last_pass_age_s.is_some());
        assert!(status.checksums.damaged_total >= damaged);
        let scrub = job(&status, "scrub").expect("it is a job");
        assert!(scrub.read_bytes_total >= 200 * BLOCK && scrub.requests_total >= 4, "{scrub:?}");
        assert_eq!((scrub.nodes, scrub.priority, scrub.proof.as_str()), (1, 1, "trust"));
    }
}

#[test]
fn beside_a_busy_job_the_scrub_takes_its_share_at_most() {
    let change = |scrub| {
        move |config: &mut isonomia_server::Config| {
            config.scrub = scrub;
            config.policy = "job-fair".parse().unwrap();
            config.targets = vec![isonomia_server::TargetConfig {
                bandwidth: Rate::new(64 << 20),
                ..isonomia_server::TargetConfig::default()
            }];
        }
    };
    let mut running = start(change(OFF));
    leave_file(&mut running, &pattern(16 << 20, 1));
    change(ALWAYS)(&mut running.config);
    running.restart();
    let is_over = AtomicBool::new(false);
    let (from, to) = std::thread::scope(|scope| {
        // So many at once that the device has a tenth of a second of work waiting, however slow this machine is.
        for _ in 0..8 {
            scope.spawn(|| {
                let client = running.client(&running.addresses[0], &running.key_file, 20);
                let file =
                    client.open(Ino::ROOT, b"cold", &OpenHow { access: access::READ, ..OpenHow::default() }).unwrap();
                let mut bytes = vec![0; 1 << 20];
                for at in (0..16).cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    client.read_at(&file, at << 20, &mut bytes).unwrap();
                }
            });
        }
        let busy = |status: &Status| job(status, "test").map_or(0, |job| job.read_bytes_total);
        let scrubbed = |status: &Status| job(status, "scrub").map_or(0, |job| job.read_bytes_total);
        let from = wait_for(running.server(), "both read", |s| busy(s) > 4 << 20 && scrubbed(s) > 0);
        let so_far = busy(&from);
        let to = wait_for(running.server(), "the busy job reads", |s| busy(s) > so_far + (16 << 20));
        is_over.store(true, Ordering::Relaxed);
        let counts = |status: &Status| (busy(status), scrubbed(status));
        (counts(&from), counts(&to))
    });
    let (busy, scrubbed) = (to.0 - from.0, to.1 - from.1);
    // As much as the job, and a few requests that were under way when the counts began and ended.
    assert!(scrubbed > 0 && scrubbed <= busy + 8 * (256 << 10), "{scrubbed} bytes beside {busy}");
    // When the other job has ended the scrub goes on with the whole target to itself.
    wait_for(running.server(), "it goes on", |status| {
        job(status, "scrub").is_some_and(|job| job.read_bytes_total > to.1 + (8 << 20))
    });
}
