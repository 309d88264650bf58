//! Exclusive I/O schedules and packs of jobs, tried on paper.

use isonomia_planning as planning;
use isonomia_planning::{Job, Machine, Mapping, NamedJob, Order, PlanError, ScheduleError, Sensibility, TableError};
use serde::Serialize;
use std::fmt;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something in a table or log cannot be used.
    #[error("{file}: {why}")]
    Table {
        /// The table's name.
        file: String,
        /// Where and why.
        why: TableError,
    },
    /// The applications of a table cannot be scheduled.
    #[error("{file}: {why}")]
    Schedule {
        /// The table's name.
        file: String,
        /// Why.
        why: ScheduleError,
    },
    /// The jobs cannot be packed or run.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Applications on one exclusive I/O node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScheduleReport {
    /// The order of I/O phases.
    pub policy: String,
    /// When the last application ends.
    pub makespan_s: f64,
    /// The worst stretch.
    pub max_stretch: f64,
    /// Ascending by id.
    pub apps: Vec<ScheduledApp>,
}

/// An application, as it went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScheduledApp {
    /// Its id.
    pub id: String,
    /// When it may begin.
    pub release_s: f64,
    /// When it ends.
    pub completion_s: f64,
    /// How long it takes without company.
    pub alone_s: f64,
    /// How many times longer it took.
    pub stretch: f64,
}

/// Packs of jobs on I/O nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PackReport {
    /// The order of I/O phases inside a pack.
    pub policy: String,
    /// How much I/O a pack may have.
    pub sensibility: String,
    /// Compute nodes of each I/O node.
    pub nodes: u32,
    /// I/O nodes.
    pub io_nodes: u32,
    /// The workload's I/O load.
    pub alpha: f64,
    /// When the last pack ends.
    pub makespan_s: f64,
    /// The mean over packs of their worst stretch.
    pub mean_max_stretch: f64,
    /// What the compute nodes do until the makespan.
    pub node_seconds: NodeSeconds,
    /// In the order of making.
    pub packs: Vec<PackLine>,
    /// How many jobs there are.
    #[serde(skip)]
    pub jobs: usize,
    /// Jobs of a log that did not run or have no size.
    #[serde(skip)]
    pub left_out: usize,
}

/// Compute nodes times seconds, by what they are doing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeSeconds {
    /// Computing, or doing I/O.
    pub useful: f64,
    /// Waiting for the I/O node.
    pub delayed: f64,
    /// Without a job that runs.
    pub idle: f64,
}

/// A pack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PackLine {
    /// Ids of its jobs.
    pub jobs: Vec<String>,
    /// Its I/O node, from 0.
    pub io_node: u32,
    /// When it begins.
    pub begin_s: f64,
    /// How long it takes.
    pub time_s: f64,
    /// How long its longest job takes without company.
    pub alone_s: f64,
    /// Compute nodes.
    pub nodes: u32,
    /// Its I/O, in its length.
    pub io_occupation: f64,
    /// The worst stretch of its jobs.
    pub max_stretch: f64,
}

/// Where jobs come from.
#[derive(Clone, Copy, Debug)]
pub enum JobSource<'a> {
    /// A table in CSV, and the bandwidth of an I/O node in the unit of the table's volumes, greater than 0.
    Csv(&'a [u8], f64),
    /// A log in the Standard Workload Format, and what to assume of the jobs' I/O.
    Swf(&'a [u8], Mapping),
}

/// A word that is no sensibility.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sensibility {0:?} (allowed: 1, alpha, inf, or another number greater than 0)")]
pub struct ParseSensibilityError(String);

/// Reads a sensibility as it is written: `1`, `alpha`, `inf`, or another number greater than 0.
///
/// # Errors
/// It is none of these.
pub fn parse_sensibility(text: &str) -> Result<Sensibility, ParseSensibilityError> {
    match text {
        "alpha" => Ok(Sensibility::Alpha),
        "inf" => Ok(Sensibility::Infinite),
        number => {
            let limit: Option<f64> = number.parse().ok().filter(|limit: &f64| limit.is_finite() && *limit > 0.0);
            limit.map(Sensibility::Limit).ok_or_else(|| ParseSensibilityError(number.to_owned()))
        }
    }
}

struct Written(Sensibility);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Sensibility::Infinite => f.write_str("inf"),
            Sensibility::Alpha => f.write_str("alpha"),
            Sensibility::Limit(limit) => limit.fmt(f),
        }
    }
}

/// Schedules the applications of the table `csv`, which is called `file`.
///
/// # Errors
/// The first thing in the table that cannot be used.
pub fn schedule(file: &str, csv: &[u8], policy: Order) -> Result<ScheduleReport, Error> {
    let named = planning::read_apps(csv).map_err(|why| Error::Table { file: file.to_owned(), why })?;
    let apps: Vec<_> = named.iter().map(|named| named.app).collect();
    let schedule = planning::schedule(&apps, policy).map_err(|why| Error::Schedule { file: file.to_owned(), why })?;
    let line = |(named, outcome): (&planning::NamedApp, &planning::Outcome)| ScheduledApp {
        id: named.id.clone(),
        release_s: outcome.release.as_secs_f64(),
        completion_s: outcome.completion.as_secs_f64(),
        alone_s: outcome.alone.as_secs_f64(),
        stretch: outcome.stretch(),
    };
    Ok(ScheduleReport {
        policy: policy.name().to_owned(),
        makespan_s: schedule.makespan().as_secs_f64(),
        max_stretch: schedule.max_stretch(),
        apps: named.iter().zip(&schedule.apps).map(line).collect(),
    })
}

/// Puts the jobs of `source`, which is called `file`, into packs, and the packs on the I/O nodes of `machine`.
///
/// # Errors
/// The first thing in the table or log that cannot be used, or jobs that do not fit the machine.
pub fn pack(file: &str, source: JobSource<'_>, machine: &Machine) -> Result<PackReport, Error> {
    let wrong = |why| Error::Table { file: file.to_owned(), why };
    let (named, left_out) = match source {
        JobSource::Csv(text, bandwidth) => (planning::read_jobs(text, machine.nodes, bandwidth).map_err(wrong)?, 0),
        JobSource::Swf(text, mapping) => {
            let log = planning::read_swf(text, machine.nodes, &mapping).map_err(wrong)?;
            (log.jobs, log.left_out as usize)
        }
    };
    let jobs: Vec<Job> = named.iter().map(|named| named.job).collect();
    let plan = planning::plan(&jobs, machine)?;
    let time = plan.node_time(&jobs, machine);
    let seconds = |node_ns: u128| node_ns as f64 / 1e9;
    Ok(PackReport {
        policy: machine.order.name().to_owned(),
        sensibility: Written(machine.sensibility).to_string(),
        nodes: machine.nodes,
        io_nodes: machine.io_nodes,
        alpha: plan.alpha,
        makespan_s: plan.makespan().as_secs_f64(),
        mean_max_stretch: plan.mean_max_stretch(),
        node_seconds: NodeSeconds {
            useful: seconds(time.useful),
            delayed: seconds(time.delayed),
            idle: seconds(time.idle),
        },
        packs: plan.packs.iter().zip(&plan.assigned).map(|(run, assigned)| pack_line(&named, run, *assigned)).collect(),
        jobs: named.len(),
        left_out,
    })
}

fn pack_line(named: &[NamedJob], run: &planning::PackRun, (io_node, begin): (u32, isonomia_units::Nanos)) -> PackLine {
    PackLine {
        jobs: run.pack.jobs.iter().map(|&job| named[job].id.clone()).collect(),
        io_node,
        begin_s: begin.as_secs_f64(),
        time_s: run.time.as_secs_f64(),
        alone_s: run.pack.alone.as_secs_f64(),
        nodes: run.pack.nodes,
        io_occupation: run.pack.occupation(),
        max_stretch: run.max_stretch(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensibilities_are_words_or_positive_numbers() {
        assert_eq!(parse_sensibility("1"), Ok(Sensibility::Limit(1.0)));
        assert_eq!(parse_sensibility("2.5"), Ok(Sensibility::Limit(2.5)));
        assert_eq!(parse_sensibility("alpha"), Ok(Sensibility::Alpha));
        assert_eq!(parse_sensibility("inf"), Ok(Sensibility::Infinite));
        for bad in ["0", "-1", "NaN", "infinity", "most"] {
            assert!(parse_sensibility(bad).is_err_and(|e| e.to_string().contains("1, alpha, inf")), "{bad}");
        }
    }

    #[test]
    fn a_schedule_by_hand_has_the_fields_that_scripts_read() {
        let csv = b"id,compute_s,io_s,iterations\na,2,2,2\nb,2,2,2\n";
        let report = schedule("apps.csv", csv, Order::Fifo).unwrap();
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["makespan_s"], 10.0);
        assert_eq!(json["max_stretch"], 1.25);
        assert_eq!(json["apps"][1]["completion_s"], 10.0);
        let error = schedule("apps.csv", b"id,compute_s,io_s,iterations\na,2,-2,2\n", Order::Fifo).unwrap_err();
        assert!(error.to_string().starts_with("apps.csv: line 2, field io_s: "), "{error}");
    }

    #[test]
    fn jobs_that_cannot_run_together_are_packed_apart() {
        let csv = b"id,nodes,iterations,compute_s,volume\na,6,2,5,5\nb,6,2,5,5\n";
        let machine = Machine { nodes: 8, io_nodes: 2, sensibility: Sensibility::Limit(1.0), order: Order::Fifo };
        let report = pack("jobs.csv", JobSource::Csv(csv, 1.0), &machine).unwrap();
        assert_eq!((report.packs.len(), report.makespan_s, report.mean_max_stretch), (2, 20.0, 1.0));
        let machine = Machine { nodes: 4, ..machine };
        let error = pack("jobs.csv", JobSource::Csv(csv, 1.0), &machine).unwrap_err();
        assert!(error.to_string().starts_with("jobs.csv: line 2, field nodes: "), "{error}");
    }
}
