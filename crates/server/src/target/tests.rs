//! A target in virtual time.

use super::*;
use crate::jobs::Jobs;
use crate::limits::{Limits, LimitsConfig};
use crate::sessions::Sessions;
use crate::usage::Usage;

#[test]
fn a_reply_waits_until_the_emulated_device_is_done() {
    let policy = Policy { spec: "job-fair".parse().unwrap(), draw: Draw::default(), seed: 0, journal: None };
    let bandwidth = "100MiB/s".parse().ok();
    let target =
        Target::new(Some(TargetId(0)), String::new(), bandwidth, None, &policy, 2, (true, DepthSpec::default()));
    let info = Arc::new(JobInfo::new("j", "u", "g"));
    let job = Jobs::new(8, 8).join((*info).clone()).unwrap().job;
    target.set_job(Nanos::ZERO, job.id, &info);
    let usage = Arc::new(Usage::new(Limits::settle(&LimitsConfig::default(), 20_000, 0, 8 << 30).unwrap()));
    let (key, place) = ((0, 7), usage.take(0, false, 0).unwrap());
    let connection = Arc::new(Connection::of_root(job, Sessions::default().join(key), key, place));
    // Two requests of 10 MiB: a tenth of a second each, one after the other.
    for _ in 0..2 {
        let pending = Pending {
            connection: connection.clone(),
            slot: 0,
            header: RequestHeader::new(Op::Write, isonomia_units::Ino::ROOT),
            op: Op::Write,
            names: Vec::new(),
            arrived: Nanos::ZERO,
            cost: target.cost(1, Bytes(10 << 20)),
            owed: Nanos::ZERO,
            work: target.cost(1, Bytes(10 << 20)),
            access: Access::WriteSequential,
            took: Nanos::ZERO,
            is_for_device: false,
        };
        target.enqueue(Nanos::ZERO, pending).unwrap();
    }
    let ms = Nanos::from_millis;
    let Action::Serve(work) = target.next_action(Nanos::ZERO) else { panic!("the first is served at once") };
    assert_eq!(work.finish_at, Some(ms(100)));
    let busy = target.next_action(ms(1));
    assert!(matches!(busy, Action::WaitUntil(at) if at == ms(100)), "{busy:?}");
    let reply = ReplyHeader::ok(0, 10 << 20, 0);
    target.answer_at(ms(100), Served { pending: work.pending, id: work.id, reply, payload: Vec::new() });
    let early = target.next_action(Nanos(ms(100).0 - 1));
    assert!(matches!(early, Action::WaitUntil(at) if at == ms(100)), "{early:?}");
    assert!(matches!(target.next_action(ms(100)), Action::Answer(_)));
    let Action::Serve(work) = target.next_action(ms(100)) else { panic!("the second is served then") };
    assert_eq!(work.finish_at, Some(ms(200)));
}
