//! `isonomia sim --trace`: the records of live servers beside their simulation.

use super::output;
use crate::arguments::SimOptions;
use crate::table;
use anyhow::{Context, Result, bail};
use isonomia_plot::{Line, Plot};
use isonomia_sim::predict::{self, Compared, Prediction};
use isonomia_units::Nanos;
use std::io::Write;

/// Jobs whose lines a plot can have and be read.
const JOBS_PLOTTED: usize = 6;

pub fn trace(options: &SimOptions) -> Result<()> {
    let record = predict::read_all(&options.trace)?;
    if let Some(obstacle) = record.obstacle(options.policy.as_ref()) {
        let paths: Vec<_> = options.trace.iter().map(|path| path.display().to_string()).collect();
        bail!("{} cannot be simulated: {obstacle}", paths.join(", "));
    }
    let found = record.predict(options.policy.as_ref());
    let mut files = Vec::new();
    if let Some(dir) = &options.out {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {}", dir.display()))?;
        let [json, png, svg] = ["prediction.json", "prediction.png", "prediction.svg"].map(|name| dir.join(name));
        output::save_atomically(&json, &serde_json::to_vec_pretty(&found)?)?;
        plot(&found).save(&png, &svg)?;
        files = vec![json, png, svg];
    }
    let mut out = std::io::stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, &found).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(());
    }
    write!(out, "{}", text(&found))?;
    for file in files {
        writeln!(out, "  {}", file.display())?;
    }
    Ok(())
}

fn text(found: &Prediction) -> String {
    let header = ["job", "user", "requests", "share", "simulated", "difference", "took", "simulated", "difference"];
    let mut rows = table::plain(&header, &[0, 1]);
    let signed = |part: f64| format!("{:+.1} %", part * 100.0);
    for job in &found.jobs {
        rows.add_row([
            job.job.clone(),
            job.user.clone(),
            job.requests.to_string(),
            table::percent(job.recorded.share),
            table::percent(job.simulated.share),
            signed(job.share_difference),
            table::seconds(Nanos(job.recorded.makespan_ns).as_secs_f64()),
            table::seconds(Nanos(job.simulated.makespan_ns).as_secs_f64()),
            signed(job.makespan_difference),
        ]);
    }
    let seconds = |ns: u64| table::seconds(Nanos(ns).as_secs_f64());
    let servers = match found.records {
        1 => String::new(),
        records => format!(", on {records} servers"),
    };
    format!(
        "recorded under {}, simulated under {}{servers}; {} requests had not ended and are left out\n\
         all of it took {}, simulated {}; shares are of {} to {}, while all jobs of weight were there\n\n{}\n",
        found.recorded_policy,
        found.simulated_policy,
        found.left_out,
        seconds(found.recorded_makespan_ns),
        seconds(found.simulated_makespan_ns),
        seconds(found.share_from_ns),
        seconds(found.share_to_ns),
        table::lines(&rows),
    )
}

/// What each job had of the server over time, recorded and simulated.
fn plot(found: &Prediction) -> Plot {
    let slice_s = Nanos(found.slice_ns).as_secs_f64();
    let line = |job: &Compared, slices: &[u64], what: &str| {
        let point = |(at, ns): (usize, &u64)| ((at as f64 + 1.0) * slice_s, Nanos(*ns).as_secs_f64() / slice_s);
        Line {
            label: format!("{} {what}", job.job),
            points: slices.iter().enumerate().map(point).collect(),
            reference: None,
        }
    };
    let both = |job: &Compared| {
        [line(job, &job.recorded.slices_ns, "recorded"), line(job, &job.simulated.slices_ns, "simulated")]
    };
    Plot {
        caption: format!("recorded under {}, simulated under {}", found.recorded_policy, found.simulated_policy),
        x: "time in seconds",
        y: "service in seconds a second",
        lines: found.jobs.iter().take(JOBS_PLOTTED).flat_map(both).collect(),
    }
}
