//! `isonomia-bench applications`: GIFT, what it is compared with, coflow and fair-finish, live on one or two servers with eight
//! capped targets, and beside it the same simulated.
//!
//! Each application is a process that computes (sleeps) and then writes to its targets, two threads for each, with a barrier
//! at the end of the phase ([`workload`]). The same applications are simulated request by request ([`simulated`]), with the arbiters and the
//! controller that the servers have. What is looked at ([`table`]) is time in I/O beside that under `pofs`, where each target shares
//! fairly by itself, in the same layout: in that in which an application goes on at the rate of its slowest target it is the paper's baseline.
//!
//! A run of one policy in one seed takes as long as its applications, about a minute. What came of each is kept in a file, so that a
//! table can be measured in several goes (`--resume`).

mod course;
mod live;
mod simulated;
mod table;
mod workload;

use crate::arguments::ApplicationsOptions;
use crate::harness::Harness;
use crate::report::Report;
use anyhow::{Context, Result, bail, ensure};
use course::Course;
use isonomia_units::Nanos;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use table::Compared;
use workload::{Application, Layout, draw};

/// What all others are compared with, each in its own layout; in the other one than the first's it is compared with that.
const BASE: &str = "pofs";
const FINISH: &str = "fair-finish{guarantee=0.2,sizes=history}";
/// With the floor that coflow has.
const FIRM_FINISH: &str = "fair-finish{guarantee=0.8,sizes=history}";
const COFLOW: &str = "coflow{guarantee=0.8,order=attained}";
/// A regret period is so short that some end in a run.
const GIFT: &str = "gift{period=10s}";
/// Between two decisions of the controller: a hundredth of the paper's, as all times are.
const DECIDE: Nanos = Nanos::from_millis(100);
/// Between two messages of a server to others: a fiftieth of what is usual, as shorter ones are not allowed.
const EXCHANGE: Nanos = Nanos::from_millis(10);

/// Servers tell each other of their jobs only under `fair-finish`, which hears nothing else by it than when phases end fairly elsewhere: no
/// policy but GIFT and its like is to be helped by what jobs received on other servers.
fn exchange(policy: &str) -> Option<Nanos> {
    policy.starts_with("fair-finish").then_some(EXCHANGE)
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    name: &'static str,
    policy: &'static str,
    layout: Layout,
}

const fn setting(name: &'static str, policy: &'static str, layout: Layout) -> Setting {
    Setting { name, policy, layout }
}

/// The first is the baseline. The second is the same again: what differs between them is chance.
const SETTINGS: [Setting; 17] = [
    setting("pofs", BASE, Layout::Striped),
    setting("pofs again", BASE, Layout::Striped),
    setting("bsip", "bsip", Layout::Striped),
    setting("mbw", "mbw", Layout::Striped),
    setting("tsa", "tsa", Layout::Striped),
    setting("esa", "esa", Layout::Striped),
    setting("tmf", "tmf", Layout::Striped),
    setting("rnd", "rnd", Layout::Striped),
    setting("gift", GIFT, Layout::Striped),
    setting("coflow", COFLOW, Layout::Striped),
    setting("fair-finish", FINISH, Layout::Striped),
    setting("fair-finish 0.8", FIRM_FINISH, Layout::Striped),
    setting("pofs, apart", BASE, Layout::Apart),
    setting("gift, apart", GIFT, Layout::Apart),
    setting("coflow, apart", COFLOW, Layout::Apart),
    setting("fair-finish, apart", FINISH, Layout::Apart),
    setting("fair-finish 0.8, apart", FIRM_FINISH, Layout::Apart),
];

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Configuration {
    servers: u16,
    targets: usize,
    applications: usize,
    bandwidth: &'static str,
    block_bytes: u64,
    decide_ms: u64,
    length_s: f64,
    seeds: u32,
    server_workers: Option<u32>,
}

/// A run in which one of ten sleeps was so much too long, in milliseconds, is taken again when all others are done: the machine had
/// something else to do.
const LATE_MS_MAX: f64 = 1.2;
/// So often at most; of those the least disturbed counts.
const TIMES_MAX: u32 = 3;

/// What is kept of a run.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    policy: String,
    layout: Layout,
    seed: u64,
    length_s: f64,
    /// Of the last minute, before the run: what else was going on.
    load_average: f64,
    /// How often it was measured; what is kept is the least disturbed.
    #[serde(default = "once")]
    times: u32,
    live: Course,
}

fn once() -> u32 {
    1
}

/// What is still to be done for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// It was not measured.
    Missing,
    /// It was disturbed, this often.
    Disturbed(u32),
}

/// Measures, and writes the report even of a run that failed halfway.
pub fn run(options: &ApplicationsOptions) -> Result<()> {
    let common = &options.common;
    let length_s = options.length.unwrap_or(if common.quick { 10 } else { 40 }).into();
    let settings = wanted(&options.only)?;
    let configuration = Configuration {
        servers: options.servers,
        targets: workload::TARGETS,
        applications: workload::APPLICATIONS,
        bandwidth: live::CAP.bandwidth,
        block_bytes: workload::BLOCK,
        decide_ms: DECIDE.0 / 1_000_000,
        length_s,
        seeds: common.repeat,
        server_workers: common.workers,
    };
    let mut report = match &options.resume {
        Some(dir) => Report::resumed("applications", dir, configuration)?,
        None => Report::new("applications", common, configuration)?,
    };
    let scale = live::CAP.scale(workload::TARGETS);
    if !report.remarks.contains(&scale) {
        report.remarks.push(scale);
    }
    let runs = report.dir().join("runs");
    std::fs::create_dir_all(&runs).with_context(|| format!("cannot create {}", runs.display()))?;
    let seeds = 1..=u64::from(common.repeat);
    let cells = || seeds.clone().flat_map(|seed| settings.iter().map(move |setting| (seed, setting)));
    let done = (|| {
        let mut missing = Vec::new();
        for (seed, setting) in cells() {
            if let Some(due) = due(&runs, (seed, length_s), setting)? {
                missing.push((due, seed, setting));
            }
        }
        missing.sort_by_key(|(due, ..)| *due);
        let now = options.runs.map_or(missing.len(), |runs| runs as usize).min(missing.len());
        // Without a live run only the simulator is needed.
        let harness = (now > 0).then(|| Harness::new(common.isonomia.as_deref())).transpose()?;
        for (at, (_, seed, setting)) in missing.iter().take(now).enumerate() {
            let Some(harness) = &harness else { break };
            eprintln!("isonomia-bench: seed {seed}, {} ({} of {})", setting.name, at + 1, missing.len());
            let log = report.dir().join(format!("server-{}.log", file_name(*seed, setting)));
            measure(harness, (&runs, &log), (*seed, length_s), setting, (options.servers, common.workers))
                .with_context(|| setting.name.to_owned())?;
        }
        if now < missing.len() {
            let left = missing.len() - now;
            let dir = report.dir().display();
            report.remarks.push(format!("{left} runs are missing, or were disturbed: go on with --resume {dir}"));
        }
        Ok(())
    })();
    report.error = done.as_ref().err().map(|error: &anyhow::Error| format!("{error:#}"));
    let mut compared = Vec::new();
    for (seed, setting) in cells() {
        let path = file(&runs, seed, setting);
        if path.exists() {
            let applications = draw(seed, length_s);
            let live = read(&path, (seed, length_s), setting)?.live;
            let simulated = simulated::simulate(
                &applications,
                (setting.layout, options.servers),
                &setting.policy.parse()?,
                (DECIDE, exchange(setting.policy)),
            )?;
            compared.push(Compared { setting: *setting, seed, applications, live, simulated });
        }
    }
    report.rows = table::rows(&compared);
    table::write(&report.dir().join("by-application.csv"), &compared)?;
    table::plot(report.dir(), &compared)?;
    let text = table::text(&compared);
    std::fs::write(report.dir().join("table.md"), &text).context("cannot write the table")?;
    if !common.json {
        println!("{text}");
    }
    report.publish(common.json)?;
    done
}

/// The settings whose names these are; all if there is none. The baseline is always among them, and that of each layout which is.
fn wanted(only: &[String]) -> Result<Vec<Setting>> {
    if let Some(unknown) = only.iter().find(|only| SETTINGS.iter().all(|setting| setting.name != only.as_str())) {
        bail!("{unknown:?} is no setting (allowed: {})", SETTINGS.map(|setting| setting.name).join("; "));
    }
    let is_wanted = |setting: &&Setting| only.is_empty() || only.iter().any(|only| setting.name == only.as_str());
    let layouts: Vec<Layout> = SETTINGS.iter().filter(is_wanted).map(|setting| setting.layout).collect();
    let is_base = |at: usize, setting: &Setting| {
        at == 0 || setting.name != "pofs again" && setting.policy == BASE && layouts.contains(&setting.layout)
    };
    let chosen = SETTINGS.iter().enumerate().filter(|(at, setting)| is_base(*at, setting) || is_wanted(setting));
    Ok(chosen.map(|(_, setting)| *setting).collect())
}

fn file_name(seed: u64, setting: &Setting) -> String {
    format!("{seed}-{}", setting.name.replace(", ", "-").replace(' ', "-"))
}

fn file(runs: &Path, seed: u64, setting: &Setting) -> PathBuf {
    runs.join(format!("{}.json", file_name(seed, setting)))
}

/// Whether a run has to be measured.
fn due(runs: &Path, (seed, length_s): (u64, f64), setting: &Setting) -> Result<Option<Due>> {
    let path = file(runs, seed, setting);
    if !path.exists() {
        return Ok(Some(Due::Missing));
    }
    let Kept { live, times, .. } = read(&path, (seed, length_s), setting)?;
    let is_disturbed = live.late_ms(&draw(seed, length_s)) > LATE_MS_MAX && times < TIMES_MAX;
    Ok(is_disturbed.then_some(Due::Disturbed(times)))
}

fn measure(
    harness: &Harness,
    (runs, log): (&Path, &Path),
    (seed, length_s): (u64, f64),
    setting: &Setting,
    (servers, workers): (u16, Option<u32>),
) -> Result<()> {
    let applications: Vec<Application> = draw(seed, length_s);
    let load_average = crate::host::load_average();
    let live = live::measure(harness, &applications, (setting.layout, servers), setting.policy, (workers, log))?;
    let Setting { policy, layout, .. } = *setting;
    let mut kept = Kept { policy: policy.to_owned(), layout, seed, length_s, load_average, times: 1, live };
    let path = file(runs, seed, setting);
    if path.exists() {
        let before = read(&path, (seed, length_s), setting)?;
        let times = before.times + 1;
        let is_less_disturbed = kept.live.late_ms(&applications) < before.live.late_ms(&applications);
        kept = Kept { times, ..if is_less_disturbed { kept } else { before } };
    }
    // Whole or not at all: what is there is not measured again.
    let unfinished = path.with_extension("tmp");
    std::fs::write(&unfinished, serde_json::to_string(&kept)?)
        .and_then(|()| std::fs::rename(&unfinished, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn read(path: &Path, (seed, length_s): (u64, f64), setting: &Setting) -> Result<Kept> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let kept: Kept = serde_json::from_str(&text).with_context(|| format!("{} is no run", path.display()))?;
    let is_same = kept.policy == setting.policy && kept.layout == setting.layout && kept.seed == seed;
    ensure!(
        is_same && kept.length_s == length_s,
        "{} is a run of {} s of seed {} under {}, {}; wanted is one of {length_s} s of seed {seed} under {}, {}",
        path.display(),
        kept.length_s,
        kept.seed,
        kept.policy,
        kept.layout,
        setting.policy,
        setting.layout,
    );
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_chosen_by_name_and_never_without_the_baseline() {
        let names = |only: &[&str]| -> Result<Vec<&str>> {
            let only: Vec<String> = only.iter().map(|only| (*only).to_owned()).collect();
            Ok(wanted(&only)?.iter().map(|setting| setting.name).collect())
        };
        assert_eq!(names(&["gift"]).unwrap(), ["pofs", "gift"]);
        assert_eq!(names(&["gift, apart"]).unwrap(), ["pofs", "pofs, apart", "gift, apart"]);
        assert_eq!(names(&[]).unwrap().len(), SETTINGS.len());
        let error = names(&["gft"]).unwrap_err().to_string();
        assert!(error.contains("\"gft\"") && error.contains("gift, apart"), "{error}");
    }

    #[test]
    fn every_policy_is_one_and_every_file_of_its_own() {
        let mut files: Vec<String> = SETTINGS.iter().map(|setting| file_name(1, setting)).collect();
        files.sort();
        files.dedup();
        assert_eq!(files.len(), SETTINGS.len());
        for setting in SETTINGS {
            assert!(setting.policy.parse::<isonomia_policy::PolicySpec>().is_ok(), "{}", setting.policy);
        }
    }
}
