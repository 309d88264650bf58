//! `isonomia cluster status`: which servers of a cluster file are there, and which epoch each has.

use super::members::{self, Member};
use crate::arguments::MembersOptions;
use crate::table;
use anyhow::Result;
use isonomia_cluster::Map;
use isonomia_cluster::map::Server;
use isonomia_proto::control::ClusterStatus;
use isonomia_server::usable_cluster_file;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;

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

pub fn status(options: &MembersOptions) -> Result<ExitCode> {
    let map = usable_cluster_file(&options.file)?;
    let lines = members::each(&map, &members::identity(options)?, |server, member| line(&map, server, member));
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

fn line<'m>(map: &Map, server: &'m Server, member: Member) -> Line<'m> {
    let (state, epoch, address, reason) = match member {
        Member::Absent(address, why) => (State::NoAnswer, None, address, Some(why)),
        Member::Other(address, who) => (State::OtherServer, None, address, Some(who)),
        Member::Present(_, status, address) => {
            let judged = status.cluster.as_ref().map(|has| (judge(map, has), has.epoch));
            let (judged, epoch) = judged.unzip();
            let (state, reason) = judged.unwrap_or((State::OtherServer, None));
            (state, epoch, address, reason.map(str::to_owned))
        }
    };
    Line { server: &server.name, number: server.number.0, state, epoch, address, reason }
}

/// What to think of a server's file.
fn judge(map: &Map, has: &ClusterStatus) -> (State, Option<&'static str>) {
    let own = map.epoch().0;
    if has.epoch < own {
        (State::OtherEpoch, Some("its file is older"))
    } else if has.epoch > own {
        (State::OtherEpoch, Some("its file is newer"))
    } else if has.fingerprint != format!("{:016x}", map.fingerprint()) {
        (State::OtherFile, Some("its file says something else under the same epoch"))
    } else {
        (State::Answers, None)
    }
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
