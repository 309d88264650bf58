//! Tables of applications and jobs, job logs, and cases to allocate: read, or refused with the line at fault.

#![no_main]

use isonomia_planning::{Mapping, read_apps, read_jobs, read_swf};
use isonomia_whatif::allocate::{Scheme, allocate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let nodes = 2048;
    let _ = read_apps(bytes);
    for job in read_jobs(bytes, nodes, 1.0).unwrap_or_default() {
        assert!(job.job.nodes <= nodes);
    }
    let _ = read_swf(bytes, nodes, &Mapping { processors_per_node: 16, iterations: 10, io_fraction: 0.1 });
    if let Ok(text) = str::from_utf8(bytes) {
        for scheme in Scheme::ALL {
            let _ = allocate("case.toml", text, scheme);
        }
    }
});
