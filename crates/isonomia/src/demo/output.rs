//! What the demo leaves: a table, plots, and the raw data behind both.

use super::figures::{self, Figures, Sample};
use super::{JOBS, PER_OP, SAMPLE_PERIOD, Servers, plot};
use crate::table;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Both jobs under one policy.
#[derive(Debug, Serialize)]
pub struct Scene {
    pub policy: &'static str,
    /// While both were there.
    pub figures: [Figures; 2],
    pub samples: Vec<Sample>,
    /// When the small job joined, on the clock of the samples.
    pub joined_s: f64,
}

/// All scenes, beside each job alone.
#[derive(Debug)]
pub struct Comparison {
    servers: Servers,
    alone: [Figures; 2],
    scenes: Vec<Scene>,
    took: Duration,
}

/// A line of a CSV file.
#[derive(Serialize)]
struct Record {
    time_s: f64,
    job: &'static str,
    share_due: f64,
    service_ns_total: u64,
    bytes_total: u64,
}

impl Comparison {
    pub fn new(servers: Servers, alone: [Figures; 2], scenes: Vec<Scene>, took: Duration) -> Self {
        Self { servers, alone, scenes, took }
    }

    /// What was done, in two lines.
    pub fn headline(&self) -> String {
        let jobs = JOBS.map(|job| job.description()).join("; ");
        let bandwidth = self.servers.bandwidth();
        let devices = match self.servers.count() {
            1 => format!("One device of {bandwidth} and {PER_OP} per operation, emulated"),
            count => format!(
                "{count} servers with a device of {bandwidth} and {PER_OP} per operation each, emulated, and every file striped over all"
            ),
        };
        format!("{devices}; took {:.0} s.\nJobs, writing 1 MiB at a time: {jobs}", self.took.as_secs_f64())
    }

    /// The table that is printed.
    pub fn table(&self) -> String {
        let header = ["policy", "job", "share due", "share received", "throughput", "alone", "slowdown against alone"];
        let mut table = table::plain(&header, &[0, 1]);
        for scene in &self.scenes {
            let rows = JOBS.iter().zip(&scene.figures).zip(&self.alone).zip(self.slowdowns(scene));
            for (((job, figures), alone), slowdown) in rows {
                table.add_row([
                    scene.policy.to_owned(),
                    job.name.to_owned(),
                    // Under fifo nothing is due to anybody.
                    if figures.share_due > 0.0 { table::percent(figures.share_due) } else { "-".to_owned() },
                    table::percent(figures.share_received),
                    table::throughput(figures.throughput_bytes_per_s),
                    table::throughput(alone.throughput_bytes_per_s),
                    slowdown.map_or("-".to_owned(), |slowdown| format!("{slowdown:.2}")),
                ]);
            }
        }
        table::lines(&table)
    }

    /// Saves plots and data into `dir`; gives what was written.
    pub fn save(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for scene in &self.scenes {
            let [png, svg, csv] = ["png", "svg", "csv"].map(|kind| dir.join(format!("{}.{kind}", scene.policy)));
            plot::draw(scene, self.servers, &png, &svg)?;
            save_samples(&scene.samples, &csv).with_context(|| format!("cannot write {}", csv.display()))?;
            files.extend([png, svg, csv]);
        }
        let json = dir.join("demo.json");
        let text = serde_json::to_string_pretty(&self.as_json())?;
        std::fs::write(&json, text).with_context(|| format!("cannot write {}", json.display()))?;
        files.push(json);
        Ok(files)
    }

    fn slowdowns(&self, scene: &Scene) -> [Option<f64>; 2] {
        [0, 1].map(|job| slowdown(&self.alone[job], &scene.figures[job]))
    }

    fn as_json(&self) -> serde_json::Value {
        let system = rustix::system::uname();
        serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "host": {
                "name": system.nodename().to_string_lossy(),
                "kernel": system.release().to_string_lossy(),
                "cores": std::thread::available_parallelism().map_or(0, usize::from),
            },
            "configuration": {
                "servers": self.servers.count(), "bandwidth": self.servers.bandwidth(), "per_op": PER_OP, "jobs": JOBS, "sample_period_ms": SAMPLE_PERIOD.as_millis(),
            },
            "took_s": self.took.as_secs_f64(),
            "alone": self.alone,
            "policies": self.scenes.iter().map(|scene| serde_json::json!({
                "policy": scene.policy,
                "joined_s": scene.joined_s,
                "figures": scene.figures,
                "slowdown": self.slowdowns(scene),
                "slices": figures::slices(&scene.samples),
            })).collect::<Vec<_>>(),
        })
    }
}

/// How many times longer the job takes than alone; `None` when it got nothing.
fn slowdown(alone: &Figures, shared: &Figures) -> Option<f64> {
    (shared.throughput_bytes_per_s > 0.0).then(|| alone.throughput_bytes_per_s / shared.throughput_bytes_per_s)
}

fn save_samples(samples: &[Sample], path: &Path) -> Result<()> {
    let mut csv = csv::Writer::from_path(path)?;
    for sample in samples {
        for (job, data) in JOBS.iter().zip(&sample.jobs) {
            csv.serialize(Record {
                time_s: sample.time_s,
                job: job.name,
                share_due: data.share_due,
                service_ns_total: data.service_ns_total,
                bytes_total: data.bytes_total,
            })?;
        }
    }
    Ok(csv.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::figures::JobSample;

    fn comparison() -> Comparison {
        let figures = |share_due, share_received: f64| Figures {
            share_due,
            share_received,
            throughput_bytes_per_s: share_received * 512.0 * 1024.0 * 1024.0,
        };
        let scene = |policy, due: [f64; 2], received: [f64; 2]| Scene {
            policy,
            figures: [0, 1].map(|job| figures(due[job], received[job])),
            samples: (0..60u64)
                .map(|n| Sample {
                    time_s: 7.0 + n as f64 / 10.0,
                    jobs: [0, 1].map(|job| {
                        let share = if n < 20 { job as f64 } else { received[job] };
                        JobSample {
                            share_due: due[job],
                            bytes_total: ((n as f64 + (n % 3) as f64 / 9.0) * share * 53_687_091.0) as u64,
                            service_ns_total: n * 10_000_000,
                        }
                    }),
                })
                .collect(),
            joined_s: 9.0,
        };
        let alone = [figures(1.0, 1.0), figures(1.0, 0.99)];
        let scenes = vec![scene("fifo", [0.0, 0.0], [0.2, 0.8]), scene("size-fair", [0.2, 0.8], [0.202, 0.798])];
        Comparison::new(Servers(1), alone, scenes, Duration::from_secs(36))
    }

    #[test]
    fn the_table_reads_like_this() {
        assert_eq!(comparison().table() + "\n", include_str!("../../tests/demo.txt"));
    }

    #[test]
    fn a_job_that_got_nothing_has_no_slowdown() {
        let nothing = Figures::default();
        assert_eq!(slowdown(&comparison().alone[0], &nothing), None);
    }

    #[test]
    fn plots_and_data_are_saved_for_every_policy() {
        let dir = tempfile::tempdir().unwrap();
        let files = comparison().save(dir.path()).unwrap();
        assert_eq!(files.len(), 2 * 3 + 1);
        let csv = std::fs::read_to_string(dir.path().join("size-fair.csv")).unwrap();
        assert_eq!(csv.lines().next(), Some("time_s,job,share_due,service_ns_total,bytes_total"));
        assert_eq!(csv.lines().count(), 1 + 2 * 60);
        let svg = std::fs::read_to_string(dir.path().join("fifo.svg")).unwrap();
        assert!(svg.contains("large: 4 nodes, 4 processes") && svg.contains("throughput in MiB/s"));
        let png = std::fs::read(dir.path().join("fifo.png")).unwrap();
        assert_eq!(png[1..4], *b"PNG");
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(dir.path().join("demo.json")).unwrap()).unwrap();
        assert_eq!(json["policies"][1]["policy"], "size-fair");
    }
}
