//! What goes on while policies change.

use super::create;
use isonomia_client::{Client, Ino};
use std::sync::atomic::{AtomicBool, Ordering};

/// One of each policy that a server alone may have, with all its words.
pub const POLICIES: [&str; 15] = [
    "fifo",
    "job-fair",
    "job-fair+strict",
    "user-fair",
    "group-then-user-then-size-fair",
    "priority-fair",
    "group{root=3}-then-job-fair{a=2}",
    "coflow{guarantee=0.5,order=attained}",
    "coflow{order=slowdown,tree=user-then-size-fair}",
    "coflow{order=bottleneck}",
    "fair-finish{sizes=history}",
    "tbf{w@op:write&user:*=1GiB/s+realtime,p@path:/f=exempt,m@op:metadata=100000ops/s}",
    "tbf{job:*=1GiB/s,spare=proportional}",
    "mclock{job:a=reservation:100MiB/s+limit:1GiB/s,user:*=weight:2}",
    "set10{job:a=1s}+latency{p99=5ms,job:b,size<=4KiB}",
];

/// One that delays nobody for long.
pub const EXCLUSIVE: &str = "exclusive{lease=100ms,gap=10ms,order=fifo}";

/// Those that a controller decides, and the one that they are compared with.
pub const DECIDED: [&str; 9] = [
    "gift{decide=100ms}",
    "pofs{decide=100ms}",
    "bsip{decide=100ms}",
    "mbw{decide=100ms}",
    "tsa{decide=100ms}",
    "esa{decide=100ms}",
    "tmf{decide=100ms}",
    "rnd{decide=100ms}",
    "gift{throttle=0.5,window=1000000000,system-window=1000000000,decide=100ms,tree=user-then-size-fair}",
];

/// Appends to a file below `directory`, and makes and removes directories, until `is_over`; and finds each block once and at its position. How
/// many there were.
pub fn append(client: &Client, directory: &str, job: &str, is_over: &AtomicBool) -> u64 {
    let file = client.open(Ino::ROOT, format!("{directory}f-{job}").as_bytes(), &create()).unwrap();
    let mut count: u64 = 0;
    while !is_over.load(Ordering::Relaxed) {
        // Appends: one that is done twice or not at all makes the file longer or shorter.
        let block = count.to_le_bytes().repeat(512);
        client.write_at(&file, count * 4096, &block).unwrap();
        let made = format!("{directory}{job}-{}", count % 64);
        client.mkdir(Ino::ROOT, made.as_bytes(), 0o755).unwrap();
        client.rmdir(Ino::ROOT, made.as_bytes()).unwrap();
        count += 1;
    }
    for at in 0..count {
        let mut block = vec![0; 4096];
        assert_eq!(client.read_at(&file, at * 4096, &mut block).unwrap(), 4096);
        assert_eq!(block, at.to_le_bytes().repeat(512));
    }
    count
}
