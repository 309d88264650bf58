//! A cluster file as text: which keys there are, and what their values may be.
//!
//! Read key by key, so that one mistake does not hide the next.

use super::{
    Description, Exchange, FILE_LEN_MAX, Findings, Group, SettingsCheck, TARGETS_MAX, TARGETS_PER_SERVER_DEFAULT,
    TargetDescription,
};
use isonomia_units::{Nanos, Placement};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::ops::Range;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// What `text` describes, as far as it can be told. `None` only if it is no TOML, or the cluster has no name or epoch.
pub(super) fn read(text: &str, settings: SettingsCheck<'_>, findings: &mut Findings) -> Option<Description> {
    if text.len() > FILE_LEN_MAX {
        findings.error(None, format!("{} bytes are more than a cluster file may have, {FILE_LEN_MAX}", text.len()));
        return None;
    }
    let lines = Lines::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors {
            findings.error(error.span().map(|span| lines.at(&span)), error.message());
        }
        return None;
    }
    let mut keys = Keys { line: None, section: String::new(), table: document.into_inner(), lines: &lines, findings };
    let name = keys.required("name", "the name of the file system");
    let epoch = keys.required("epoch", "a whole number from 1 on that grows with each change");
    let root = keys.optional("root", "the name of a server");
    let targets_per_server = keys.optional("targets_per_server", "1 to 256");
    let exchange = exchange(&mut keys);
    let control = super::control::read(&mut keys);
    let placement = placement(&mut keys);
    let servers = keys.take("server");
    keys.end("name, epoch, root, targets_per_server, exchange, exchange_by, controller, coordination, decide, placement, server");
    let groups = servers.map_or_else(Vec::new, |servers| groups(servers, settings, &lines, findings));
    Some(Description {
        name: name?,
        epoch: epoch?,
        root,
        targets_per_server: targets_per_server.unwrap_or(TARGETS_PER_SERVER_DEFAULT),
        exchange,
        control,
        placement,
        groups,
    })
}

fn placement(keys: &mut Keys<'_, '_>) -> Placement {
    let Some(text) = keys.optional::<String>("placement", Placement::ALLOWED) else { return Placement::default() };
    text.parse().unwrap_or_else(|_| {
        let found = format!("placement: {text:?} is not allowed (allowed: {})", Placement::ALLOWED);
        keys.findings.error(keys.line, found);
        Placement::default()
    })
}

fn exchange(keys: &mut Keys<'_, '_>) -> Exchange {
    const INTERVALS: &str = "10ms to 10s, or \"off\"";
    let default = Exchange::default();
    let interval = match keys.optional::<String>("exchange", INTERVALS).as_deref() {
        None => default.interval,
        Some("off") => None,
        Some(text) => {
            let interval = text.parse().ok();
            let is_allowed = |interval: &Nanos| (Exchange::INTERVAL_MIN..=Exchange::INTERVAL_MAX).contains(interval);
            let found = interval.filter(is_allowed);
            if found.is_none() {
                keys.findings.error(keys.line, format!("exchange: {text:?} is not allowed (allowed: {INTERVALS})"));
            }
            found
        }
    };
    let is_by_presence = match keys.optional::<String>("exchange_by", "received, presence").as_deref() {
        None | Some("received") => false,
        Some("presence") => true,
        Some(text) => {
            let found = format!("exchange_by: {text:?} is not allowed (allowed: received, presence)");
            keys.findings.error(keys.line, found);
            false
        }
    };
    Exchange { interval, is_by_presence }
}

fn groups(
    servers: Spanned<DeValue<'_>>,
    settings: SettingsCheck<'_>,
    lines: &Lines,
    findings: &mut Findings,
) -> Vec<Group> {
    let line = lines.at(&servers.span());
    match servers.into_inner() {
        DeValue::Array(servers) => {
            servers.into_iter().filter_map(|server| group(server, settings, lines, findings)).collect()
        }
        _ => {
            findings.error(Some(line), "server: it is no list of tables (allowed: [[server]] before each)");
            Vec::new()
        }
    }
}

fn group(
    server: Spanned<DeValue<'_>>,
    settings: SettingsCheck<'_>,
    lines: &Lines,
    findings: &mut Findings,
) -> Option<Group> {
    let line = lines.at(&server.span());
    let DeValue::Table(table) = server.into_inner() else {
        findings.error(Some(line), "server: it is no table (allowed: [[server]] before each)");
        return None;
    };
    let mut keys = Keys { line: Some(line), section: "[[server]]".to_owned(), table, lines, findings };
    let names = keys.required("name", "a name or a host list such as io[01-16]");
    let number = keys.required("number", "1 to 65535");
    let listen = keys.required("listen", "a list of addresses, such as [\"tcp:{name}:7411\"]");
    let dir = keys.optional("dir", "an absolute path");
    let router = keys.optional("router", "a text");
    let rack = keys.optional("rack", "a text");
    let weight = keys.optional("weight", "a number such as 1.0; 0 for no new volumes");
    let retired = keys.optional("retired", "true, false");
    let targets = keys.take("targets");
    keys.end("name, number, listen, dir, targets, router, rack, weight, retired");
    let targets = match targets {
        Some(listed) => targets_of(listed, settings, lines, findings)?,
        None => vec![TargetDescription::default()],
    };
    Some(Group {
        names: names?,
        number: number?,
        listen: listen?,
        dir,
        targets,
        router,
        rack,
        weight: weight.unwrap_or(1.0),
        retired: retired.unwrap_or(false),
        line: Some(line),
    })
}

fn targets_of(
    listed: Spanned<DeValue<'_>>,
    settings: SettingsCheck<'_>,
    lines: &Lines,
    findings: &mut Findings,
) -> Option<Vec<TargetDescription>> {
    const ALLOWED: &str = "a number from 1 to 256, or a list such as [{ dir = \"/data/{name}/0\" }]";
    let line = Some(lines.at(&listed.span()));
    match listed.into_inner() {
        DeValue::Integer(number) => match number.to_string().parse::<u16>() {
            Ok(count @ 1..=TARGETS_MAX) => Some(vec![TargetDescription::default(); usize::from(count)]),
            _ => {
                findings.error(line, format!("targets: {number} is not allowed (allowed: {ALLOWED})"));
                None
            }
        },
        DeValue::Array(targets) => {
            let all = targets.into_iter().enumerate();
            all.map(|(index, target)| target_of(index, target, settings, lines, findings)).collect()
        }
        other => {
            findings.error(line, format!("targets: {} is not allowed (allowed: {ALLOWED})", other.type_str()));
            None
        }
    }
}

fn target_of(
    index: usize,
    target: Spanned<DeValue<'_>>,
    settings: SettingsCheck<'_>,
    lines: &Lines,
    findings: &mut Findings,
) -> Option<TargetDescription> {
    let span = target.span();
    let line = lines.at(&span);
    let DeValue::Table(table) = target.into_inner() else {
        findings
            .error(Some(line), format!("target {index}: it is no table (allowed: {{ dir = \"/data/{{name}}/0\" }})"));
        return None;
    };
    let mut keys = Keys { line: Some(line), section: format!("target {index}"), table, lines, findings };
    let dir = keys.optional("dir", "an absolute path");
    let retired = keys.optional("retired", "true, false");
    let rest = Spanned::new(span, DeValue::Table(keys.table));
    // A table of any values can be read from a table of any values.
    let table = toml::Table::deserialize(ValueDeserializer::from(rest)).unwrap_or_default();
    settings(&table).unwrap_or_else(|why| findings.error(Some(line), format!("target {index}: {why}")));
    Some(TargetDescription { dir, retired: retired.unwrap_or(false), settings: Arc::new(table) })
}

/// The keys of one table, each taken out as it is read.
pub(super) struct Keys<'i, 'a> {
    /// Where a key is missing.
    line: Option<usize>,
    /// What the table is, for people.
    section: String,
    table: DeTable<'i>,
    lines: &'a Lines,
    findings: &'a mut Findings,
}

impl<'i> Keys<'i, '_> {
    fn take(&mut self, key: &str) -> Option<Spanned<DeValue<'i>>> {
        self.table.remove(key)
    }

    pub(super) fn optional<T: DeserializeOwned>(&mut self, key: &str, allowed: &str) -> Option<T> {
        let value = self.take(key)?;
        let line = self.lines.at(&value.span());
        match T::deserialize(ValueDeserializer::from(value)) {
            Ok(value) => Some(value),
            Err(error) => {
                self.findings.error(Some(line), format!("{key}: {} (allowed: {allowed})", error.message()));
                None
            }
        }
    }

    pub(super) fn error(&mut self, found: String) {
        self.findings.error(self.line, found);
    }

    fn required<T: DeserializeOwned>(&mut self, key: &str, meaning: &str) -> Option<T> {
        if !self.table.contains_key(key) {
            let section = if self.section.is_empty() { "the file" } else { &self.section };
            self.findings.error(self.line, format!("{section} has no {key}: {meaning}"));
            return None;
        }
        self.optional(key, meaning)
    }

    /// What is left was never asked for.
    fn end(self, known: &str) {
        for key in self.table.keys() {
            let line = self.lines.at(&key.span());
            let section = if self.section.is_empty() { String::new() } else { format!(" of {}", self.section) };
            let text = format!("unknown key {:?}{section} (allowed: {known})", key.get_ref());
            self.findings.error(Some(line), text);
        }
    }
}

/// Where lines begin.
struct Lines {
    begins: Vec<usize>,
}

impl Lines {
    fn new(text: &str) -> Self {
        Self { begins: std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect() }
    }

    /// The line in which a range of bytes begins, counted from 1.
    fn at(&self, span: &Range<usize>) -> usize {
        self.begins.partition_point(|&begin| begin <= span.start)
    }
}
