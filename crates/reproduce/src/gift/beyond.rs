//! Beyond the paper: where GIFT's gain comes from, and coflow scheduling instead.
//!
//! The coflow policies give every application a part of its fair share and the rest to one after the other; a target
//! may run ahead, so nothing of it is wasted. The questions: how much of GIFT's gain is gap filling by its linear
//! program, and how much throttling and rewarding; which order and guarantee; what the interval between decisions
//! costs; and what wrong predictions of the volumes cost.

use super::system::{Gain, Named, coflow, gains, gift, interval, pofs, pofs_banked, run_all};
use crate::chart::Chart;
use crate::claims::{Claim, Test};
use crate::data::Data;
use crate::interval::Interval;
use crate::run::{Context, Finding, Stopped};
use isonomia_allocation::Order;
use isonomia_sim::fluid::population::Population;
use isonomia_sim::fluid::{Decisions, Outcome};
use isonomia_units::Nanos;
use serde_json::json;

const DAY: u64 = 86_400;
const ORDERS: [(&str, Order); 4] = [
    ("bottleneck", Order::Bottleneck),
    ("bssf", Order::Bssf),
    ("attained", Order::Attained),
    ("slowdown", Order::Slowdown),
];
const WRONG: [f64; 3] = [1.5, 3.0, 10.0];

const SOURCES: [&str; 4] = ["gift", "gift-without-throttling", "pofs-banked", "pofs-banked-by-event"];
const COFLOW: [&str; 9] = [
    "gift",
    "coflow-0.8-attained",
    "coflow-0.8-slowdown",
    "coflow-0.8-bottleneck",
    "coflow-0.8-bssf",
    "coflow-0.5-attained",
    "coflow-0.5-slowdown",
    "coflow-0.8-attained-by-event",
    "coflow-0.8-bottleneck-by-event",
];

struct Variants {
    schemes: Vec<Named>,
    gains: Vec<Vec<Gain>>,
}

impl Variants {
    fn gains(&self, name: &str) -> &[Gain] {
        let at = self.schemes.iter().position(|scheme| scheme.name == name).expect("a scheme of this study");
        &self.gains[at]
    }

    fn of(&self, name: &str, measure: fn(&Gain) -> f64) -> Interval {
        interval(self.gains(name), measure)
    }

    fn io(&self, name: &str) -> Interval {
        self.of(name, |gain| gain.io)
    }

    /// By how many points of I/O time one scheme is better than another in the same seeds.
    fn above(&self, name: &str, other: &str) -> Interval {
        Interval::by(self.gains(name).iter().zip(self.gains(other)), |(a, b)| a.io - b.io)
    }

    fn data(&self, outcomes: &[Vec<Outcome>]) -> Data {
        let mut data = Data::new(&[
            "scheme",
            "seed",
            "io_time_gain_percent",
            "run_time_gain_percent",
            "effective_bandwidth_gain_percent",
            "throughput_gain_percent",
            "worse_percent",
            "worse_by_percent",
            "io_slowdown",
            "io_slowdown_max",
        ]);
        for (at, (scheme, gains)) in self.schemes.iter().zip(&self.gains).enumerate() {
            for (seed, gain) in gains.iter().enumerate() {
                let outcome = &outcomes[seed][at];
                let most = outcome.applications.iter().map(|app| app.io_slowdown_max).fold(0.0, f64::max);
                data.push([
                    scheme.name.into(),
                    (seed as u64 + 1).into(),
                    gain.io.into(),
                    gain.run.into(),
                    gain.bandwidth.into(),
                    gain.throughput.into(),
                    gain.worse.into(),
                    gain.worse_by.into(),
                    outcome.io_slowdown().into(),
                    most.into(),
                ]);
            }
        }
        data
    }
}

fn by_event(named: Named, name: &'static str) -> Named {
    Named { name, decisions: Decisions::Event, ..named }
}

fn told_wrong(name: &'static str, misprediction: f64) -> Named {
    Named { misprediction, ..coflow(name, 0.8, Order::Bottleneck) }
}

/// Both items.
pub fn run(context: &Context) -> Result<Vec<Finding>, Stopped> {
    let (days, seed_count) = if context.quick { (2, 2) } else { (25, 8) };
    let population = Population { duration: Nanos::from_secs(days * DAY), ..Population::gift(500) };
    let seeds: Vec<u64> = (1..=seed_count).collect();
    let configuration = json!({ "applications": 500, "days": days, "seeds": seeds });
    let schemes = vec![
        pofs(),
        pofs_banked(),
        gift("gift", 0.8, 0.1, 250_000),
        gift("gift-without-throttling", 0.8, 0.0, 250_000),
        by_event(pofs(), "pofs-by-event"),
        by_event(pofs_banked(), "pofs-banked-by-event"),
        coflow("coflow-0.8-bottleneck", 0.8, Order::Bottleneck),
        coflow("coflow-0.8-bssf", 0.8, Order::Bssf),
        coflow("coflow-0.8-attained", 0.8, Order::Attained),
        coflow("coflow-0.8-slowdown", 0.8, Order::Slowdown),
        coflow("coflow-0.5-attained", 0.5, Order::Attained),
        coflow("coflow-0.5-slowdown", 0.5, Order::Slowdown),
        by_event(coflow("", 0.8, Order::Bottleneck), "coflow-0.8-bottleneck-by-event"),
        by_event(coflow("", 0.8, Order::Attained), "coflow-0.8-attained-by-event"),
        told_wrong("coflow-0.8-bottleneck-wrong-1.5", WRONG[0]),
        told_wrong("coflow-0.8-bottleneck-wrong-3", WRONG[1]),
        told_wrong("coflow-0.8-bottleneck-wrong-10", WRONG[2]),
    ];
    let outcomes = run_all(&population, &seeds, &schemes, context, "coflow scheduling")?;
    let gains = (0..schemes.len()).map(|at| gains(&outcomes, at)).collect();
    let variants = Variants { schemes, gains };
    let chart = |schemes: &[&str]| {
        let y = ("io_time_gain_percent", "%");
        Chart::bars("Reduction of I/O time against POFS", ("scheme", ""), y).only("scheme", schemes.iter().copied())
    };
    let sources = Finding {
        table: None,
        item: "sources",
        title: "where GIFT's gain comes from".to_owned(),
        configuration: configuration.clone(),
        data: variants.data(&outcomes),
        charts: vec![chart(&SOURCES)],
        claims: source_claims(&variants),
    };
    let coflow = Finding {
        table: None,
        item: "coflow",
        title: "coflow scheduling with a guarantee".to_owned(),
        configuration,
        data: variants.data(&outcomes),
        charts: vec![chart(&COFLOW)],
        claims: coflow_claims(&variants),
    };
    Ok(vec![sources, coflow])
}

fn source_claims(variants: &Variants) -> Vec<Claim> {
    let pairs = variants.gains("gift").iter().zip(variants.gains("gift-without-throttling"));
    let filling = Interval::by(pairs, |(whole, filling)| 100.0 * filling.io / whole.io);
    let bandwidth = |name: &str| variants.of(name, |gain| gain.bandwidth);
    vec![
        Claim::new(
            "GIFT's gain in I/O time comes from throttling and rewarding",
            "throttle-and-reward is the mechanism",
            vec![
                Test::below("part of the gain by gap filling alone", filling, 50.0)
                    .in_part(f64::NEG_INFINITY, 80.0)
                    .unit(" %"),
            ],
        )
        .beside(format!(
            "gain {} % with throttling, {} % without; bandwidth {} and {} %",
            variants.io("gift"),
            variants.io("gift-without-throttling"),
            bandwidth("gift"),
            bandwidth("gift-without-throttling")
        ))
        .why("gap filling alone is the same program that may throttle nobody"),
        Claim::new(
            "GIFT is better than per-target fair sharing",
            "better than POFS",
            vec![
                Test::above("than POFS that advances at its slowest target", variants.io("gift"), 0.0).unit(" points"),
                Test::above("than POFS whose targets may run ahead", variants.above("gift", "pofs-banked"), 0.0)
                    .unit(" points"),
            ],
        ),
    ]
}

fn coflow_claims(variants: &Variants) -> Vec<Claim> {
    let better =
        |what: &str, name: &str, other: &str| Test::above(what, variants.above(name, other), 0.0).unit(" points");
    let named = |name: &str| format!("{name} {}", variants.io(name));
    let orders: Vec<String> = ORDERS.iter().map(|(word, _)| named(&format!("coflow-0.8-{word}"))).collect();
    let wrong: Vec<String> = ["1.5", "3", "10"].map(|by| named(&format!("coflow-0.8-bottleneck-wrong-{by}"))).into();
    let event = ["pofs-banked", "coflow-0.8-attained", "coflow-0.8-bottleneck"];
    let worse = |name: &str| variants.of(name, |gain| gain.worse);
    let losers = ["gift", "coflow-0.8-bottleneck", "coflow-0.5-slowdown"].map(|name| format!("{name} {}", worse(name)));
    let sincronia = variants.above("coflow-0.8-bssf", "coflow-0.8-bottleneck");
    vec![
        Claim::ours(
            "coflow with guarantee 0.8 and no knowledge beats GIFT in I/O time",
            vec![better("", "coflow-0.8-attained", "gift")],
        )
        .beside(format!("{} against {} %", variants.io("coflow-0.8-attained"), variants.io("gift"))),
        Claim::ours(
            "the smallest bottleneck first is better than the least attained first",
            vec![better("", "coflow-0.8-bottleneck", "coflow-0.8-attained")],
        )
        .beside(format!("in %: {}", orders.join(", "))),
        Claim::ours(
            "Sincronia's order is as good as the smallest bottleneck first",
            vec![Test::within("", sincronia, 0.0, 2.0).unit(" points")],
        ),
        Claim::ours(
            "volumes predicted wrongly by up to 10 are no worse than none",
            vec![better("", "coflow-0.8-bottleneck-wrong-10", "coflow-0.8-attained")],
        )
        .beside(format!("in %: {}, told the truth {}", wrong.join(", "), variants.io("coflow-0.8-bottleneck"))),
        Claim::ours(
            "decisions at each change are better than every 10 s",
            event.map(|name| better(name, &format!("{name}-by-event"), name)).into(),
        ),
        Claim::ours(
            "applications worse off than under POFS (min-rate)",
            vec![Test::below("coflow-0.8-attained", worse("coflow-0.8-attained"), 1.0).in_part(0.0, 10.0).unit(" %")],
        )
        .beside(format!("in %: {}", losers.join(", "))),
    ]
}
