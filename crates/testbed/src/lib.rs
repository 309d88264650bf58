//! What tests of several crates need: a real server, mounts of it, and programs with the preload client in them. All of
//! it is gone with the test.
//!
//! Whatever goes wrong here panics: it fails the test.

mod heard;
mod mount;
mod munged;
mod product;
mod server;
mod skipping;

pub use heard::Heard;
pub use mount::{TestMount, can_mount, can_mount_for_all, why_no_mount};
pub use munged::{Munged, can_munge};
pub use product::{built, isonomia, library};
pub use server::{PREFIX, STRIPED, TestServer};
pub use skipping::{RECORD_VARIABLE, REQUIRE_VARIABLE, is_installed, is_root_to, others_reach_the_build, skip};

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// How long programs wait for the server, in seconds. Long: machines that test are busy.
const TIMEOUT_S: &str = "60";

/// Starts a program and waits for its first line, which says that it is ready.
fn start(mut command: Command) -> Child {
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let output = process.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("its first line");
    assert!(line.contains("\"ready\":true"), "{command:?} says {line:?}");
    process
}
