//! What tests of several crates need: a real server, mounts of it, and programs with the preload client in them. All of
//! it is gone with the test.
//!
//! Whatever goes wrong here panics: it fails the test.

mod mount;
mod product;
mod server;

pub use mount::{TestMount, can_mount, can_mount_for_all};
pub use product::{built, isonomia, library};
pub use server::{PREFIX, TestServer};

use std::io::{BufRead, BufReader, Write};
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

/// Says that the test that calls is skipped. `scripts/test` counts these lines, which is why they pass by what the tests'
/// own program keeps of the output of those that do not fail.
pub fn skip(reason: &str) {
    let line = format!("skipped: {}: {reason}\n", std::thread::current().name().unwrap_or("a test"));
    // Where nobody hears it there is nobody to tell.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
