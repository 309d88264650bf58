//! Exclusive I/O phases for people: who has the targets, who waits, and what that came to.

use crate::table::{lines, plain};
use isonomia_proto::control::{ExclusiveJobStatus, ExclusiveStatus, JobStatus, Status};
use isonomia_units::Nanos;

/// A line for the server and a table of its jobs; nothing under other policies.
pub fn shown(status: &Status) -> Option<String> {
    let node = status.exclusive.as_ref()?;
    let turns: Vec<_> = status.jobs.iter().filter_map(|job| Some((job, job.exclusive.as_ref()?))).collect();
    let table = if turns.is_empty() { String::new() } else { format!("{}\n", of_jobs(&turns)) };
    Some(format!("{}\n{table}", of_server(node)))
}

fn of_server(node: &ExclusiveStatus) -> String {
    let holder = match (&node.holder, node.is_open) {
        (_, true) => "EVERYBODY IS SERVED: the coordinator is silent".to_owned(),
        (Some(holder), _) => format!("{holder} has the targets"),
        (None, _) => "nobody has the targets".to_owned(),
    };
    let by = node.coordinator.as_ref().map_or(String::new(), |server| format!(", decided by {server}"));
    format!(
        "exclusive phases: {holder}, {} wait (order {}, lease {}, gap {}{by}); ended by gap {}, by program {}, by lease {}, \
         by crossing {}, by leaving {}",
        node.waiting,
        node.order,
        Nanos(node.lease_ns),
        Nanos(node.gap_ns),
        node.ended_by_gap_total,
        node.ended_by_program_total,
        node.ended_by_lease_total,
        node.ended_by_crossing_total,
        node.ended_by_leaving_total,
    )
}

fn of_jobs(turns: &[(&JobStatus, &ExclusiveJobStatus)]) -> String {
    let mut table = plain(&["job", "user", "turn", "phases", "I/O", "waited", "longest wait", "stretch"], &[0, 1, 2]);
    for (job, turn) in turns {
        table.add_row([
            job.job.clone(),
            job.user.clone(),
            turn.state.clone(),
            turn.phases_total.to_string(),
            Nanos(turn.io_ns).to_string(),
            Nanos(turn.waited_ns).to_string(),
            Nanos(turn.waited_max_ns).to_string(),
            format!("{:.2}", turn.stretch),
        ]);
    }
    lines(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::sample_status;

    #[test]
    fn turns_read_like_this() {
        let mut status = sample_status();
        assert_eq!(shown(&status), None);
        let node = ExclusiveStatus {
            order: "stretch".into(),
            lease_ns: 60_000_000_000,
            gap_ns: 100_000_000,
            coordinator: Some("io1".into()),
            holder: Some("ada/large".into()),
            waiting: 1,
            ended_by_gap_total: 3,
            ..ExclusiveStatus::default()
        };
        status.exclusive = Some(node.clone());
        status.jobs.truncate(1);
        status.jobs[0].exclusive = Some(ExclusiveJobStatus {
            state: "waiting".into(),
            age_ns: 3_000_000_000,
            io_ns: 250_000_000,
            waited_ns: 1_000_000_000,
            waited_max_ns: 600_000_000,
            phases_total: 3,
            stretch: 1.5,
        });
        let text = shown(&status).unwrap();
        let line = "exclusive phases: ada/large has the targets, 1 wait (order stretch, lease 60 s, gap 100 ms, decided by io1); \
                    ended by gap 3, by program 0, by lease 0, by crossing 0, by leaving 0\n";
        assert!(text.starts_with(line), "{text}");
        assert!(
            text.contains("waiting") && text.contains("250 ms") && text.contains("600 ms") && text.contains("1.50")
        );
        status.exclusive = Some(ExclusiveStatus { is_open: true, ..node });
        assert!(shown(&status).unwrap().contains("EVERYBODY IS SERVED"));
    }
}
