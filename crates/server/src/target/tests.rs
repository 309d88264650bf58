//! A target in virtual time.

use super::*;
use crate::connection::Connection;
use crate::jobs::Jobs;
use crate::limits::{Limits, LimitsConfig};
use crate::sessions::Sessions;
use crate::testing::policy;
use crate::usage::Usage;
use isonomia_policy::device::chunks::PIECE_BYTES_MIN;
use isonomia_policy::device::read_ahead;
use isonomia_proto::request::{ReplyHeader, RequestHeader};
use isonomia_proto::writing;

fn connect(jobs: &Jobs, target: &Target, name: &str) -> Arc<Connection> {
    let info = JobInfo::new(name, "u", "g");
    let job = jobs.join(info.clone()).unwrap().job;
    target.set_job(Nanos::ZERO, job.id, &info);
    let usage = Arc::new(Usage::new(Limits::settle(&LimitsConfig::default(), 20_000, 0, 8 << 30).unwrap()));
    let (key, permit) = ((0, 7), usage.take(0, false, 0).unwrap());
    Arc::new(Connection::of_root(job, Sessions::default().join(key), key, permit))
}

fn pending(target: &Target, connection: &Arc<Connection>, op: Op, bytes: u64) -> Pending {
    Pending {
        connection: connection.clone(),
        slot: 0,
        header: RequestHeader::new(op, isonomia_units::Ino::ROOT),
        op,
        names: Vec::new(),
        arrived: Nanos::ZERO,
        cost: target.cost(1, Bytes(bytes)),
        owed: Nanos::ZERO,
        work: target.cost(1, Bytes(bytes)),
        access: Access::new(op == Op::Write, true),
        bytes: Bytes(bytes),
        took: Nanos::ZERO,
        nature: isonomia_policy::Nature::WRITE,
        neighbours: Bytes(0),
        is_for_device: false,
        change: None,
    }
}

#[test]
fn a_reply_waits_until_the_emulated_device_is_done() {
    let policy = policy("job-fair");
    let bandwidth = "100MiB/s".parse().ok();
    let target =
        Target::new(Some(TargetId(0)), String::new(), bandwidth, None, &policy, 2, (true, DepthSpec::default()));
    let connection = connect(&Jobs::new(8, 8), &target, "j");
    // Two requests of 10 MiB: a tenth of a second each, one after the other.
    for _ in 0..2 {
        target.enqueue(Nanos::ZERO, pending(&target, &connection, Op::Write, 10 << 20)).unwrap();
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

/// Its depth gives up work for a job's part only under a policy that divides time, whichever there was at first.
#[test]
fn the_depth_knows_whether_the_policy_divides_time() {
    let target = |policy: &Policy| {
        Target::new(Some(TargetId(0)), String::new(), None, None, policy, 2, (false, DepthSpec::Auto))
    };
    let divides_time = |target: &Target| match target.queue().dispatcher.depth() {
        Depth::Found(control) => control.divides_time(),
        Depth::Fixed(depth) | Depth::Told(depth) => panic!("a depth of {depth}"),
    };
    for (first, then) in [("job-fair", "fifo"), ("fifo", "job-fair"), ("coflow", "exclusive")] {
        let [first, then] = [first, then].map(policy);
        let target = target(&first);
        assert_eq!(divides_time(&target), first.spec.divides_time(), "{}", first.spec);
        assert!(target.set_policy(Nanos::ZERO, &then, &[]).is_empty());
        assert_eq!(divides_time(&target), then.spec.divides_time(), "{}", then.spec);
    }
}

/// Two jobs at a device of which nothing is known; what is read ahead of the one is its request, beside those of the other.
#[test]
fn who_is_not_alone_waits_and_pays_for_what_is_read_ahead() {
    let policy = policy("job-fair");
    let target = Target::new(Some(TargetId(0)), String::new(), None, None, &policy, 2, (false, DepthSpec::Fixed(1)));
    let jobs = Jobs::new(8, 8);
    let [reader, other] = ["reader", "other"].map(|name| connect(&jobs, &target, name));
    let ms = |ms: u64| Nanos::from_secs(1) + Nanos::from_millis(ms);
    assert_eq!(target.read_ahead_manner(ms(0), reader.job.id), read_ahead::Manner::AtOnce, "it is alone");
    let (work, range) = (Nanos::from_micros(5), 0..128 << 10);
    let piece = || Piece {
        of: crate::pages::PagesOf::File(isonomia_units::Ino(7)),
        job: reader.job.id,
        range: range.clone(),
        work,
    };
    // A device that takes long for anything.
    for at in 0..10 {
        target.prices.as_ref().unwrap().learn(ms(at), Access::ReadSequential, Bytes(64 << 10), Nanos::from_millis(20));
    }
    for _ in 0..2 {
        target.enqueue(ms(10), pending(&target, &other, Op::Read, 4096)).unwrap();
        assert!(target.enqueue_piece(ms(10), piece()));
    }
    let manner = target.read_ahead_manner(ms(11), reader.job.id);
    assert_eq!(manner, read_ahead::Manner::InPieces(PIECE_BYTES_MIN), "others wait for the device");
    let Action::ReadAhead(first, id) = target.next_action(ms(11)) else { panic!("the reader came first") };
    assert_eq!(*first, piece());
    assert!(matches!(target.next_action(ms(11)), Action::Idle), "it takes the only slot");
    target.begin_chunk(ms(11), id);
    let served = target.end_chunk(ms(31), id, reader.job.id, ServedBy::Device).unwrap();
    assert_eq!(served.attributed, Some(Nanos::from_millis(20)));
    // The reader had 20 ms, so both of the other's go first.
    for at in [31, 32] {
        let Action::Serve(mut work) = target.next_action(ms(at)) else { panic!("it is the other's turn") };
        target.enter(ms(at), &mut work.pending, work.id);
        target.complete(ms(at + 1), &work.pending, work.id, Nanos::ZERO).unwrap();
    }
    assert!(matches!(target.next_action(ms(33)), Action::ReadAhead(..)));
}

/// One process beside twelve, of whom four are in service at once and hinder each other. Workers are told of no requests while the device is
/// kept free for the one.
#[test]
fn requests_that_wait_since_the_device_is_kept_free_are_work_for_nobody() {
    let policy = policy("job-fair");
    let target = Target::new(Some(TargetId(0)), String::new(), None, None, &policy, 2, (false, DepthSpec::Fixed(4)));
    let jobs = Jobs::new(8, 8);
    let [one, many] = ["one", "many"].map(|name| connect(&jobs, &target, name));
    let mut now = Nanos::from_secs(1);
    let come = |now, connection| target.enqueue(now, pending(&target, connection, Op::Read, 4096)).unwrap();
    come(now, &one);
    (0..12).for_each(|_| come(now, &many));
    let mut in_service: Vec<(Nanos, Box<Work>)> = Vec::new();
    let (mut kept_free, mut kept_free_for) = (Vec::new(), Vec::new());
    for _ in 0..100_000 {
        loop {
            let action = target.next_action(now);
            let is_kept_free = target.waiting() == 0;
            if kept_free.last() != Some(&is_kept_free) {
                kept_free.push(is_kept_free);
            }
            match action {
                Action::Serve(mut work) => {
                    target.enter(now, &mut work.pending, work.id);
                    in_service.push((now + Nanos::from_micros(40 * (1 + in_service.len() as u64)), work));
                }
                Action::KeepFree(job, _) => kept_free_for.push(job),
                _ => break,
            }
        }
        assert!(!target.is_empty(), "the many always wait");
        let Some(at) = (0..in_service.len()).min_by_key(|at| in_service[*at].0) else {
            // Nobody is in service: the one thinks.
            now += Nanos::from_micros(10);
            come(now, &one);
            continue;
        };
        let (ends, work) = in_service.swap_remove(at);
        now = ends;
        target.complete(now, &work.pending, work.id, Nanos::ZERO).unwrap();
        let is_of_many = work.pending.connection.job.id == many.job.id;
        if is_of_many || !in_service.is_empty() {
            come(now, if is_of_many { &many } else { &one });
        }
    }
    assert!(kept_free.starts_with(&[false, true, false, true]), "{kept_free:?}");
    // Once each time, when that begins.
    assert_eq!(kept_free_for, vec![one.job.id; kept_free.iter().filter(|is_kept_free| **is_kept_free).count()]);
}

/// Engines serve writes for as long as these are taken for slow, and most of them need not wait.
#[test]
fn a_write_that_memory_keeps_says_nothing_of_the_device() {
    let policy = policy("job-fair");
    let mut target =
        Target::new(Some(TargetId(0)), String::new(), None, None, &policy, 2, (false, DepthSpec::Fixed(1)));
    let us = Nanos::from_micros;
    let of = |len| RequestHeader { len, ..RequestHeader::new(Op::Write, isonomia_units::Ino(7)) };
    assert!(!target.is_kept(us(5), false, &of(4096)), "it is written through");
    target.write_back = Some(WriteBack::new(1 << 30, false));
    assert!(!target.is_kept(us(5), false, &of(4096)), "it goes past the host's memory");
    target.write_back = Some(WriteBack::new(1 << 30, true));
    assert!(target.is_kept(us(40), false, &of(256 << 10)) && target.is_kept(us(5), false, &of(4096)));
    assert!(
        !target.is_kept(us(400), false, &of(256 << 10)) && !target.is_kept(us(100), false, &of(4096)),
        "it had to wait"
    );
    assert!(target.is_kept(us(400), true, &of(4096)), "it waited for another write, and not for the device");
    let direct = RequestHeader { valid: writing::DIRECT, ..of(256 << 10) };
    assert!(target.is_kept(us(40), false, &direct), "nothing goes past it here");
    target.takes_direct = true;
    assert!(!target.is_kept(us(40), false, &direct) && target.is_kept(us(40), false, &of(256 << 10)));
    assert_eq!([direct, of(256 << 10)].map(|header| target.write_mode(&header)), [WriteMode::Direct, WriteMode::Usual]);
    let writer = connect(&Jobs::new(8, 8), &target, "writer");
    for (at, is_kept, attributed) in [(10, true, None), (110, false, Some(us(40)))] {
        target.enqueue(us(at), pending(&target, &writer, Op::Write, 4096)).unwrap();
        let Action::Serve(mut work) = target.next_action(us(at)) else { panic!("it is alone") };
        target.enter(us(at), &mut work.pending, work.id);
        work.pending.is_for_device = !is_kept;
        let (served, _) = target.complete(us(at + 40), &work.pending, work.id, work.pending.work).unwrap();
        assert_eq!(served.attributed, attributed);
        // Its chunk is going to be charged for all of it.
        assert_eq!(served.service > Nanos::ZERO, !is_kept, "{served:?}");
    }
}
