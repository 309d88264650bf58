//! Actors in processes of their own.

use isonomia_conformance::{Action, Actor, Operation, Outcome};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// An actor in a process of its own.
pub struct Remote {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Remote {
    /// Starts the process.
    pub fn start(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, input, output }
    }

    fn ask(&mut self, action: &Action) -> Outcome {
        writeln!(self.input, "{}", serde_json::to_string(action).unwrap()).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

impl Actor for Remote {
    fn begin(&mut self, root: &str) {
        self.ask(&Action::Begin(root.to_owned()));
    }

    fn act(&mut self, operation: &Operation) -> Outcome {
        self.ask(&Action::Do(operation.clone()))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
