//! Contests of programs, against what can be worked out by hand.

#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read fails the test")]

use isonomia_policy::Access;
use isonomia_sim::contest::{Predicted, Program, ReadTimes, Unpredicted, simulate};
use isonomia_sim::request::{Processors, Target};
use isonomia_sim::scenario::{self, parse};
use isonomia_units::{Bytes, Nanos};
use std::num::NonZeroU32;
use std::path::Path;

/// One at a time, 1 ms and 5 ns for a byte, or 200 MB/s.
const SERIAL: &str = "latency = \"1ms\"\nchannels = 1\nchannel_bandwidth = \"200MB/s\"\n";
/// Four at a time, 2 ms and 10 ns for a byte.
const CHANNELS: &str = "latency = \"2ms\"\nchannels = 4\nchannel_bandwidth = \"100MB/s\"\n";
const FLASH: &str = "latency = \"80us\"\nchannels = 64\nchannel_bandwidth = \"4GB/s\"\n";
const KIB: u64 = 1 << 10;

fn target(device: &str, policy: &str) -> Target {
    let text = format!(
        "duration = \"1s\"\npolicy = \"{policy}\"\n[[target]]\nname = \"t\"\n{device}[[job]]\nname = \"j\"\nrequest = \"1B\"\n"
    );
    let points = parse(Path::new("test.toml"), &text, None).unwrap().points;
    let Some(scenario::Scenario::Request { scenario, .. }) = points.into_iter().next().map(|point| point.scenario)
    else {
        panic!("one scenario at request level")
    };
    scenario.targets[0].clone()
}

fn program(job: &str, access: Access, kib: u64, processes: u32) -> Program {
    Program { job: job.to_owned(), access, call: Bytes(kib * KIB), file: None, processes, start: Nanos::ZERO }
}

/// From 3.2 s to 6.4 s, when the depth is found.
fn result(device: &str, policy: &str, programs: &[Program]) -> Result<Vec<Predicted>, Unpredicted> {
    simulate(&target(device, policy), None, programs, Nanos::from_millis(3_200)..Nanos::from_millis(6_400))
}

/// Two processors that a read takes so long that waits, or finds all in memory.
fn times(waiting_us: u64, found_us: u64) -> ReadTimes {
    let [waiting, found] = [waiting_us, found_us].map(|time_us| Processors {
        count: NonZeroU32::new(2).unwrap(),
        per_request: Nanos::from_micros(time_us),
        bandwidth: None,
    });
    ReadTimes { waiting, found }
}

#[track_caller]
fn assert_near(found: f64, wanted: f64, tolerance: f64) {
    assert!((found / wanted - 1.0).abs() <= tolerance, "{found} instead of {wanted}");
}

/// Of calls of 256 KiB in files of 16 MiB two thirds wait for the device, as what is behind them is read ahead of the others; but
/// all bytes have to come from it.
#[test]
fn who_reads_all_of_his_files_in_no_order_finds_neighbours_in_memory() {
    let takes_s = 2e-3 + 262_144e-8;
    let (file, read) = (Some(Bytes(16 << 20)), program("j", Access::ReadRandom, 256, 1));
    let rate = |file, processes, reads| {
        let programs = [Program { file, processes, ..read.clone() }];
        let span = Nanos::from_millis(3_200)..Nanos::from_millis(6_400);
        simulate(&target(CHANNELS, "job-fair"), reads, &programs, span).unwrap()[0].calls_per_s
    };
    assert_near(rate(file, 1, None), 1.0 / (takes_s * 0.67), 0.02);
    // Of long files, and of those that are one call, nothing is found.
    for file in [Some(Bytes(1 << 40)), Some(Bytes(256 << 10))] {
        assert_near(rate(file, 1, None), 1.0 / takes_s, 0.02);
    }
    // With 32 processes the four channels do all they can, which is little more than without read-ahead.
    let (ahead, asked) = (rate(file, 32, None), rate(None, 32, None));
    assert!(ahead > asked && ahead < 1.2 * asked, "{ahead} and {asked}");
    // What is found takes processors as well: two of them do 500 calls of 4 ms in a second, and 520 where two thirds take 5 ms and
    // those that are found 1.5 ms.
    assert_near(rate(file, 32, Some(times(4_000, 4_000))), 500.0, 0.03);
    assert_near(rate(file, 32, Some(times(5_000, 1_500))), 2e3 / 0.67f64.mul_add(5.0, 0.33 * 1.5), 0.03);
}

/// One program reads all of his file in the time, and finds most of it in memory; 32 have the time for a tenth of theirs, of which
/// little is in memory.
#[test]
fn what_is_found_in_memory_is_of_what_there_is_time_to_read() {
    let rate = |processes, file| {
        let programs = [Program { file, ..program("j", Access::ReadRandom, 4, processes) }];
        result(CHANNELS, "job-fair", &programs).unwrap()[0].calls_per_s
    };
    let file = Some(Bytes(16 << 20));
    assert!(rate(1, file) > 2.0 * rate(1, None), "{} and {}", rate(1, file), rate(1, None));
    assert_near(rate(32, file), rate(32, None), 0.05);
}

/// n processes have n requests in service, or as many as there are channels, each in what one takes.
#[test]
fn readers_have_as_many_channels_as_there_are_or_they_need() {
    for (processes, at_once) in [(1, 1.0), (3, 3.0), (4, 4.0), (32, 4.0)] {
        for (kib, takes_s) in [(4, 2e-3 + 4096e-8), (256, 2e-3 + 262_144e-8)] {
            let one = result(CHANNELS, "job-fair", &[program("j", Access::ReadRandom, kib, processes)]).unwrap()[0];
            assert_near(one.calls_per_s, at_once / takes_s, 0.02);
        }
    }
    // What is on its way keeps no channel, but the program waits for it: 2.5 ms each.
    let device = format!("{CHANNELS}transit = \"459040ns\"\n");
    let one = result(&device, "job-fair", &[program("j", Access::ReadRandom, 4, 2)]).unwrap()[0];
    assert_near(one.calls_per_s, 800.0, 0.01);
    // A call of 1 MiB is four requests at once.
    let one = result(CHANNELS, "job-fair", &[program("j", Access::ReadRandom, 1024, 1)]).unwrap()[0];
    assert_near(one.calls_per_s, 1.0 / (2e-3 + 262_144e-8), 0.02);
}

/// On a serial device a read takes 1.02 ms, and a chunk twice that, or what makes 50 pages: 2.024 ms. The reader's request finds
/// the device with a chunk that has just begun, or with nobody.
#[test]
fn a_small_read_waits_for_one_chunk_at_most() {
    let programs = [program("reader", Access::ReadRandom, 4, 1), program("writer", Access::WriteSequential, 1024, 4)];
    let read_ns = 1e6 + 5.0 * 4096.0;
    let chunk_ns = 1e6 + 5.0 * 50.0 * 4096.0;
    for policy in ["job-fair", "job-fair+latency{p99=5000us,job:reader}"] {
        let [reader, writer] = result(SERIAL, policy, &programs).unwrap()[..] else { panic!("two jobs") };
        assert_near(reader.p99.0 as f64, chunk_ns + read_ns, 0.02);
        // Two reads for each chunk.
        assert_near(reader.share, 0.5, 0.03);
        assert_near(writer.calls_per_s, 0.5 / chunk_ns * 1e9 * 50.0 * 4096.0 / 1_048_576.0, 0.05);
    }
    // Chunks take no more than half of what a class is to reach, but have 64 KiB in any case.
    let [reader, _] = result(SERIAL, "job-fair+latency{p99=2000us,job:reader}", &programs).unwrap()[..] else {
        panic!("two jobs")
    };
    assert_near(reader.p99.0 as f64, 1e6 + 5.0 * 65_536.0 + read_ns, 0.02);
    // Where four are served at once, the reader does not wait, but for trials whether fewer would do.
    let device = format!("{CHANNELS}depth = 4\n");
    let [reader, _] = result(&device, "job-fair", &programs).unwrap()[..] else { panic!("two jobs") };
    assert_near(reader.p99.0 as f64, 2e6 + 10.0 * 4096.0, 0.02);
}

/// Reads and ranges of 64 KiB take 1.328 ms of a serial device, pieces of 128 KiB 1.655 ms, with two calls in each.
#[test]
fn readers_writers_and_streams_have_half_of_the_device_each() {
    let random = program("random", Access::ReadRandom, 64, 8);
    let half = 0.5 / (1e-3 + 5e-9 * 65_536.0);
    let contest = [random.clone(), program("writer", Access::WriteRandom, 64, 8)];
    let [reader, writer] = result(SERIAL, "job-fair", &contest).unwrap()[..] else { panic!("two jobs") };
    assert_near(reader.calls_per_s, half, 0.03);
    assert_near(writer.calls_per_s, half, 0.03);
    let contest = [program("stream", Access::ReadSequential, 64, 8), random];
    let [stream, reader] = result(SERIAL, "job-fair", &contest).unwrap()[..] else { panic!("two jobs") };
    assert_near(stream.calls_per_s, 2.0 * 0.5 / (1e-3 + 5e-9 * 131_072.0), 0.03);
    assert_near(reader.calls_per_s, half, 0.03);
}

/// One chunk at once keeps one of four channels busy. A job has more of them until it has what is due to it.
#[test]
fn a_writer_has_as_many_chunks_at_once_as_its_share_takes() {
    let contest = [program("reader", Access::ReadRandom, 64, 8), program("writer", Access::WriteRandom, 64, 8)];
    let [reader, writer] = result(CHANNELS, "job-fair", &contest).unwrap()[..] else { panic!("two jobs") };
    assert!((0.46..=0.51).contains(&writer.share), "{writer:?}");
    let all = 4.0 / (2e-3 + 65_536e-8);
    assert!(reader.calls_per_s + writer.calls_per_s > 0.9 * all, "{reader:?}, {writer:?} of {all}");
}

#[test]
fn what_cannot_be_told_from_a_profile_is_not_told() {
    let writers = [Access::WriteRandom, Access::WriteSequential].map(|access| program("w", access, 4, 4));
    assert_eq!(result(SERIAL, "job-fair", &writers[..1]), Err(Unpredicted::WritesAlone));
    assert_eq!(result(SERIAL, "job-fair", &writers), Err(Unpredicted::WritesAlone));
    let stream = [program("s", Access::ReadSequential, 1024, 1)];
    assert_eq!(result(SERIAL, "job-fair", &stream), Err(Unpredicted::StreamAlone));
    let contest = [program("reader", Access::ReadRandom, 64, 8), program("writer", Access::WriteRandom, 64, 8)];
    assert_eq!(result(FLASH, "job-fair", &contest), Err(Unpredicted::Scattered));
    assert_eq!(result("bandwidth = \"1GB/s\"\n", "job-fair", &contest[..1]), Err(Unpredicted::Told));
}

/// On the device alone one process has 12,500 reads in a second, and 64 have 800,000. With a processor for 30 us each, one waits
/// 110 us; and two processors have 66,667, whoever asks for them.
#[test]
fn processors_bound_what_a_fast_device_does() {
    let reads = Some(times(30, 10));
    let rates = |processes: &[u32]| {
        let program = |(processes, name): (&u32, &&str)| program(name, Access::ReadRandom, 4, *processes);
        let programs: Vec<_> = processes.iter().zip(&["a", "b"]).map(program).collect();
        let span = Nanos::from_millis(1_600)..Nanos::from_millis(3_200);
        let found = simulate(&target(FLASH, "job-fair"), reads, &programs, span).unwrap();
        found.iter().map(|one| one.calls_per_s).collect::<Vec<_>>()
    };
    assert_near(rates(&[1])[0], 1e6 / 111.0, 0.01);
    assert_near(rates(&[32])[0], 2e6 / 30.0, 0.03);
    let both = rates(&[16, 16]);
    assert_near(both[0], 1e6 / 30.0, 0.03);
    assert_near(both[1], 1e6 / 30.0, 0.03);
}
