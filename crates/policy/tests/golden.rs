//! Decisions stay as they are when their implementation changes: a digest of 40,000 calls for each policy.
//!
//! A digest that differs means that some decision does. If that is intended, the new value stands in the change that
//! intends it, with the reason.

use isonomia_policy::{Arbiter, Draw, Nature, Next, Request, RequestId, Tuning, build};
use isonomia_units::{Bytes, JobId, JobInfo, Nanos};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const CALLS: usize = 40_000;

struct Player {
    arbiter: Box<dyn Arbiter>,
    random: Pcg64,
    now: u64,
    digest: u64,
    in_flight: Vec<Request>,
    /// Requests that come at a stated time.
    coming: Vec<(u64, Request)>,
    jobs: u32,
    /// Jobs say at times how long their phases are.
    declares: bool,
}

impl Player {
    /// FNV-1a.
    fn note(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.random_range(0..bound)
    }

    fn announce(&mut self, job: u32) {
        let variant = self.below(4) as u32;
        let name = |prefix: &str, number: u32| format!("{prefix}{number}");
        let mut info = JobInfo::new(&name("j", job), &name("u", (job + variant) % 5), &name("g", job % 2));
        info.nodes = 1 + (job * 7 + variant) % 9;
        info.priority = 1 + (job + variant) % 4;
        self.arbiter.set_job(Nanos(self.now), JobId(job), &info);
    }

    fn step(&mut self) {
        let now = Nanos(self.now);
        let at = self.now;
        let (due, later) = std::mem::take(&mut self.coming).into_iter().partition(|(when, _)| *when <= at);
        self.coming = later;
        for (_, request) in due {
            if self.declares && self.below(6) == 0 {
                let service = Nanos(self.below(20_000_000));
                self.arbiter.expect(now, request.job, service);
            }
            let known = self.arbiter.enqueue(now, request).is_ok();
            self.note(u64::from(known));
        }
        match self.below(100) {
            0 => {
                let job = self.below(u64::from(self.jobs)) as u32;
                self.announce(job);
            }
            1 if self.below(8) == 0 => {
                let job = JobId(self.below(u64::from(self.jobs)) as u32);
                let dropped = self.arbiter.remove_job(now, job);
                self.in_flight.retain(|request| request.job != job);
                self.note(dropped.len() as u64);
            }
            2 if self.below(40) == 0 => {
                let queued = self.arbiter.drain();
                for request in queued {
                    self.note(request.id.0);
                    self.coming.push((self.now, request));
                }
            }
            3..45 => match self.arbiter.next(now) {
                Next::Dispatch(request) => {
                    self.note(request.id.0);
                    self.in_flight.push(request);
                }
                Next::WaitUntil(until) => {
                    self.note(until.0);
                    self.now = until.0.min(self.now + self.random.random_range(1_000..600_000));
                }
                Next::Idle => self.now += 5_000,
            },
            45..85 if !self.in_flight.is_empty() => {
                let at = self.below(self.in_flight.len() as u64) as usize;
                let request = self.in_flight.remove(at);
                self.arbiter.complete(now, request.id, request.job);
                let think = match self.below(40) {
                    0 => 30_000_000,
                    1 => 2_000_000,
                    _ => 10_000 + self.below(90_000),
                };
                let following = Request { id: RequestId(request.id.0 + 1_000), ..request };
                self.coming.push((self.now + think, following));
            }
            85 => {
                let job = JobId(self.below(u64::from(self.jobs)) as u32);
                let shares = self.arbiter.shares(now);
                self.note(shares.len() as u64);
                shares.iter().for_each(|(job, share)| {
                    self.note(u64::from(job.0));
                    self.note(share.to_bits());
                });
                let queued = self.arbiter.queued_of(job) as u64;
                self.note(queued);
            }
            _ => self.now += self.random.random_range(1_000..60_000),
        }
    }
}

fn digest(policy: &str, draw: Draw, jobs: u32, parallel: u32) -> u64 {
    let tuning = Tuning { parallel, lag_free: Nanos::from_micros(200), ..Tuning::default() };
    let mut player = Player {
        arbiter: build(&policy.parse().expect("a policy"), draw, 3, tuning),
        random: Pcg64::seed_from_u64(u64::from(jobs)),
        now: 0,
        digest: 0xcbf2_9ce4_8422_2325,
        in_flight: Vec::new(),
        coming: Vec::new(),
        jobs,
        declares: policy.starts_with("fair-finish"),
    };
    for job in 0..jobs {
        player.announce(job);
        let cost = Nanos(20_000 + player.below(400_000));
        for process in 0..1 + job % 3 {
            let id = RequestId(u64::from(job * 8 + process) << 40);
            player.coming.push((0, Request { id, job: JobId(job), cost, bytes: Bytes(0), nature: Nature::WRITE }));
        }
    }
    for _ in 0..CALLS {
        player.step();
    }
    player.digest
}

#[test]
fn every_decision_is_the_one_that_was_recorded() {
    let recorded: [(&str, Draw, [u64; 3]); 9] = [
        ("fifo", Draw::VirtualTime, [0xc6e9_a342_e1a2_aa61, 0xf724_5a97_a8aa_7d52, 0x2085_c1be_22ab_c878]),
        ("job-fair", Draw::VirtualTime, [0x8507_7e7f_5e7d_aab6, 0x9d8e_d826_b3e9_ad6b, 0x4daf_160f_1ce4_b39b]),
        ("size-fair{j1=4}", Draw::VirtualTime, [0xb8ae_6f1e_6ad7_38dd, 0xbb38_7af6_8edd_f662, 0x50a5_d2f5_0177_a9d3]),
        (
            "group-then-user-then-size-fair",
            Draw::VirtualTime,
            [0xdf53_f936_0a7e_833f, 0xbcf0_c885_fa51_ee50, 0x5c11_eb34_8776_514e],
        ),
        ("job-fair", Draw::Lottery, [0x8d58_260e_7729_c761, 0x3d31_c3fa_b4c0_1c99, 0x2686_2bf9_8254_0fff]),
        (
            "group{g0=3}-then-user-then-priority-fair",
            Draw::Lottery,
            [0xe32f_76f6_57b1_55fb, 0x7878_bf16_8cbc_096a, 0xbef1_ccb4_bb97_3f9b],
        ),
        ("fair-finish", Draw::VirtualTime, [0x4c3d_e350_2b79_4740, 0x4d23_0a22_c144_4a02, 0x334f_1873_3423_7751]),
        (
            "fair-finish{guarantee=0.7,sizes=history,tree=size-fair}",
            Draw::VirtualTime,
            [0x1436_e7c2_087e_dd0c, 0x10dc_164a_01be_2abf, 0x7f40_7d36_eba4_615e],
        ),
        (
            "fair-finish{guarantee=0.5,sizes=none,tree=group{g0=3}-then-user-then-size-fair}",
            Draw::VirtualTime,
            [0x3795_cb18_ea91_ce2e, 0xace8_1527_778e_cf4a, 0x012f_32ed_7071_3bd2],
        ),
    ];
    for (policy, draw, digests) in recorded {
        let found = [(4, 1), (12, 2), (60, 4)].map(|(jobs, parallel)| digest(policy, draw, jobs, parallel));
        assert_eq!(found, digests, "{policy}, {draw}: {found:#018x?}");
    }
}
