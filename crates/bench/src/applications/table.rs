//! What the runs tell: a table of the settings, a row for each figure, and a plot.

use super::course::{Course, Ledger, gain, mean, ratio, worse, worst};
use super::workload::Application;
use super::{BASE, SETTINGS, Setting};
use crate::report::{Must, Row};
use anyhow::{Context, Result};
use isonomia_plot::{Line, Plot};
use isonomia_reproduce::{Interval, Table};
use std::path::Path;

/// Who takes longer than this many times what he takes under the baseline is worse off: below, it is the order of single requests.
const WORSE: f64 = 1.02;
/// What live and simulated may differ by.
const DIFFERENCE: f64 = 0.1;
/// Coflow guarantees this part of a fair share: a phase takes at most one over it of what it takes under fair sharing. The second `fair-finish`, with the
/// same guarantee, is compared with that, too, though nothing is proven of it where each thread goes round all targets.
const GUARANTEE: f64 = 0.8;
const OWED: fn(&Ledger) -> f64 = |ledger| ledger.outstanding_node_s;
const AWARDED: fn(&Ledger) -> f64 = |ledger| ledger.awarded_node_s;
/// The settings that are drawn.
const DRAWN: [&str; 8] =
    ["pofs again", "bsip", "mbw", "gift", "coflow", "fair-finish", "coflow, apart", "fair-finish, apart"];

/// A run and the same simulated.
pub struct Compared {
    pub setting: Setting,
    pub seed: u64,
    pub applications: Vec<Application>,
    pub live: Course,
    /// Several times, by chance.
    pub simulated: Vec<Course>,
}

/// A run beside the baseline of its seed: all runs of it that there are.
struct Pair<'a> {
    base: Vec<&'a Compared>,
    other: &'a Compared,
}

#[derive(Clone, Copy)]
enum Kind {
    Live,
    Simulated,
}

impl Compared {
    fn courses(&self, kind: Kind) -> &[Course] {
        match kind {
            Kind::Live => std::slice::from_ref(&self.live),
            Kind::Simulated => &self.simulated,
        }
    }

    /// Seconds in I/O of each application, the mean of the runs.
    fn io_s(&self, kind: Kind) -> Vec<f64> {
        mean(self.courses(kind).iter().map(Course::io_s))
    }
}

impl Pair<'_> {
    /// A figure of I/O times beside the baseline's, the mean of the runs.
    fn beside_base(&self, kind: Kind, figure: impl Fn(&[f64], &[f64]) -> f64) -> f64 {
        let base = mean(self.base.iter().map(|base| base.io_s(kind)));
        self.mean(kind, |course| figure(&base, &course.io_s()))
    }

    fn mean(&self, kind: Kind, figure: impl Fn(&Course) -> f64) -> f64 {
        let courses = self.other.courses(kind);
        courses.iter().map(figure).sum::<f64>() / courses.len() as f64
    }

    /// Less time in I/O, in per cent.
    fn gain(&self, kind: Kind) -> f64 {
        self.beside_base(kind, gain)
    }

    fn worse(&self, kind: Kind) -> f64 {
        self.beside_base(kind, |base, other| worse(base, other, WORSE))
    }

    fn worst(&self, kind: Kind) -> f64 {
        self.beside_base(kind, worst)
    }

    fn effective(&self, kind: Kind) -> f64 {
        100.0 * self.mean(kind, |course| course.effective_bandwidth(&self.other.applications))
    }

    /// A figure of the ledger; nothing if there is none.
    fn ledger(&self, kind: Kind, figure: fn(&Ledger) -> f64) -> Option<f64> {
        self.other.live.ledger?;
        Some(self.mean(kind, |course| course.ledger.as_ref().map_or(0.0, figure)))
    }

    fn live_over_simulated(&self) -> f64 {
        ratio(&self.other.io_s(Kind::Live), &self.other.io_s(Kind::Simulated))
    }
}

/// The runs of a setting whose baseline is there, by seed. That is `pofs` in the setting's own layout, so that what the layout gives counts for
/// nobody's policy; what it gives is seen in `pofs` itself.
fn pairs<'a>(compared: &'a [Compared], name: &str) -> Vec<Pair<'a>> {
    let with_base = |other: &'a Compared| {
        let is_base = |one: &&Compared| {
            let layout = if other.setting.policy == BASE { SETTINGS[0].layout } else { other.setting.layout };
            (one.setting.policy, one.setting.layout, one.seed) == (BASE, layout, other.seed)
        };
        let base: Vec<&Compared> = compared.iter().filter(is_base).collect();
        (!base.is_empty()).then_some(Pair { base, other })
    };
    compared.iter().filter(|one| one.setting.name == name).filter_map(with_base).collect()
}

/// A row for each figure, of all seeds.
pub fn rows(compared: &[Compared]) -> Vec<Row> {
    let mut rows = Vec::new();
    for Setting { name, .. } in SETTINGS {
        let pairs = pairs(compared, name);
        let mut row = |what: &str, unit, must, value: &dyn Fn(&Pair) -> f64| {
            if !pairs.is_empty() {
                let values = pairs.iter().map(value).collect();
                rows.push(Row { must, ..Row::new(format!("{name}: {what}"), "library", unit, values) });
            }
        };
        for (kind, word) in [(Kind::Live, "live"), (Kind::Simulated, "simulated")] {
            row(&format!("less I/O time than pofs, {word}"), "%", None, &|pair| pair.gain(kind));
            row(&format!("effective bandwidth, {word}"), "%", None, &|pair| pair.effective(kind));
            row(&format!("worse off than under pofs, {word}"), "%", None, &|pair| pair.worse(kind));
            let is_guaranteed = name.starts_with("coflow") || name.starts_with("fair-finish 0.8");
            let must = is_guaranteed.then(|| Must::at_most(1.0 / GUARANTEE));
            let must = must.or_else(|| name.starts_with("fair-finish").then(|| Must::at_most(1.0 + DIFFERENCE)));
            row(&format!("I/O time over pofs, the worst application, {word}"), "x", must, &|pair| pair.worst(kind));
            if name.starts_with("gift") {
                let of = |pair: &Pair, figure| pair.ledger(kind, figure).unwrap_or_default();
                row(&format!("owed, {word}"), "node-s", None, &|pair| of(pair, OWED));
                row(&format!("awarded, {word}"), "node-s", None, &|pair| of(pair, AWARDED));
            }
        }
        let near = Some(Must::near(1.0, DIFFERENCE));
        row("I/O time live over simulated", "x", near, &|pair| pair.live_over_simulated());
    }
    for (ours, theirs) in [
        ("coflow", "gift"),
        ("fair-finish", "gift"),
        ("fair-finish 0.8", "gift"),
        ("coflow, apart", "gift, apart"),
        ("fair-finish, apart", "gift, apart"),
        ("fair-finish 0.8, apart", "gift, apart"),
    ] {
        let (ours_pairs, theirs_pairs) = (pairs(compared, ours), pairs(compared, theirs));
        let beyond = |pair: &Pair| {
            let gift = theirs_pairs.iter().find(|gift| gift.other.seed == pair.other.seed)?;
            Some(pair.gain(Kind::Live) - 2.0 * gift.gain(Kind::Live))
        };
        let values: Vec<f64> = ours_pairs.iter().filter_map(beyond).collect();
        if !values.is_empty() {
            let name = format!("{ours}: gain, live, beyond twice that of {theirs}");
            rows.push(Row { must: Some(Must::at_least(0.0)), ..Row::new(name, "library", "points", values) });
        }
    }
    rows
}

/// Means over the seeds, with 95 % intervals where there are several; live, and in brackets simulated.
pub fn text(compared: &[Compared]) -> String {
    let mut table = Table::new(&[
        "policy",
        "seeds",
        "less I/O time than pofs, %",
        "effective bandwidth, %",
        "worse off, %",
        "worst, x",
        "owed, node-s",
        "awarded, node-s",
        "live / simulated",
    ]);
    for Setting { name, .. } in SETTINGS {
        let pairs = pairs(compared, name);
        if pairs.is_empty() {
            continue;
        }
        let over_seeds = |of: &dyn Fn(&Pair) -> f64| Interval::by(&pairs, of);
        let shown = |interval: Interval, digits: usize| {
            if interval.half.is_nan() { format!("{:.digits$}", interval.mean) } else { format!("{interval:.digits$}") }
        };
        let both = |digits: usize, of: &dyn Fn(&Pair, Kind) -> f64| {
            let [live, simulated] = [Kind::Live, Kind::Simulated].map(|kind| over_seeds(&|pair| of(pair, kind)));
            format!("{} ({:.digits$})", shown(live, digits), simulated.mean)
        };
        let node_s = |figure: fn(&Ledger) -> f64| {
            let has = pairs.iter().all(|pair| pair.other.live.ledger.is_some());
            if has { both(1, &|pair, kind| pair.ledger(kind, figure).unwrap_or_default()) } else { String::new() }
        };
        table.push([
            name.to_owned(),
            pairs.len().to_string(),
            both(1, &|pair, kind| pair.gain(kind)),
            both(1, &|pair, kind| pair.effective(kind)),
            both(0, &|pair, kind| pair.worse(kind)),
            both(2, &|pair, kind| pair.worst(kind)),
            node_s(OWED),
            node_s(AWARDED),
            shown(over_seeds(&|pair| pair.live_over_simulated()), 3),
        ]);
    }
    table.to_string()
}

/// Every application of every run.
pub fn write(path: &Path, compared: &[Compared]) -> Result<()> {
    let mut csv = csv::Writer::from_path(path).with_context(|| format!("cannot write {}", path.display()))?;
    csv.write_record([
        "setting",
        "seed",
        "application",
        "nodes",
        "targets",
        "phases",
        "io_alone_s",
        "live_io_s",
        "simulated_io_s",
    ])?;
    for one in compared {
        let times = one.io_s(Kind::Live).into_iter().zip(one.io_s(Kind::Simulated));
        for (application, (live, simulated)) in one.applications.iter().zip(times) {
            csv.write_record([
                one.setting.name.to_owned(),
                one.seed.to_string(),
                application.name.clone(),
                application.nodes.to_string(),
                application.targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
                application.iterations.to_string(),
                (application.io_ns() as f64 / 1e9 * application.iterations as f64).to_string(),
                live.to_string(),
                simulated.to_string(),
            ])?;
        }
    }
    Ok(csv.flush()?)
}

/// All applications of all seeds in the order of what became of their I/O times (GIFT Fig. 9), as `applications.png` and `.svg`.
pub fn plot(dir: &Path, compared: &[Compared]) -> Result<()> {
    let line = |name: &&str| {
        let pairs = pairs(compared, name);
        let ratios = pairs.iter().flat_map(|pair| {
            let base = mean(pair.base.iter().map(|base| base.io_s(Kind::Live)));
            pair.other.io_s(Kind::Live).into_iter().zip(base).map(|(other, base)| other / base).collect::<Vec<_>>()
        });
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let count = ratios.len().max(1) as f64;
        let points = ratios.iter().enumerate().map(|(at, ratio)| (100.0 * (at + 1) as f64 / count, *ratio));
        Line { label: (*name).to_owned(), points: points.collect(), reference: None }
    };
    let lines: Vec<Line> = DRAWN.iter().map(line).filter(|line| !line.points.is_empty()).collect();
    if lines.is_empty() {
        return Ok(());
    }
    let plot = Plot {
        caption: "I/O time of each application over that under pofs, live".to_owned(),
        x: "applications, in this order [%]",
        y: "I/O time over that under pofs",
        lines,
    };
    Ok(plot.save(&dir.join("applications.png"), &dir.join("applications.svg"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::applications::course::Ledger;
    use crate::applications::workload::draw;

    fn compared(name: &str, seed: u64, io_ns: u64) -> Compared {
        let setting = *SETTINGS.iter().find(|setting| setting.name == name).expect("a setting");
        let applications = draw(seed, 10.0);
        let phases_ns = vec![vec![(0, io_ns)]; applications.len()];
        let ledger = name.starts_with("gift").then(|| Ledger { awarded_node_s: 7.0, ..Ledger::default() });
        let live = Course { phases_ns, ledger, ..Course::default() };
        Compared { setting, seed, applications, simulated: vec![live.clone(); 2], live }
    }

    #[test]
    fn a_run_is_compared_with_the_baseline_of_its_seed() {
        let all = [
            compared("pofs", 1, 1_000),
            compared("gift", 1, 900),
            compared("fair-finish", 1, 700),
            compared("pofs", 2, 1_000),
            compared("pofs again", 2, 3_000),
            compared("fair-finish", 2, 1_000),
            compared("pofs, apart", 2, 1_600),
            compared("gift, apart", 2, 1_200),
            compared("gift, apart", 1, 1_200),
            // Of another seed, whose baseline is missing.
            compared("gift", 3, 1),
        ];
        let rows = rows(&all);
        let values = |name: &str| rows.iter().find(|row| row.name == name).map(|row| row.values.clone());
        let near = |values: Option<Vec<f64>>, wanted: &[f64]| {
            let values = values.expect("a row");
            assert!(
                values.len() == wanted.len() && values.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9),
                "{values:?}"
            );
        };
        near(values("fair-finish: less I/O time than pofs, live"), &[30.0, 50.0]);
        near(values("gift: less I/O time than pofs, live"), &[10.0]);
        near(values("gift: awarded, live"), &[7.0]);
        near(values("gift, apart: less I/O time than pofs, live"), &[25.0]);
        near(values("pofs, apart: less I/O time than pofs, live"), &[20.0]);
        near(values("fair-finish: gain, live, beyond twice that of gift"), &[10.0]);
        assert!(values("coflow: less I/O time than pofs, live").is_none());
        let text = text(&all);
        assert!(text.contains("40.0") && text.contains("gift") && !text.contains("NaN"), "{text}");
    }
}
