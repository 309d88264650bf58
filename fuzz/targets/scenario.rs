//! Scenarios to simulate, and profiles of I/O: read, or refused.

#![no_main]

use isonomia_sim::{io_profile, scenario};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|text: &str| {
    let _ = scenario::parse(Path::new("scenario.toml"), text, Some(1));
    let _ = io_profile::parse(Path::new("profile.csv"), text);
});
