//! `isonomia policy history`: what servers remember of the phases of applications.

use crate::arguments::WholeOptions;
use crate::table;
use crate::whole::{self, Meant};
use anyhow::{Context, Result};
use isonomia_proto::control::{ApplicationList, ApplicationStatus};
use isonomia_units::Nanos;
use std::io::Write;

/// What a server remembers, with its name if it is in a cluster.
type Remembered = (Option<String>, ApplicationList);

pub fn show(options: &WholeOptions, json: bool) -> Result<()> {
    let lists = match whole::meant(options)? {
        Meant::One(mut control, _) => vec![(None, control.applications()?)],
        Meant::All(mut all) => {
            let mut lists = Vec::new();
            for seen in all.look() {
                let name = seen.member.name;
                match seen.found {
                    Ok((mut control, _)) => {
                        let list = control.applications().with_context(|| name.clone())?;
                        lists.push((Some(name), list));
                    }
                    Err(reason) => crate::log::say(format_args!("{name} is away, and is not asked: {reason}")),
                }
            }
            lists
        }
    };
    let mut out = std::io::stdout().lock();
    if json {
        let of = |server: &Option<String>, application: &ApplicationStatus| {
            let mut shown = serde_json::json!(application);
            shown["server"] = serde_json::json!(server);
            shown
        };
        let all = lists.iter().flat_map(|(server, list)| list.applications.iter().map(move |one| of(server, one)));
        let shown = serde_json::json!({
            "applications": all.collect::<Vec<_>>(),
            "others": lists.iter().map(|(_, list)| list.others).sum::<u64>(),
        });
        writeln!(out, "{shown:#}")?;
    } else {
        out.write_all(text(&lists).as_bytes())?;
    }
    Ok(())
}

fn text(lists: &[Remembered]) -> String {
    if lists.iter().all(|(_, list)| list.applications.is_empty()) {
        return "nothing is known of any application\n".to_owned();
    }
    // Without a cluster there is but one server.
    let from = usize::from(lists.iter().all(|(server, _)| server.is_none()));
    let header = ["server", "target", "user", "application", "phases", "next", "error"];
    let mut rows = table::plain(&header[from..], &[0, 1, 2, 3][..4 - from]);
    for (server, list) in lists {
        for known in &list.applications {
            let row = [
                server.clone().unwrap_or_default(),
                known.target.clone(),
                known.user.clone(),
                known.application.clone(),
                known.phases_total.to_string(),
                Nanos(known.expected_ns).to_string(),
                known.expectation_error.map_or_else(|| "-".to_owned(), |error| format!("{error:.2}")),
            ];
            rows.add_row(&row[from..]);
        }
    }
    let mut text = table::lines(&rows) + "\n";
    let others: u64 = lists.iter().map(|(_, list)| list.others).sum();
    if others > 0 {
        text += &format!("and {others} more, which ended no phase for longer\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(others: u64) -> ApplicationList {
        let known = |application: &str, expectation_error| ApplicationStatus {
            target: "0".to_owned(),
            user: "ada".to_owned(),
            application: application.to_owned(),
            phases_total: 12,
            expected_ns: 1_500_000_000,
            sizes: 12,
            expectation_error,
        };
        ApplicationList { applications: vec![known("lammps", Some(1.046)), known("wrf", None)], others }
    }

    #[test]
    fn what_is_known_reads_like_this() {
        let alone = "target  user  application  phases   next  error\n\
                     0       ada   lammps           12  1.5 s   1.05\n\
                     0       ada   wrf              12  1.5 s      -\n";
        assert_eq!(text(&[(None, list(0))]), alone);
        let both = text(&[(Some("io1".to_owned()), list(0)), (Some("io2".to_owned()), list(3))]);
        assert!(both.starts_with("server  target  user"), "{both}");
        assert!(both.contains("io2     0       ada   wrf"), "{both}");
        assert!(both.ends_with("and 3 more, which ended no phase for longer\n"), "{both}");
        assert_eq!(text(&[(None, ApplicationList::default())]), "nothing is known of any application\n");
    }
}
