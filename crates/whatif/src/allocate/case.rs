//! The case file of `isonomia allocate`: applications on targets, in TOML.
//!
//! Whatever is wrong is reported as `:LINE: FIELD: what is wrong (allowed: …)`, to be put behind the file's name.

use isonomia_allocation::{App, Coupons, Demand, Order, Problem, ProblemError, Progress, Strategy, Targets};
use isonomia_units::{Bytes, NAME_LEN_MAX, text};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use toml::{Spanned, Value};

/// Coupons beyond this many targets are taken for a slip.
const OWED_MAX: f64 = 1e6;

/// What a case file says.
#[derive(Debug)]
pub struct Case {
    /// The targets' names: as declared, or in the order in which applications name them.
    pub targets: Vec<String>,
    pub b_thres: Option<f64>,
    pub guarantee: Option<f64>,
    pub order: Option<Order>,
    pub strategy: Option<Strategy>,
    pub progress: Progress,
    pub seed: u64,
    apps: Vec<CaseApp>,
}

#[derive(Debug)]
struct CaseApp {
    table: AppTable,
    /// The line of its name.
    line: usize,
    /// Bytes that remain, for each of the targets.
    remaining: Option<Vec<Bytes>>,
    attained: Option<Bytes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    app: Vec<Spanned<AppTable>>,
    targets: Option<Vec<Spanned<String>>>,
    b_thres: Option<Spanned<f64>>,
    guarantee: Option<Spanned<f64>>,
    order: Option<Spanned<String>>,
    strategy: Option<Spanned<String>>,
    progress: Option<Spanned<String>>,
    #[serde(default)]
    seed: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AppTable {
    name: Spanned<String>,
    targets: Spanned<Vec<Spanned<String>>>,
    weight: Option<Spanned<f64>>,
    nodes: Option<Spanned<u32>>,
    throttle_friendly: Option<bool>,
    owed: Option<Spanned<f64>>,
    remaining: Option<Spanned<BTreeMap<String, Spanned<Value>>>>,
    runs: Option<u64>,
    rate: Option<Spanned<f64>>,
    #[serde(default)]
    hard: bool,
    attained: Option<Spanned<Value>>,
    slowdown: Option<Spanned<f64>>,
}

/// Where something is wrong, and what; one line.
type Wrong = String;

/// The text of the file, in which errors are located.
#[derive(Clone, Copy)]
struct Source<'a>(&'a str);

impl Source<'_> {
    fn line(self, at: usize) -> usize {
        1 + self.0.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
    }

    fn wrong<T>(self, at: &Spanned<T>, field: &str, what: impl Display) -> Wrong {
        format!(":{}: {field}: {what}", self.line(at.span().start))
    }

    fn within(
        self,
        value: &Spanned<f64>,
        field: &str,
        is_allowed: fn(f64) -> bool,
        allowed: &str,
    ) -> Result<f64, Wrong> {
        let number = *value.get_ref();
        if is_allowed(number) {
            Ok(number)
        } else {
            Err(self.wrong(value, field, format!("{number} (allowed: {allowed})")))
        }
    }

    fn bytes(self, value: &Spanned<Value>, field: &str) -> Result<Bytes, Wrong> {
        let allowed = "whole bytes such as 1000000, or text such as \"64MiB\"";
        match value.get_ref() {
            Value::Integer(bytes) if *bytes >= 0 => Ok(Bytes(bytes.unsigned_abs())),
            Value::Float(bytes) if *bytes >= 0.0 && *bytes < 1e18 => Ok(Bytes(bytes.round() as u64)),
            Value::String(bytes) => text::parse_bytes(bytes).map_err(|error| self.wrong(value, field, error)),
            other => Err(self.wrong(value, field, format!("{other} (allowed: {allowed})"))),
        }
    }

    /// An error of the TOML parser, on one line and with the key that it is about.
    fn syntax(self, error: &toml::de::Error) -> Wrong {
        let what = error.message().replace('\n', ", ");
        let Some(span) = error.span() else { return format!(": {what}") };
        let line = self.line(span.start);
        let key = self.0.lines().nth(line - 1).and_then(|text| text.split_once('=')).map(|(key, _)| key.trim());
        match key {
            Some(key) => format!(":{line}: {key}: {what}"),
            None => format!(":{line}: {what}"),
        }
    }
}

impl Case {
    /// Reads the text of a case file.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        let source = Source(text);
        let file: File = toml::from_str(text).map_err(|error| source.syntax(&error))?;
        if file.app.is_empty() {
            return Err(": app: there is none (allowed: one [[app]] or more)".to_owned());
        }
        let part = |value: &Option<Spanned<f64>>, field| {
            let within = |value| source.within(value, field, |part| (0.0..=1.0).contains(&part), "0 to 1");
            value.as_ref().map(within).transpose()
        };
        let order = file
            .order
            .as_ref()
            .map(|order| order.get_ref().parse::<Order>().map_err(|error| source.wrong(order, "order", error)));
        let strategy = file.strategy.as_ref().map(|strategy| {
            strategy.get_ref().parse::<Strategy>().map_err(|error| source.wrong(strategy, "strategy", error))
        });
        let progress = match &file.progress {
            None => Progress::default(),
            Some(progress) => match progress.get_ref().as_str() {
                "min-rate" => Progress::MinRate,
                "banked" => Progress::Banked,
                other => {
                    let what = format!("{other:?} is no model of progress (allowed: min-rate, banked)");
                    return Err(source.wrong(progress, "progress", what));
                }
            },
        };
        let mut case = Self {
            targets: Vec::new(),
            b_thres: part(&file.b_thres, "b_thres")?,
            guarantee: part(&file.guarantee, "guarantee")?,
            order: order.transpose()?,
            strategy: strategy.transpose()?,
            progress,
            seed: file.seed,
            apps: Vec::new(),
        };
        let is_declared = file.targets.is_some();
        for target in file.targets.iter().flatten() {
            check_name(source, target, "targets")?;
            if case.targets.contains(target.get_ref()) {
                return Err(source.wrong(target, "targets", format!("`{}` is there twice", target.get_ref())));
            }
            case.targets.push(target.get_ref().clone());
        }
        for app in file.app {
            case.add(source, app.into_inner(), is_declared)?;
        }
        Ok(case)
    }

    fn add(&mut self, source: Source, table: AppTable, is_declared: bool) -> Result<(), Wrong> {
        check_name(source, &table.name, "name")?;
        let name = table.name.get_ref();
        if let Some(other) = self.apps.iter().find(|other| other.table.name.get_ref() == name) {
            let first = source.line(other.table.name.span().start);
            let what = format!("`{name}` is there twice, first in line {first} (allowed: each name once)");
            return Err(source.wrong(&table.name, "name", what));
        }
        let field = |field: &str| format!("app `{name}`: {field}");
        if table.targets.get_ref().is_empty() {
            return Err(source.wrong(&table.targets, &field("targets"), "there is none (allowed: one or more)"));
        }
        let mut own: Vec<&String> = Vec::new();
        for target in table.targets.get_ref() {
            check_name(source, target, &field("targets"))?;
            let text = target.get_ref();
            if own.contains(&text) {
                return Err(source.wrong(target, &field("targets"), format!("`{text}` is there twice")));
            }
            if !self.targets.contains(text) {
                if is_declared {
                    let what = format!("`{text}` is unknown (allowed: {})", self.targets.join(", "));
                    return Err(source.wrong(target, &field("targets"), what));
                }
                self.targets.push(text.clone());
            }
            own.push(text);
        }
        let positive = |value: &Option<Spanned<f64>>, key: &str| match value {
            Some(value) => {
                let is_allowed = |number: f64| number.is_finite() && number > 0.0;
                source.within(value, &field(key), is_allowed, "a positive number").map(drop)
            }
            None => Ok(()),
        };
        positive(&table.weight, "weight")?;
        positive(&table.rate, "rate")?;
        if let Some(nodes) = table.nodes.as_ref().filter(|nodes| *nodes.get_ref() == 0) {
            return Err(source.wrong(nodes, &field("nodes"), "0 (allowed: 1 or more)"));
        }
        if let Some(owed) = &table.owed {
            let is_allowed = |owed: f64| (0.0..=OWED_MAX).contains(&owed);
            source.within(owed, &field("owed"), is_allowed, "0 or more, in shares of one target")?;
        }
        if let Some(slowdown) = &table.slowdown {
            let is_allowed = |slowdown: f64| slowdown.is_finite() && slowdown >= 0.0;
            source.within(slowdown, &field("slowdown"), is_allowed, "0 or more")?;
        }
        let attained =
            table.attained.as_ref().map(|attained| source.bytes(attained, &field("attained"))).transpose()?;
        let remaining =
            table.remaining.as_ref().map(|remaining| remaining_at(source, remaining, &own, &field("remaining")));
        let remaining = remaining.transpose()?;
        let line = source.line(table.name.span().start);
        self.apps.push(CaseApp { table, line, remaining, attained });
        Ok(())
    }

    /// The applications' names in the order of the file.
    pub fn app_names(&self) -> impl Iterator<Item = &str> {
        self.apps.iter().map(|app| app.table.name.get_ref().as_str())
    }

    /// What the application called `name` is owed.
    pub fn owed(&self, name: &str) -> Coupons {
        let app = self.apps.iter().find(|app| app.table.name.get_ref() == name);
        let owed = app.and_then(|app| app.table.owed.as_ref());
        Coupons::from_targets(owed.map_or(0.0, |owed| *owed.get_ref()))
    }

    /// That `field` of the application called `name` will not do.
    pub fn wrong(&self, name: &str, field: &str, what: impl Display) -> Wrong {
        let line = self.apps.iter().find(|app| app.table.name.get_ref() == name).map_or(1, |app| app.line);
        format!(":{line}: app `{name}`: {field}: {what}")
    }

    /// The case as a problem, all targets of capacity 1.
    pub fn problem(&self) -> Result<Problem, ProblemError> {
        let targets = Arc::new(Targets::new(self.targets.iter().map(|name| (name.as_str(), 1.0)))?);
        let apps = self.apps.iter().map(|app| app.build(&targets)).collect::<Result<_, _>>()?;
        Problem::new(targets, apps)
    }
}

impl CaseApp {
    fn build(&self, targets: &Targets) -> Result<App, ProblemError> {
        let table = &self.table;
        let at: Vec<&str> = table.targets.get_ref().iter().map(|target| target.get_ref().as_str()).collect();
        let mut app = App::at(table.name.get_ref().as_str(), targets, &at)?;
        if let Some(remaining) = &self.remaining {
            let demand = |(demand, &bytes): (&Demand, &Bytes)| Demand { remaining: Some(bytes), ..*demand };
            app.demands = app.demands.iter().zip(remaining).map(demand).collect();
        }
        let number = |value: &Option<Spanned<f64>>| value.as_ref().map(|value| *value.get_ref());
        app.weight = number(&table.weight).unwrap_or(app.weight);
        app.slowdown = number(&table.slowdown).unwrap_or(app.slowdown);
        app.nodes = table.nodes.as_ref().map_or(app.nodes, |nodes| *nodes.get_ref());
        app.rate = number(&table.rate);
        app.is_hard = table.hard;
        app.runs = table.runs.unwrap_or(app.runs);
        app.throttle_friendly = table.throttle_friendly;
        app.attained = self.attained.unwrap_or(app.attained);
        Ok(app)
    }
}

/// The bytes that remain at each of `targets`, of which all and no others are named, and not all have nothing left.
fn remaining_at(
    source: Source,
    remaining: &Spanned<BTreeMap<String, Spanned<Value>>>,
    targets: &[&String],
    field: &str,
) -> Result<Vec<Bytes>, Wrong> {
    let names = || targets.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    for (target, value) in remaining.get_ref() {
        if !targets.contains(&target) {
            let what = format!("the application is not at `{target}` (allowed: {})", names());
            return Err(source.wrong(value, field, what));
        }
    }
    let at = |target: &&String| match remaining.get_ref().get(*target) {
        Some(value) => source.bytes(value, field),
        None => Err(source.wrong(
            remaining,
            field,
            format!("nothing is said of `{target}` (allowed: bytes for {})", names()),
        )),
    };
    let bytes: Vec<Bytes> = targets.iter().map(at).collect::<Result<_, _>>()?;
    if bytes.iter().all(|bytes| *bytes == Bytes(0)) {
        return Err(source.wrong(remaining, field, "nothing remains (allowed: bytes at one target or more)"));
    }
    Ok(bytes)
}

fn check_name(source: Source, name: &Spanned<String>, field: &str) -> Result<(), Wrong> {
    match name.get_ref().len() {
        1..=NAME_LEN_MAX => Ok(()),
        len => Err(source.wrong(name, field, format!("a name of {len} bytes (allowed: 1 to {NAME_LEN_MAX})"))),
    }
}
