//! Waiting for a server that was started to say that it listens.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::mpsc;
use std::time::Duration;

/// Whether the server `child`, whose standard output is a pipe, said within `patience` that it is ready.
pub fn wait(child: &mut Child, patience: Duration) -> bool {
    let Some(stdout) = child.stdout.take() else { return false };
    let (first_line, ready) = mpsc::channel();
    // Ends with the server at the latest, for then the pipe is closed.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        // Nobody receives if the server took too long.
        let _ = first_line.send(read.map(|_| line));
    });
    matches!(ready.recv_timeout(patience), Ok(Ok(line)) if line.contains("\"ready\":true"))
}
