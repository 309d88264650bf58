//! `isonomia cluster status`: which servers of a cluster file are there, and which epoch each has.

use crate::arguments::ClusterStatusOptions;
use crate::control::Control;
use crate::table;
use anyhow::{Context, Result};
use isonomia_cluster::Map;
use isonomia_cluster::map::Server;
use isonomia_proto::control::Status;
use isonomia_server::usable_cluster_file;
use isonomia_transport::handshake::{Identity, Protection};
use isonomia_units::Nanos;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// One address has this long to answer.
const TIMEOUT: Nanos = Nanos::from_secs(5);
/// Servers that are asked at once.
const ASKED_MAX: usize = 32;

/// What became of asking one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// It has the same file.
    Answers,
    /// It has an older or newer file.
    OtherEpoch,
    /// It has a file of the same epoch that says something else.
    OtherFile,
    /// Whoever answers is another server, or none of a cluster.
    OtherServer,
    /// Nobody answers.
    NoAnswer,
}

impl State {
    fn words(self) -> &'static str {
        match self {
            Self::Answers => "answers",
            Self::OtherEpoch => "other epoch",
            Self::OtherFile => "other file",
            Self::OtherServer => "other server",
            Self::NoAnswer => "no answer",
        }
    }
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    server: &'a str,
    number: u16,
    state: State,
    /// Of the server's file.
    epoch: Option<u32>,
    /// The one that answered, or the last that was asked.
    address: String,
    /// What is not as it should be.
    reason: Option<String>,
}

pub fn status(options: &ClusterStatusOptions) -> Result<ExitCode> {
    let map = usable_cluster_file(&options.file)?;
    let key_file = options.key_file.as_deref();
    let key_file =
        key_file.map(|path| path.to_str().with_context(|| format!("the path of key file {path:?} is not UTF-8")));
    let identity = Identity {
        key_file: key_file.transpose()?.map(str::to_owned),
        server_user: options.server_user,
        protection: Protection { server_name: None, ..Protection::from_environment(|name| std::env::var(name).ok())? },
        ..Identity::default()
    };
    let lines = ask_all(&map, &identity);
    let is_good = lines.iter().all(|line| line.state == State::Answers);
    let mut out = std::io::stdout().lock();
    if options.json {
        let report = serde_json::json!({ "name": map.name(), "epoch": map.epoch(), "ok": is_good, "servers": lines });
        writeln!(out, "{report:#}")?;
    } else {
        writeln!(out, "{} epoch {} by {}\n\n{}", map.name(), map.epoch(), options.file.display(), shown(&lines))?;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One line for each server, in the order of their numbers.
fn ask_all<'a>(map: &'a Map, identity: &Identity) -> Vec<Line<'a>> {
    let servers = Mutex::new(map.servers().iter());
    let asked = Mutex::new(Vec::with_capacity(map.servers().len()));
    std::thread::scope(|scope| {
        for _ in 0..map.servers().len().min(ASKED_MAX) {
            scope.spawn(|| {
                loop {
                    let next = servers.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(server) = next else { return };
                    let line = ask(map, server, identity);
                    asked.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            });
        }
    });
    let mut lines = asked.into_inner().unwrap_or_else(PoisonError::into_inner);
    lines.sort_by_key(|line| line.number);
    lines
}

/// Asks at each address until the server itself answers: a Unix socket may be that of another host's server.
fn ask<'a>(map: &Map, server: &'a Server, identity: &Identity) -> Line<'a> {
    let mut line = Line {
        server: &server.name,
        number: server.number.0,
        state: State::NoAnswer,
        epoch: None,
        address: String::new(),
        reason: None,
    };
    for address in &server.listen {
        let answer = Control::open(address, identity, TIMEOUT).and_then(|mut control| control.status());
        let (state, epoch, reason) = match answer {
            Ok(status) => judge(map, server, &status),
            // Who else answers says more than that nobody does.
            Err(_) if line.state == State::OtherServer => continue,
            Err(error) => (State::NoAnswer, None, Some(format!("{error:#}"))),
        };
        line = Line { state, epoch, reason, address: address.to_string(), ..line };
        if !matches!(state, State::NoAnswer | State::OtherServer) {
            break;
        }
    }
    line
}

/// What to think of a server that answers.
fn judge(map: &Map, server: &Server, status: &Status) -> (State, Option<u32>, Option<String>) {
    let Some(cluster) = &status.cluster else {
        let reason = format!("server {} of no cluster answers there", status.server);
        return (State::OtherServer, None, Some(reason));
    };
    let epoch = Some(cluster.epoch);
    if (cluster.name.as_str(), cluster.server.as_str(), status.server) != (map.name(), &server.name, server.number.0) {
        let reason = format!("{} (number {}) of {} answers there", cluster.server, status.server, cluster.name);
        return (State::OtherServer, epoch, Some(reason));
    }
    if cluster.epoch != map.epoch().0 {
        let age = if cluster.epoch < map.epoch().0 { "older" } else { "newer" };
        return (State::OtherEpoch, epoch, Some(format!("its file is {age}")));
    }
    if cluster.fingerprint != format!("{:016x}", map.fingerprint()) {
        return (State::OtherFile, epoch, Some("its file says something else under the same epoch".to_owned()));
    }
    (State::Answers, epoch, None)
}

fn shown(lines: &[Line<'_>]) -> String {
    let mut table = table::plain(&["server", "number", "state", "epoch", "address", "reason"], &[0, 2, 4, 5]);
    for line in lines {
        table.add_row([
            line.server.to_owned(),
            line.number.to_string(),
            line.state.words().to_owned(),
            line.epoch.map_or("-".to_owned(), |epoch| epoch.to_string()),
            line.address.clone(),
            line.reason.clone().unwrap_or_default(),
        ]);
    }
    table::lines(&table)
}
