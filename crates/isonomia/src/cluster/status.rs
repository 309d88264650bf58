//! `isonomia cluster status`: which servers of a cluster file are there, and which epoch each has.

use super::members::{self, Member};
use crate::arguments::MembersOptions;
use crate::table;
use anyhow::Result;
use isonomia_cluster::Map;
use isonomia_cluster::map::Server;
use isonomia_proto::control::ClusterStatus;
use isonomia_server::{CLOCKS_APART_SECS_MAX, usable_cluster_file};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

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
    /// It has the same file, and its clock is too far from most others'.
    OtherTime,
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
            Self::OtherTime => "other time",
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
    /// How far its clock is ahead of most servers' clocks, in seconds, if it tells.
    clock_ahead_s: Option<i64>,
    /// What is not as it should be.
    reason: Option<String>,
}

/// Clocks that are apart by more than this many seconds are named; by more than [`CLOCKS_APART_SECS_MAX`] servers refuse what others
/// allow clients.
const NAMED_SECS: u64 = 10;

pub fn status(options: &MembersOptions) -> Result<ExitCode> {
    let map = usable_cluster_file(&options.file)?;
    let mut lines = members::each(&map, &members::identity(options)?, |server, member| line(&map, server, member));
    compare_clocks(&mut lines);
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
    let mut clock_ahead_s = None;
    let (state, epoch, address, reason) = match member {
        Member::Absent(address, why) => (State::NoAnswer, None, address, Some(why)),
        Member::Other(address, who) => (State::OtherServer, None, address, Some(who)),
        Member::Present(_, status, address) => {
            let told = status.cluster.as_ref().map(|has| has.clock_s).filter(|told| *told > 0);
            clock_ahead_s = told.and_then(|told| i64::try_from(told).ok()?.checked_sub(own_clock_s()));
            let judged = status.cluster.as_ref().map(|has| (judge(map, has), has.epoch));
            let (judged, epoch) = judged.unzip();
            let (state, reason) = judged.unwrap_or((State::OtherServer, None));
            (state, epoch, address, reason.map(str::to_owned))
        }
    };
    Line { server: &server.name, number: server.number.0, state, epoch, address, clock_ahead_s, reason }
}

/// This host's time of day, which is only what others are measured with.
fn own_clock_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Says whose clock is far from the others': from that in the middle of them.
fn compare_clocks(lines: &mut [Line<'_>]) {
    let mut told: Vec<i64> = lines.iter().filter_map(|line| line.clock_ahead_s).collect();
    told.sort_unstable();
    let Some(middle) = told.get(told.len().saturating_sub(1) / 2).copied() else { return };
    for line in lines {
        let Some(ahead) = line.clock_ahead_s.as_mut() else { continue };
        *ahead = ahead.saturating_sub(middle);
        let apart = ahead.unsigned_abs();
        if apart > NAMED_SECS && line.reason.is_none() {
            let way = if *ahead > 0 { "ahead" } else { "behind" };
            line.reason = Some(format!("clock {} {way}", span(apart)));
        }
        if apart > CLOCKS_APART_SECS_MAX && line.state == State::Answers {
            line.state = State::OtherTime;
        }
    }
}

/// A time in its greatest unit.
fn span(secs: u64) -> String {
    match secs {
        0..120 => format!("{secs} s"),
        120..7_200 => format!("{} min", secs / 60),
        7_200..172_800 => format!("{} h", secs / 3_600),
        _ => format!("{} d", secs / 86_400),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_apart_is_named() {
        let line = |server, clock_ahead_s, reason: Option<&str>| Line {
            server,
            number: 1,
            state: State::Answers,
            epoch: Some(1),
            address: String::new(),
            clock_ahead_s,
            reason: reason.map(str::to_owned),
        };
        // By the clock of the host that asks all of them are an hour behind, or more.
        let mut lines = [
            line("io1", Some(-3_600), None),
            line("io2", Some(-3_599), None),
            line("io3", Some(-3_600 + 3 * 3_600), None),
            line("io4", Some(-3_900), None),
            line("io5", None, Some("what else is wrong")),
        ];
        compare_clocks(&mut lines);
        let told = lines.each_ref().map(|line| (line.state, line.clock_ahead_s, line.reason.as_deref()));
        assert_eq!(
            told,
            [
                (State::Answers, Some(0), None),
                (State::Answers, Some(1), None),
                (State::OtherTime, Some(10_800), Some("clock 3 h ahead")),
                (State::Answers, Some(-300), Some("clock 5 min behind")),
                (State::Answers, None, Some("what else is wrong")),
            ]
        );
    }
}
