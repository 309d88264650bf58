//! How often the server is asked for what a program does on a mount.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_testbed::{TestServer, can_mount, isonomia};
use std::fs::{self, File};

/// Calls that are counted together.
const CALLS: u64 = 20;
/// How often it is tried at most: a mount asks for a directory again whenever a tick of the kernel's clock has passed, which
/// on a busy machine is between any two calls, and gives files back that were closed.
const TRIES: u64 = 500;

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

/// The fewest requests for each of [`CALLS`] calls in a row, rounded, with files that `prepare` has seen to; it is not tried
/// further when they are no more than `expected`.
fn fewest(server: &TestServer, expected: u64, prepare: impl Fn(&str), call: impl Fn(&str)) -> u64 {
    let mut fewest = u64::MAX;
    for round in 0..TRIES {
        let names: Vec<String> = (0..CALLS).map(|at| format!("{round}-{at}")).collect();
        names.iter().for_each(|name| prepare(name));
        let before = requests(server);
        names.iter().for_each(|name| call(name));
        fewest = fewest.min((requests(server) - before + CALLS / 2) / CALLS);
        if fewest <= expected {
            break;
        }
    }
    fewest
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
    let create = |name: &str| drop(File::create(dir.join(name)).unwrap());
    let expected = [6, 6, 8, 6];
    let counted = [
        // The directory, the name, and the file that is created; what the kernel asks of it then is known.
        fewest(&server, expected[0], |name| _ = fs::remove_file(dir.join(name)), create),
        fewest(&server, expected[1], create, |name| _ = fs::symlink_metadata(dir.join(name)).unwrap()),
        fewest(&server, expected[2], create, |name| drop(File::open(dir.join(name)).unwrap())),
        fewest(&server, expected[3], create, |name| fs::remove_file(dir.join(name)).unwrap()),
    ];
    assert_eq!(counted, expected, "each is counted for its job and for its target");
}
