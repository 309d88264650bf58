//! The TOML form of a scenario at fluid level.

use super::quantity::{Quantity, Word};
use super::swf::{self, SwfText};
use crate::fluid::population::{APPLICATIONS_MAX, Population};
use crate::fluid::{Application, Clock, Decisions, Parameters, Phase, Run, SCHEMES, Scenario, SchemeSpec, Sizes};
use crate::source::{Document, SourceError};
use isonomia_allocation::{AdapTbfConfig, Coupons, GiftConfig, NodeTime, Order, Priority, Progress, Strategy};
use isonomia_units::{Bytes, NAME_LEN_MAX, Nanos, Rate};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

const TARGETS_MAX: u16 = 16_384;
const NODES_MAX: u32 = 10_000_000;
const RUNS_MAX: u32 = 1_000_000;
const PHASES_MAX: u32 = 10_000;
/// The longest run, ten years.
const DURATION_MAX: Nanos = Nanos::from_secs(10 * 366 * 86_400);
const GUARANTEE_DEFAULT: f64 = 0.8;
const ESTIMATE_DEFAULT: f64 = 1.5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Root {
    #[serde(rename = "level")]
    _level: String,
    seed: Option<u64>,
    duration: Quantity<Nanos>,
    interval: Option<Quantity<Nanos>>,
    decisions: Option<Decisions>,
    scheme: String,
    progress: Option<ProgressText>,
    b_thres: Option<f64>,
    redemption_rate_min: Option<f64>,
    window: Option<u64>,
    regret_period: Option<Quantity<Nanos>>,
    regret_budget_node_hours: Option<u64>,
    guarantee: Option<f64>,
    order: Option<Word<Order>>,
    priority: Option<Word<Priority>>,
    reclaim: Option<f64>,
    strategy: Option<Word<Strategy>>,
    sizes: Option<Sizes>,
    clock: Option<Clock>,
    nodes: u32,
    estimate: Option<f64>,
    misprediction: Option<f64>,
    targets: TargetsText,
    population: Option<PopulationText>,
    #[serde(default)]
    application: Vec<ApplicationText>,
    swf: Option<SwfText>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ProgressText {
    MinRate,
    Banked,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetsText {
    count: u16,
    bandwidth: Quantity<Rate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PopulationText {
    applications: u32,
    load: Option<f64>,
    arrival_shape: Option<f64>,
    variation: Option<f64>,
    io_scale: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplicationText {
    name: String,
    nodes: Option<u32>,
    weight: Option<f64>,
    targets: Vec<u16>,
    phases: Option<u32>,
    compute: Quantity<Nanos>,
    volume: Quantity<Bytes>,
    submit: Option<Quantity<Nanos>>,
    runs: Option<u32>,
    every: Option<Quantity<Nanos>>,
}

/// Reads and checks a scenario.
pub(super) fn read(path: &Path, document: &Document<'_>, seed: Option<u64>) -> Result<Scenario, SourceError> {
    let root: Root = document.deserialize()?;
    let fail = |field: &str, what: String| document.error(field, what);
    let duration = root.duration.0;
    if duration == Nanos::ZERO || duration > DURATION_MAX {
        return Err(fail("duration", format!("{duration} is no run (allowed: more than 0, up to ten years)")));
    }
    let interval = root.interval.map_or(Nanos::from_secs(10), |interval| interval.0);
    if interval == Nanos::ZERO {
        return Err(fail("interval", "is no interval (allowed: more than 0)".to_owned()));
    }
    if !(1..=TARGETS_MAX).contains(&root.targets.count) {
        return Err(fail("targets.count", format!("{} targets (allowed: 1 to {TARGETS_MAX})", root.targets.count)));
    }
    if !(1..=NODES_MAX).contains(&root.nodes) {
        return Err(fail("nodes", format!("{} nodes (allowed: 1 to {NODES_MAX})", root.nodes)));
    }
    let estimate = root.estimate.unwrap_or(ESTIMATE_DEFAULT);
    if !(estimate > 0.0 && estimate <= 1e6) {
        return Err(fail("estimate", format!("{estimate} is no factor (allowed: more than 0, up to a million)")));
    }
    let misprediction = root.misprediction.unwrap_or(1.0);
    if !(1.0..=1e6).contains(&misprediction) {
        return Err(fail("misprediction", format!("{misprediction} is no factor (allowed: 1 to a million)")));
    }
    let decisions = root.decisions.unwrap_or_default();
    let seed = seed.or(root.seed).unwrap_or(1);
    let scheme = read_scheme(document, &root, interval, seed)?;
    if matches!(scheme, SchemeSpec::Gift(_)) && decisions == Decisions::Event {
        return Err(fail("decisions", "gift decides at intervals: a coupon is bandwidth for one".to_owned()));
    }
    if scheme.is_by_event() && decisions == Decisions::Interval {
        let with = if root.clock.is_some() { " with the clock of the closed system" } else { "" };
        return Err(fail("decisions", format!("{}{with} decides at each change (allowed: \"event\")", root.scheme)));
    }
    Ok(Scenario {
        duration,
        interval,
        decisions,
        scheme,
        targets: root.targets.count,
        bandwidth: root.targets.bandwidth.0,
        nodes: root.nodes,
        estimate,
        misprediction,
        applications: read_applications(path, document, &root, (duration, seed))?.into(),
    })
}

fn read_scheme(document: &Document<'_>, root: &Root, interval: Nanos, seed: u64) -> Result<SchemeSpec, SourceError> {
    let defaults = GiftConfig::default();
    let window = root.window.map_or(defaults.window, Coupons);
    let b_thres = root.b_thres.unwrap_or(defaults.b_thres);
    if !(0.0..=1.0).contains(&b_thres) {
        return Err(document.error("b_thres", format!("{b_thres} is no part (allowed: 0 to 1)")));
    }
    let parameters = Parameters {
        progress: match root.progress {
            Some(ProgressText::Banked) => Progress::Banked,
            Some(ProgressText::MinRate) | None => Progress::MinRate,
        },
        gift: GiftConfig {
            b_thres,
            redemption_rate_min: root.redemption_rate_min.unwrap_or(defaults.redemption_rate_min),
            window,
            system_window: window,
            interval,
            regret_period: root.regret_period.map_or(defaults.regret_period, |period| period.0),
            regret_budget: root.regret_budget_node_hours.map(NodeTime::from_node_hours),
            ..defaults
        },
        guarantee: root.guarantee.unwrap_or(GUARANTEE_DEFAULT),
        adaptbf: AdapTbfConfig {
            priority: root.priority.map_or(Priority::default(), |priority| priority.0),
            reclaim: root.reclaim.unwrap_or(AdapTbfConfig::default().reclaim),
            interval,
            ..AdapTbfConfig::default()
        },
        strategy: root.strategy.map_or(Strategy::default(), |strategy| strategy.0),
        order: root.order.map_or(Order::Attained, |order| order.0),
        seed,
    };
    match SchemeSpec::named(&root.scheme, &parameters) {
        Some(Ok(SchemeSpec::FairFinish { guarantee, sizes, clock })) => Ok(SchemeSpec::FairFinish {
            guarantee,
            sizes: root.sizes.unwrap_or(sizes),
            clock: root.clock.unwrap_or(clock),
        }),
        Some(_) if root.sizes.is_some() => {
            Err(document.error("sizes", format!("{} has none to be told (allowed: with fair-finish)", root.scheme)))
        }
        Some(Ok(scheme))
            if (root.priority.is_some() || root.reclaim.is_some()) && !matches!(scheme, SchemeSpec::AdapTbf(_)) =>
        {
            let field = if root.priority.is_some() { "priority" } else { "reclaim" };
            Err(document.error(field, format!("{} has none (allowed: with adaptbf)", root.scheme)))
        }
        Some(Ok(scheme)) if root.strategy.is_some() && !matches!(scheme, SchemeSpec::Calciom { .. }) => {
            Err(document.error("strategy", format!("{} has none (allowed: with calciom)", root.scheme)))
        }
        Some(_) if root.clock.is_some() => {
            Err(document.error("clock", format!("{} keeps none (allowed: with fair-finish)", root.scheme)))
        }
        Some(scheme) => scheme.map_err(|error| document.error("scheme", error.to_string())),
        None => {
            let what = format!("{:?} is no scheme (allowed: {})", root.scheme, SCHEMES.join(", "));
            Err(document.error("scheme", what))
        }
    }
}

fn read_applications(
    path: &Path,
    document: &Document<'_>,
    root: &Root,
    (duration, seed): (Nanos, u64),
) -> Result<Vec<Application>, SourceError> {
    let mut applications = match &root.population {
        Some(text) => read_population(document, root, text, duration)?.draw(seed),
        None => Vec::new(),
    };
    for (at, text) in root.application.iter().enumerate() {
        applications.push(read_application(document, root, at, text)?);
    }
    if let Some(text) = &root.swf {
        applications.extend(swf::read(path, document, text, (root.nodes, root.targets.count, seed))?);
    }
    if applications.is_empty() {
        return Err(document.error("application", "no application is declared, and no population or log"));
    }
    applications.sort_by(|a, b| a.name.cmp(&b.name));
    let twice = applications.windows(2).find(|pair| pair[0].name == pair[1].name).map(|pair| pair[0].name.clone());
    if let Some(name) = twice {
        let at = root.application.iter().rposition(|text| *text.name == *name).unwrap_or(0);
        return Err(document.error(&format!("application[{at}].name"), format!("{name:?} is declared twice")));
    }
    Ok(applications)
}

fn read_population(
    document: &Document<'_>,
    root: &Root,
    text: &PopulationText,
    duration: Nanos,
) -> Result<Population, SourceError> {
    if !(1..=APPLICATIONS_MAX).contains(&text.applications) {
        let what = format!("{} of them (allowed: 1 to {APPLICATIONS_MAX})", text.applications);
        return Err(document.error("population.applications", what));
    }
    let positive = |name: &str, value: Option<f64>, default: f64| match value.unwrap_or(default) {
        value if value > 0.0 && value <= 1e3 => Ok(value),
        value => Err(document.error(&format!("population.{name}"), format!("{value} (allowed: above 0, up to 1000)"))),
    };
    let paper = Population::gift(text.applications);
    let variation = text.variation.unwrap_or(paper.variation);
    if !(0.0..1.0).contains(&variation) {
        return Err(document.error("population.variation", format!("{variation} is no part (allowed: 0 to below 1)")));
    }
    Ok(Population {
        targets: root.targets.count,
        nodes: root.nodes,
        duration,
        load: positive("load", text.load, paper.load)?,
        arrival_shape: positive("arrival_shape", text.arrival_shape, paper.arrival_shape)?,
        io_scale: positive("io_scale", text.io_scale, paper.io_scale)?,
        variation,
        ..paper
    })
}

fn read_application(
    document: &Document<'_>,
    root: &Root,
    at: usize,
    text: &ApplicationText,
) -> Result<Application, SourceError> {
    let fail = |name: &str, what: String| document.error(&format!("application[{at}].{name}"), what);
    if text.name.is_empty() || text.name.len() > NAME_LEN_MAX {
        return Err(fail("name", format!("is empty or longer than {NAME_LEN_MAX}")));
    }
    let nodes = text.nodes.unwrap_or(1);
    if !(1..=root.nodes).contains(&nodes) {
        return Err(fail("nodes", format!("{nodes} nodes (allowed: 1 to the machine's, {})", root.nodes)));
    }
    let weight = text.weight.unwrap_or(1.0);
    if !(weight > 0.0 && weight <= 1e6) {
        return Err(fail("weight", format!("{weight} (allowed: above 0, up to a million)")));
    }
    let targets: BTreeSet<u16> = text.targets.iter().copied().collect();
    if targets.is_empty() || targets.len() != text.targets.len() {
        return Err(fail("targets", "names no target, or one twice".to_owned()));
    }
    if let Some(target) = targets.iter().find(|target| **target >= root.targets.count) {
        return Err(fail("targets", format!("{target} is not declared (allowed: 0 to {})", root.targets.count - 1)));
    }
    let io = root.targets.bandwidth.0.time_for(text.volume.0);
    if io == Nanos::ZERO {
        return Err(fail("volume", "0 bytes are no I/O phase".to_owned()));
    }
    let phases = text.phases.unwrap_or(1);
    if !(1..=PHASES_MAX).contains(&phases) {
        return Err(fail("phases", format!("{phases} phases (allowed: 1 to {PHASES_MAX})")));
    }
    let runs = text.runs.unwrap_or(1);
    if !(1..=RUNS_MAX).contains(&runs) {
        return Err(fail("runs", format!("{runs} runs (allowed: 1 to {RUNS_MAX})")));
    }
    let submit = text.submit.map_or(Nanos::ZERO, |submit| submit.0);
    let every = text.every.map_or(Nanos::ZERO, |every| every.0);
    let run = |number: u32| Run {
        submit: submit + Nanos(every.0.saturating_mul(u64::from(number))),
        targets: targets.iter().copied().collect(),
        phases: vec![Phase { compute: text.compute.0, io }; phases as usize],
    };
    Ok(Application { name: Arc::from(text.name.as_str()), nodes, weight, runs: (0..runs).map(run).collect() })
}
