//! `isonomia plan`: orders of I/O phases and packs of jobs, tried on paper.

use crate::arguments::{PackOptions, PlanCommand, PlanOptions, ScheduleOptions};
use crate::table;
use anyhow::{Context, Result, ensure};
use isonomia_planning as planning;
use isonomia_planning::{Job, Machine, NamedApp, NamedJob, Plan, Schedule, Sensibility};
use isonomia_units::Nanos;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// The longest table or log that is read.
const FILE_LEN_MAX: u64 = 256 << 20;
/// Longer lists of jobs are cut in tables for people.
const SHOWN_LEN_MAX: usize = 48;

pub fn plan(options: &PlanOptions) -> Result<()> {
    match &options.command {
        PlanCommand::Schedule(options) => schedule(options),
        PlanCommand::Pack(options) => pack(options),
    }
}

fn schedule(options: &ScheduleOptions) -> Result<()> {
    let named = planning::read_apps(&read(&options.apps)?).with_context(|| options.apps.display().to_string())?;
    let apps: Vec<_> = named.iter().map(|named| named.app).collect();
    let schedule = planning::schedule(&apps, options.policy).with_context(|| options.apps.display().to_string())?;
    print(options.json, || schedule_json(options, &named, &schedule), || schedule_text(options, &named, &schedule))
}

fn pack(options: &PackOptions) -> Result<()> {
    let named = read_jobs(options)?;
    let jobs: Vec<Job> = named.iter().map(|named| named.job).collect();
    let machine = Machine {
        nodes: options.nodes,
        io_nodes: options.io_nodes,
        sensibility: options.sensibility,
        order: options.policy,
    };
    let plan = planning::plan(&jobs, &machine)?;
    let time = plan.node_time(&jobs, &machine);
    let node_seconds = [time.useful, time.delayed, time.idle].map(|node_ns| node_ns as f64 / 1e9);
    print(
        options.json,
        || pack_json(&machine, &named, &plan, node_seconds),
        || pack_text(&machine, &named, &plan, node_seconds),
    )
}

fn read_jobs(options: &PackOptions) -> Result<Vec<NamedJob>> {
    match (&options.jobs, &options.swf, options.bandwidth) {
        (Some(path), _, Some(bandwidth)) => {
            planning::read_jobs(&read(path)?, options.nodes, bandwidth).with_context(|| path.display().to_string())
        }
        (_, Some(path), _) => {
            let mapping = planning::Mapping {
                processors_per_node: options.processors_per_node,
                iterations: options.iterations,
                io_fraction: options.io_fraction,
            };
            let log = planning::read_swf(&read(path)?, options.nodes, &mapping)
                .with_context(|| path.display().to_string())?;
            if log.left_out > 0 {
                tracing::info!("{}: {} jobs did not run or have no size: left out", path.display(), log.left_out);
            }
            Ok(log.jobs)
        }
        _ => anyhow::bail!("neither --jobs with --bandwidth nor --swf is given"),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(bytes.len() as u64 <= FILE_LEN_MAX, "{} is too long (allowed: {FILE_LEN_MAX} bytes)", path.display());
    Ok(bytes)
}

fn print(as_json: bool, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if as_json {
        serde_json::to_writer_pretty(&mut out, &json()).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(text().as_bytes())?;
    }
    Ok(())
}

fn schedule_json(options: &ScheduleOptions, named: &[NamedApp], schedule: &Schedule) -> Value {
    let apps = named.iter().zip(&schedule.apps).map(|(named, outcome)| {
        json!({
            "id": named.id,
            "release_s": outcome.release.as_secs_f64(),
            "completion_s": outcome.completion.as_secs_f64(),
            "alone_s": outcome.alone.as_secs_f64(),
            "stretch": outcome.stretch(),
        })
    });
    json!({
        "policy": options.policy.name(),
        "makespan_s": schedule.makespan().as_secs_f64(),
        "max_stretch": schedule.max_stretch(),
        "apps": apps.collect::<Vec<_>>(),
    })
}

fn schedule_text(options: &ScheduleOptions, named: &[NamedApp], schedule: &Schedule) -> String {
    let mut rows = table::plain(&["app", "released", "completed", "alone", "stretch"], &[0]);
    for (named, outcome) in named.iter().zip(&schedule.apps) {
        rows.add_row([
            named.id.clone(),
            seconds(outcome.release),
            seconds(outcome.completion),
            seconds(outcome.alone),
            format!("{:.3}", outcome.stretch()),
        ]);
    }
    format!(
        "{}\n\n{}: makespan {}, max stretch {:.3}.\nA stretch of 1 is undisturbed; 2 takes twice as long as alone.\n",
        table::lines(&rows),
        options.policy,
        seconds(schedule.makespan()),
        schedule.max_stretch(),
    )
}

fn pack_json(machine: &Machine, named: &[NamedJob], plan: &Plan, node_seconds: [f64; 3]) -> Value {
    let packs = plan.packs.iter().zip(&plan.places).map(|(run, (io_node, begin))| {
        json!({
            "jobs": run.pack.jobs.iter().map(|&job| &named[job].id).collect::<Vec<_>>(),
            "io_node": io_node,
            "begin_s": begin.as_secs_f64(),
            "time_s": run.time.as_secs_f64(),
            "alone_s": run.pack.alone.as_secs_f64(),
            "nodes": run.pack.nodes,
            "io_occupation": run.pack.occupation(),
            "max_stretch": run.max_stretch(),
        })
    });
    let [useful, delayed, idle] = node_seconds;
    json!({
        "policy": machine.order.name(),
        "sensibility": sensibility(machine.sensibility),
        "nodes": machine.nodes,
        "io_nodes": machine.io_nodes,
        "alpha": plan.alpha,
        "makespan_s": plan.makespan().as_secs_f64(),
        "mean_max_stretch": plan.mean_max_stretch(),
        "node_seconds": { "useful": useful, "delayed": delayed, "idle": idle },
        "packs": packs.collect::<Vec<_>>(),
    })
}

fn pack_text(machine: &Machine, named: &[NamedJob], plan: &Plan, node_seconds: [f64; 3]) -> String {
    let header = ["pack", "I/O node", "begin", "time", "alone", "nodes", "I/O", "max stretch", "jobs"];
    let mut rows = table::plain(&header, &[0, 8]);
    for (number, (run, (io_node, begin))) in plan.packs.iter().zip(&plan.places).enumerate() {
        rows.add_row([
            number.to_string(),
            io_node.to_string(),
            seconds(*begin),
            seconds(run.time),
            seconds(run.pack.alone),
            run.pack.nodes.to_string(),
            table::percent(run.pack.occupation()),
            format!("{:.3}", run.max_stretch()),
            shown(run.pack.jobs.iter().map(|&job| named[job].id.as_str())),
        ]);
    }
    let all: f64 = node_seconds.iter().sum();
    let [useful, delayed, idle] = node_seconds.map(|part| table::percent(part / all));
    format!(
        "{}\n\n{} jobs in {} packs, sensibility {}, {}: makespan {}, mean of the packs' max stretch {:.3}.\n\
         I/O load (alpha) {:.3}. Of all node time {useful} is useful, {delayed} waits for I/O, {idle} is idle.\n",
        table::lines(&rows),
        named.len(),
        plan.packs.len(),
        sensibility(machine.sensibility),
        machine.order,
        seconds(plan.makespan()),
        plan.mean_max_stretch(),
        plan.alpha,
    )
}

fn sensibility(sensibility: Sensibility) -> String {
    match sensibility {
        Sensibility::Infinite => "inf".to_owned(),
        Sensibility::Alpha => "alpha".to_owned(),
        Sensibility::Limit(limit) => limit.to_string(),
    }
}

fn seconds(time: Nanos) -> String {
    format!("{:.1} s", time.as_secs_f64())
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
