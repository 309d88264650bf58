//! Fig. 6: two targets, three decisions.

use crate::claims::{Claim, Verdict};
use crate::data::Data;
use crate::run::{Context, Finding, Stopped};
use isonomia_allocation::{Allocation, App, Gift, GiftConfig, Problem, Targets, bsip};
use isonomia_units::Nanos;
use serde_json::json;
use std::sync::Arc;

/// The figure needs this bound; the paper's default of 0.1 gives less.
const B_THRES: f64 = 0.3;

/// Computes the figure.
pub fn run(_: &Context) -> Result<Vec<Finding>, Stopped> {
    let targets = Arc::new(Targets::new([("t1", 1.0), ("t2", 1.0)]).expect("two targets"));
    let problem = |apps: &[(&str, &[&str])]| {
        let app = |(name, at): &(&str, &[&str])| App::at(*name, &targets, at).expect("targets that are there");
        Problem::new(targets.clone(), apps.iter().map(app).collect()).expect("applications that differ")
    };
    let first = problem(&[("A", &["t1"]), ("B", &["t1", "t2"])]);
    let later = problem(&[
        ("A", &["t1"]),
        ("B", &["t1", "t2"]),
        ("C", &["t1"]),
        ("D", &["t2"]),
        ("E", &["t2"]),
        ("F", &["t2"]),
    ]);
    let config = GiftConfig { b_thres: B_THRES, ..GiftConfig::default() };
    let mut gift = Gift::new(config).expect("good parameters");
    let mut data = Data::new(&["decision", "application", "share", "fair_share", "issued", "redeemed"]);
    let mut decide = |name: &str, at: u64, problem: &Problem| -> Allocation {
        let allocation = gift.decide(Nanos::from_secs(10 * at), problem).expect("a feasible program");
        for app in allocation.apps() {
            data.push([
                name.into(),
                app.name.to_string().into(),
                app.share.into(),
                app.fair_share.into(),
                app.coupon_issued.targets().into(),
                app.coupon_redeemed.targets().into(),
            ]);
        }
        allocation
    };
    let (k1, k2, k3) = (decide("k1", 0, &first), decide("k2", 1, &later), decide("k3", 2, &later));
    let share = |allocation: &Allocation, app: &str| allocation.app(app).map_or(f64::NAN, |app| app.share);
    let redeemed = |allocation: &Allocation| allocation.app("A").map_or(f64::NAN, |app| app.coupon_redeemed.targets());
    let waste = |allocation: &Allocation| allocation.target_uses()[1].wasted;
    let claim = |claim: &str, paper: &str, found: Vec<f64>, expected: &[f64], tolerance: f64| {
        let holds = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= tolerance);
        let ours: Vec<String> = found.iter().map(|value| format!("{:.2}", 100.0 * value)).collect();
        Claim {
            claim: claim.to_owned(),
            paper: paper.to_owned(),
            ours: format!("{} %", ours.join(" / ")),
            verdict: Verdict::of(holds, false),
            why: "holds if each is what the figure's shares are exactly, to within the size of a coupon".to_owned(),
        }
    };
    let claims = vec![
        claim(
            "k1: A is throttled, B expanded",
            "A 35 %, B 65 %",
            vec![share(&k1, "A"), share(&k1, "B")],
            &[0.35, 0.65],
            1e-6,
        ),
        claim(
            "k1: waste on the second target",
            "50 % to 35 %",
            vec![waste(&bsip(&first)), waste(&k1)],
            &[0.5, 0.35],
            1e-6,
        ),
        claim(
            "k2: A redeems what is spare, C is left fair",
            "A 33 + 8.3 (9 rounded), B 25, C 33 %",
            vec![share(&k2, "A"), share(&k2, "B"), share(&k2, "C")],
            &[1.0 / 3.0 + 1.0 / 12.0, 0.25, 1.0 / 3.0],
            1e-5,
        ),
        claim("k3: A redeems the rest", "6.7 % (6 rounded)", vec![redeemed(&k3)], &[0.15 - 1.0 / 12.0], 1e-5),
    ];
    Ok(vec![Finding {
        item: "fig6",
        title: "GIFT's worked example".to_owned(),
        configuration: json!({ "b_thres": B_THRES }),
        data,
        plots: Vec::new(),
        claims,
    }])
}
