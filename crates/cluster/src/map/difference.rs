//! What a newer cluster file changes, and what it must not.
//!
//! Errors are changes after which a number on disk, or in a client's memory, would mean something else than before. A server
//! is given up in two steps: marked as retired it serves what it has and gets nothing new; once nothing lies on it, it may
//! be left out. The same goes for a target, if it is the last of its server.

use super::{Epoch, Findings, Map, Server, Target};
use crate::hosts;

pub(super) fn difference(old: &Map, new: &Map, findings: &mut Findings) {
    let (before, after) = (old.epoch(), new.epoch());
    let next = Epoch(before.0.saturating_add(1));
    if after < before {
        findings
            .error(None, format!("epoch {after} is older than {before}: servers refuse it (allowed: {next} and more)"));
    } else if after == before && !old.says_as(new) {
        findings.error(
            None,
            format!("epoch {after} says something else than before under the same number (allowed: {next})"),
        );
    }
    if old.name() != new.name() {
        findings.error(
            None,
            format!(
                "name: {:?} was {:?}: servers of one file system would not know each other",
                new.name(),
                old.name()
            ),
        );
    }
    if old.targets_per_server() != new.targets_per_server() {
        let (was, is) = (old.targets_per_server(), new.targets_per_server());
        let text =
            format!("targets_per_server: {is} was {was}: targets would have the numbers of others (allowed: {was})");
        findings.error(None, text);
    }
    root(old, new, findings);
    let mut vanished = Vec::new();
    let mut given_up = Vec::new();
    for was in old.servers() {
        match (new.server(was.number), new.named(&was.name)) {
            (Some(is), _) if is.name == was.name => changed(was, is, findings),
            (Some(is), _) => findings.error(
                None,
                format!(
                    "number {} was that of {}, and a number never changes its meaning (allowed: another for {})",
                    was.number, was.name, is.name
                ),
            ),
            (None, Some(is)) => findings.error(
                None,
                format!(
                    "{} had number {}, and what it has bears that number (allowed: {0}, not {2})",
                    was.name, was.number, is.number
                ),
            ),
            (None, None) if was.retired => given_up.push(&*was.name),
            (None, None) => vanished.push(&*was.name),
        }
    }
    if !vanished.is_empty() {
        findings.error(
            None,
            format!(
                "{} vanished, with what is on it (allowed: retired = true, until nothing is)",
                hosts::compress(vanished)
            ),
        );
    }
    if !given_up.is_empty() {
        findings.warning(
            None,
            format!(
                "{} was retired and is gone: what may still lie on it is out of reach, and its number must never be used again",
                hosts::compress(given_up)
            ),
        );
    }
    let is_new = |server: &&Server| old.server(server.number).is_none() && old.named(&server.name).is_none();
    let added: Vec<&str> = new.servers().iter().filter(is_new).map(|server| &*server.name).collect();
    if !added.is_empty() {
        findings.note(format!("new: {}", hosts::compress(added)));
    }
}

fn root(old: &Map, new: &Map, findings: &mut Findings) {
    let (was, is) = (old.root(), new.root());
    if was.number != is.number {
        findings.error(
            None,
            format!(
                "root: {} was {}, which has the root and the table of volumes (allowed: root = {:?}; to have another host serve it, change that server's addresses)",
                is.name, was.name, was.name
            ),
        );
    }
}

/// The same server, before and after.
fn changed(was: &Server, is: &Server, findings: &mut Findings) {
    let name = &is.name;
    if was.listen != is.listen {
        findings.note(format!("{name} listens elsewhere: clients find it again once they have this file"));
    }
    if was.dir != is.dir {
        findings.warning(None, format!("dir of {name}: it must have been moved there, or the server refuses to start"));
    }
    match (was.retired, is.retired) {
        (false, true) => findings.note(format!("{name} is retired: it serves what it has and gets nothing new")),
        (true, false) => findings.note(format!("{name} is no longer retired")),
        _ => {}
    }
    let pairs = was.targets.iter().zip(&is.targets);
    for (was, is) in pairs.filter(|(was, is)| was.dir != is.dir) {
        let path = |target: &Target| {
            target.dir.as_ref().map_or("its server's dir".to_owned(), |dir| dir.display().to_string())
        };
        findings.warning(
            None,
            format!(
                "target {} of {name} was in {} and is in {}: it must have been moved there, or the server refuses to start",
                is.id, path(was), path(is)
            ),
        );
    }
    for target in was.targets.iter().skip(is.targets.len()) {
        let id = target.id;
        if target.retired {
            let text =
                format!("target {id} of {name} was retired and is gone: what may still lie on it is out of reach");
            findings.warning(None, text);
        } else {
            let text = format!(
                "target {id} of {name} vanished, with what is on it (allowed: retired = true, until nothing is)"
            );
            findings.error(None, text);
        }
    }
    let (before, after) = (was.targets.len(), is.targets.len());
    if after > before {
        findings.note(format!("{name} has {} more targets", after - before));
    }
}
