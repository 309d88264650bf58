//! A run at fluid level: one row, a table of applications, and how much I/O slows them down.

use super::Rows;
use crate::table;
use anyhow::Result;
use isonomia_plot::{Line, Plot};
use isonomia_sim::fluid::Outcome;

const SHOWN: [&str; 10] = [
    "jobs done",
    "I/O time",
    "I/O slowdown",
    "I/O over fair",
    "late",
    "run time",
    "effective bandwidth",
    "nodes used",
    "coupons redeemed",
    "node-hours paid",
];
const SAVED: [&str; 16] = [
    "jobs_done",
    "io_s",
    "io_slowdown",
    "io_over_fair",
    "late_part",
    "run_s",
    "effective_bandwidth",
    "effective_bandwidth_of_all",
    "io_target_s",
    "node_utilization",
    "node_hours_done",
    "decisions",
    "coupons_issued_target_s",
    "coupons_redeemed_target_s",
    "outstanding_node_hours",
    "paid_node_hours",
];

/// For people.
pub fn shown(outcome: &Outcome) -> Rows {
    let gift = outcome.gift.as_ref();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let redeemed = gift.filter(|gift| gift.issued_target_s > 0.0);
    let row: [String; SHOWN.len()] = [
        outcome.jobs_done.to_string(),
        format!("{:.1} s", outcome.io_s()),
        format!("{:.3}", outcome.io_slowdown()),
        format!("{:.3}", outcome.io_over_fair()),
        table::percent(outcome.late()),
        format!("{:.1} s", outcome.run_s()),
        table::percent(outcome.effective_bandwidth),
        table::percent(outcome.node_utilization),
        or_dash(redeemed.map(|gift| table::percent(gift.redeemed_target_s / gift.issued_target_s))),
        or_dash(gift.map(|gift| format!("{:.2}", gift.paid_node_hours))),
    ];
    Rows { header: &SHOWN, rows: vec![row.into()] }
}

/// For programs.
pub fn saved(outcome: &Outcome) -> Rows {
    let gift = outcome.gift.as_ref();
    let coupons =
        |of: fn(&isonomia_sim::fluid::GiftOutcome) -> f64| gift.map_or(String::new(), |gift| of(gift).to_string());
    let row: [String; SAVED.len()] = [
        outcome.jobs_done.to_string(),
        outcome.io_s().to_string(),
        outcome.io_slowdown().to_string(),
        outcome.io_over_fair().to_string(),
        outcome.late().to_string(),
        outcome.run_s().to_string(),
        outcome.effective_bandwidth.to_string(),
        outcome.effective_bandwidth_of_all.to_string(),
        outcome.io_target_s.to_string(),
        outcome.node_utilization.to_string(),
        outcome.node_hours_done.to_string(),
        outcome.decisions.to_string(),
        coupons(|gift| gift.issued_target_s),
        coupons(|gift| gift.redeemed_target_s),
        coupons(|gift| gift.outstanding_node_hours),
        coupons(|gift| gift.paid_node_hours),
    ];
    Rows { header: &SAVED, rows: vec![row.into()] }
}

/// What each application had.
pub fn applications_csv(outcome: &Outcome) -> Result<Vec<u8>> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    for application in &outcome.applications {
        csv.serialize(application)?;
    }
    Ok(csv.into_inner()?)
}

/// The slowdown of I/O, from the least to the most slowed down application.
pub fn plot(outcome: &Outcome) -> Plot {
    let mut slowdowns: Vec<f64> =
        outcome.applications.iter().filter(|app| app.phases > 0).map(|app| app.io_slowdown).collect();
    slowdowns.sort_by(f64::total_cmp);
    let count = slowdowns.len().max(1) as f64;
    let points = slowdowns.iter().enumerate().map(|(at, slowdown)| ((at as f64 + 1.0) / count, *slowdown)).collect();
    Plot {
        caption: "slowdown of the applications' I/O phases against alone".to_owned(),
        x: "part of the applications",
        y: "mean slowdown",
        lines: vec![Line { label: "applications".to_owned(), points, reference: None }],
    }
}
