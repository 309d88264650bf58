//! `isonomia policy`.

mod history;

use crate::arguments::{PolicyCommand, PolicyOptions, WholeOptions};
use crate::control::{Control, PolicySet};
use crate::whole::{self, Meant, Whole, report};
use anyhow::{Context, Result};
use isonomia_policy::{PolicySpec, RateRule};
use isonomia_proto::control::JobStatus;
use isonomia_transport::socket::Deadline;
use isonomia_units::{JobInfo, Nanos};
use std::io::Write;
use std::time::Duration;

/// How long servers that answer have to take a policy before they are said not to have it.
const TAKEN_WITHIN: Nanos = Nanos::from_secs(3);
/// Between two looks at who has taken it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub fn policy(options: &PolicyOptions) -> Result<()> {
    match &options.command {
        PolicyCommand::Get { whole, json } => get(whole, *json),
        PolicyCommand::History { whole, json } => history::show(whole, *json),
        PolicyCommand::Shadow { whole, policy } => shadow(whole, policy.0.as_ref()),
        PolicyCommand::Set { whole, policy, draw } => {
            let mut out = std::io::stdout().lock();
            let rules = || policy.rates().into_iter().flat_map(|rates| &rates.rules);
            match whole::meant(whole)? {
                Meant::One(mut control, status) => {
                    warn_of_nobody(rules(), &status.jobs);
                    let set = control.set_policy(policy, *draw, true, None)?;
                    writeln!(out, "{} ({})", set.policy, set.draw)?;
                    warn(&set);
                }
                Meant::All(mut all) => {
                    if rules().next().is_some() {
                        let seen = all.look();
                        warn_of_nobody(rules(), &report(&all.members, &seen).jobs);
                    }
                    let set = Control::connect(&whole.first()?)?.set_policy(policy, *draw, false, None)?;
                    let version = set.version.unwrap_or(0);
                    writeln!(out, "{} ({}), version {version}", set.policy, set.draw)?;
                    warn(&set);
                    for line in laggards(&mut all, version) {
                        writeln!(out, "{line}")?;
                    }
                }
            }
            Ok(())
        }
    }
}

/// Has a policy decide beside the other at each server that is meant.
fn shadow(options: &WholeOptions, policy: Option<&PolicySpec>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let shown = policy.map_or_else(|| "off".to_owned(), ToString::to_string);
    match whole::meant(options)? {
        Meant::One(mut control, _) => control.set_shadow(policy)?,
        Meant::All(mut all) => {
            for seen in all.look() {
                let name = &seen.member.name;
                match seen.found {
                    Ok((mut control, _)) => control.set_shadow(policy).with_context(|| name.clone())?,
                    Err(reason) => writeln!(out, "{name} is away, and is not asked: {reason}")?,
                }
            }
        }
    }
    writeln!(out, "{shown}")?;
    Ok(())
}

/// Says what is strange about a policy that was set.
pub fn warn(set: &PolicySet) {
    set.warnings.iter().for_each(|text| crate::log::say(format_args!("warning: {text}")));
}

/// Says so of each of these rules that is for nobody who is known: that may be right, or a slip of the pen.
pub fn warn_of_nobody<'r>(rules: impl IntoIterator<Item = &'r RateRule>, jobs: &[JobStatus]) {
    let is_selected = |rule: &RateRule, job: &JobStatus| {
        let info = JobInfo::new(&job.job, &job.user, &job.group);
        // As a job is known whose name is only claimed.
        let info = if job.proof == "claim" { info.claimed_within(job.within.as_deref().unwrap_or("")) } else { info };
        rule.scope.selects_job(&info)
    };
    let is_of_nobody = |rule: &&RateRule| !rule.scope.who.is_empty() && !jobs.iter().any(|job| is_selected(rule, job));
    for rule in rules.into_iter().filter(is_of_nobody) {
        crate::log::say(format_args!(
            "warning: rule {} selects nobody at present: none of the {} jobs that are known is {}",
            rule.label(),
            jobs.len(),
            rule.scope
        ));
    }
}

fn get(options: &WholeOptions, json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match whole::meant(options)? {
        Meant::One(_, status) if json => {
            writeln!(out, "{}", serde_json::json!({ "policy": status.policy, "draw": status.draw }))?;
        }
        Meant::One(_, status) => writeln!(out, "{} ({})", status.policy, status.draw)?,
        Meant::All(mut all) => {
            let seen = all.look();
            let report = report(&all.members, &seen);
            if json {
                let of = |server: &whole::ServerReport<'_>| {
                    let cluster = server.status.and_then(|status| status.cluster.as_ref());
                    serde_json::json!({
                        "name": server.name,
                        "state": server.state,
                        "reason": server.reason,
                        "policy": server.status.map(|status| &status.policy),
                        "draw": server.status.map(|status| &status.draw),
                        "version": cluster.map(|cluster| cluster.policy_version),
                        "deviates": cluster.map(|cluster| cluster.policy_deviates),
                    })
                };
                let policy = report.policy.unwrap_or_default();
                let shown = serde_json::json!({
                    "policy": policy.policy,
                    "draw": policy.draw,
                    "version": policy.version,
                    "servers": report.servers.iter().map(of).collect::<Vec<_>>(),
                });
                writeln!(out, "{shown:#}")?;
            } else {
                out.write_all(whole::policies(&report).as_bytes())?;
            }
        }
    }
    Ok(())
}

/// A line for each server that has not taken `version` of the policy by now.
pub fn laggards(all: &mut Whole, version: u64) -> Vec<String> {
    let until = Deadline::after(TAKEN_WITHIN);
    loop {
        let seen = all.look();
        let (mut lines, mut may_come) = (Vec::new(), false);
        for server in &seen {
            let name = &server.member.name;
            match &server.found {
                Err(reason) => lines.push(format!("{name} is away, and takes it before it serves again: {reason}")),
                Ok((_, status)) => {
                    let has = status.cluster.as_ref().map_or(0, |cluster| cluster.policy_version);
                    if has < version {
                        may_come = true;
                        lines.push(format!("{name} has not taken it yet: it has version {has}"));
                    }
                }
            }
        }
        if !may_come || until.left().is_none() {
            return lines;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
