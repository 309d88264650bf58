//! How often the server is asked for what a program does on a mount.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_testbed::{TestServer, can_mount, isonomia};
use std::fs::{self, File};
use std::path::Path;

/// Calls that are counted together.
const CALLS: u64 = 50;
/// How often it is tried: a mount asks for a directory again whenever a tick of the kernel's clock has passed, and gives files back
/// that were closed.
const TRIES: u64 = 5;

/// Requests that the server has served so far.
fn requests(server: &TestServer) -> u64 {
    let output = isonomia().args(["status", "--json", "--server", &server.address()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let counts = text.split("\"requests_total\":").skip(1).map(|rest| {
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap()
    });
    counts.sum()
}

/// The fewest requests for each of [`CALLS`] calls in a row, rounded.
fn fewest(server: &TestServer, call: impl Fn(&str)) -> u64 {
    let each = (0..TRIES).map(|round| {
        let before = requests(server);
        (0..CALLS).for_each(|at| call(&format!("{round}-{at}")));
        (requests(server) - before + CALLS / 2) / CALLS
    });
    each.min().unwrap()
}

#[test]
fn the_server_is_asked_no_more_than_it_must_be() {
    if !can_mount() {
        return;
    }
    let server = TestServer::start();
    let mount = server.mount("");
    let dir = mount.path().join("d");
    fs::create_dir(&dir).unwrap();
    let within = |name: &str, what: &dyn Fn(&Path)| what(&dir.join(name));
    let counted = [
        // The directory, the name, and the file that is created; what the kernel asks of it then is known.
        fewest(&server, |name| within(name, &|path| drop(File::create(path).unwrap()))),
        fewest(&server, |name| within(name, &|path| _ = fs::symlink_metadata(path).unwrap())),
        fewest(&server, |name| within(name, &|path| drop(File::open(path).unwrap()))),
        fewest(&server, |name| within(name, &|path| fs::remove_file(path).unwrap())),
    ];
    assert_eq!(counted, [6, 6, 8, 6], "each is counted for its job and for its target");
}
