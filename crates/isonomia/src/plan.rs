//! `isonomia plan`: orders of I/O phases and packs of jobs, tried on paper.

use crate::arguments::{PackOptions, PlanCommand, PlanOptions, ScheduleOptions};
use crate::table;
use anyhow::Result;
use isonomia_planning::{Machine, Mapping};
use isonomia_whatif::plan::{self as whatif, JobSource, PackReport, ScheduleReport};
use isonomia_whatif::read;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write;

/// Longer lists of jobs are cut in tables for people.
const SHOWN_LEN_MAX: usize = 48;

pub fn plan(options: &PlanOptions) -> Result<()> {
    match &options.command {
        PlanCommand::Schedule(options) => schedule(options),
        PlanCommand::Pack(options) => pack(options),
    }
}

fn schedule(options: &ScheduleOptions) -> Result<()> {
    let file = options.apps.display().to_string();
    let report = whatif::schedule(&file, &read(&options.apps)?, options.policy)?;
    print(options.json, &report, schedule_text)
}

fn pack(options: &PackOptions) -> Result<()> {
    let machine = Machine {
        nodes: options.nodes,
        io_nodes: options.io_nodes,
        sensibility: options.sensibility,
        order: options.policy,
    };
    let (path, text);
    let source = match (&options.jobs, &options.swf, options.bandwidth) {
        (Some(jobs), _, Some(bandwidth)) => {
            (path, text) = (jobs, read(jobs)?);
            JobSource::Csv(&text, bandwidth)
        }
        (_, Some(swf), _) => {
            (path, text) = (swf, read(swf)?);
            let mapping = Mapping {
                processors_per_node: options.processors_per_node,
                iterations: options.iterations,
                io_fraction: options.io_fraction,
            };
            JobSource::Swf(&text, mapping)
        }
        _ => anyhow::bail!("neither --jobs with --bandwidth nor --swf is given"),
    };
    let report = whatif::pack(&path.display().to_string(), source, &machine)?;
    if report.left_out > 0 {
        tracing::info!("{}: {} jobs did not run or have no size: left out", path.display(), report.left_out);
    }
    print(options.json, &report, pack_text)
}

fn print<R: Serialize>(as_json: bool, report: &R, text: impl FnOnce(&R) -> String) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if as_json {
        serde_json::to_writer_pretty(&mut out, report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(text(report).as_bytes())?;
    }
    Ok(())
}

fn schedule_text(report: &ScheduleReport) -> String {
    let mut rows = table::plain(&["app", "released", "completed", "alone", "stretch"], &[0]);
    for app in &report.apps {
        rows.add_row([
            app.id.clone(),
            seconds(app.release_s),
            seconds(app.completion_s),
            seconds(app.alone_s),
            format!("{:.3}", app.stretch),
        ]);
    }
    format!(
        "{}\n\n{}: makespan {}, max stretch {:.3}.\nA stretch of 1 is undisturbed; 2 takes twice as long as alone.\n",
        table::lines(&rows),
        report.policy,
        seconds(report.makespan_s),
        report.max_stretch,
    )
}

fn pack_text(report: &PackReport) -> String {
    let header = ["pack", "I/O node", "begin", "time", "alone", "nodes", "I/O", "max stretch", "jobs"];
    let mut rows = table::plain(&header, &[0, 8]);
    for (number, pack) in report.packs.iter().enumerate() {
        rows.add_row([
            number.to_string(),
            pack.io_node.to_string(),
            seconds(pack.begin_s),
            seconds(pack.time_s),
            seconds(pack.alone_s),
            pack.nodes.to_string(),
            table::percent(pack.io_occupation),
            format!("{:.3}", pack.max_stretch),
            shown(pack.jobs.iter().map(String::as_str)),
        ]);
    }
    let time = report.node_seconds;
    let all = time.useful + time.delayed + time.idle;
    let [useful, delayed, idle] = [time.useful, time.delayed, time.idle].map(|part| table::percent(part / all));
    format!(
        "{}\n\n{} jobs in {} packs, sensibility {}, {}: makespan {}, mean of the packs' max stretch {:.3}.\n\
         I/O load (alpha) {:.3}. Of all node time {useful} is useful, {delayed} waits for I/O, {idle} is idle.\n",
        table::lines(&rows),
        report.jobs,
        report.packs.len(),
        report.sensibility,
        report.policy,
        seconds(report.makespan_s),
        report.mean_max_stretch,
        report.alpha,
    )
}

fn seconds(time_s: f64) -> String {
    format!("{time_s:.1} s")
}

/// As many ids as fit a line.
fn shown<'a>(ids: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    let mut left_out = 0;
    for id in ids {
        if text.len() + id.len() > SHOWN_LEN_MAX {
            left_out += 1;
        } else {
            let gap = if text.is_empty() { "" } else { " " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{gap}{id}");
        }
    }
    if left_out > 0 { format!("{text} and {left_out} more") } else { text }
}
