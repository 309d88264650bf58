//! Fig. 6: two targets, three decisions.

use crate::chart::Chart;
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use isonomia_allocation::{Allocation, App, Gift, GiftConfig, Problem, Targets, bsip};
use isonomia_units::Nanos;
use serde_json::json;
use std::sync::Arc;

/// The figure needs this bound; the paper's default of 0.1 gives less.
const B_THRES: f64 = 0.3;
/// Two coupons, as a part of a target: what rounding may make of a share.
const COUPON: f64 = 1e-5;

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
    // Exactly what the figure's shares are, to within the size of a coupon.
    let test = |(what, found, expected): (&str, f64, f64)| {
        let [found, expected] = [found, expected].map(|part| 100.0 * part);
        Test::within(what, Interval::exact(found), expected, 100.0 * COUPON).in_part(expected, expected).unit(" %")
    };
    let claim = |claim: &str, paper: &str, found: &[(&str, f64, f64)]| {
        Claim::new(claim, paper, found.iter().copied().map(test).collect())
    };
    let claims = vec![
        claim(
            "k1: A is throttled, B expanded",
            "A 35 %, B 65 %",
            &[("A", share(&k1, "A"), 0.35), ("B", share(&k1, "B"), 0.65)],
        ),
        claim(
            "k1: waste on the second target",
            "50 % to 35 %",
            &[("under BSIP", waste(&bsip(&first)), 0.5), ("under GIFT", waste(&k1), 0.35)],
        ),
        claim(
            "k2: A redeems what is spare, C is left fair",
            "A 33 + 8.3 (9 rounded), B 25, C 33 %",
            &[
                ("A", share(&k2, "A"), 1.0 / 3.0 + 1.0 / 12.0),
                ("B", share(&k2, "B"), 0.25),
                ("C", share(&k2, "C"), 1.0 / 3.0),
            ],
        ),
        claim("k3: A redeems the rest", "6.7 % (6 rounded)", &[("A", redeemed(&k3), 0.15 - 1.0 / 12.0)]),
    ];
    Ok(vec![Finding {
        table: None,
        item: "fig6",
        title: "GIFT's worked example".to_owned(),
        configuration: json!({ "b_thres": B_THRES }),
        data,
        charts: vec![
            Chart::bars("GIFT's worked example", ("decision", ""), ("share", "part of each target")).by("application"),
        ],
        claims,
    }])
}
