//! Reading and printing the policies that have settings in braces.
//!
//! ```text
//! policy   = those in `allocated.rs` | ( "coflow" | "fair-finish" | "exclusive" ) [ "{" setting { "," setting } "}" ] | "tbf" … | "mclock" … | "set10" …
//! coflow   = "guarantee=" number | "order=" ( "attained" | "slowdown" | "bottleneck" ) | "tree=" chain of levels
//! finish   = "guarantee=" number | "sizes=" ( "declared" | "history" | "none" ) | "tree=" chain of levels
//! exclusive = "order=" order of phases | "lease=" time | "gap=" time | "tree=" chain of levels
//! tbf      = see `rates.rs`
//! mclock   = selector "=" part { "+" part }       part = "reservation:" rate | "limit:" rate | "weight:" number
//! set10    = selector "=" time
//! selector = ( "group" | "user" | "job" ) ":" ( name | "*" )
//! ```

use crate::spec::allocated;
use crate::spec::rates;
use crate::spec::scheme::{Coflow, Exclusive, FairFinish, Order, Qos, Rule, Scheme, Selector, Sizes};
use crate::spec::text::{ParsePolicyError, WEIGHTS_MAX, is_name, read_chain_to_end, read_number, write_chain};
use crate::spec::{Entity, Level, Weight};
use isonomia_planning::{Order as PhaseOrder, PhaseRules};
use isonomia_units::{Nanos, Rate};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

const COFLOW_ALLOWED: &str = "guarantee=0.000001 to 1, order=attained, order=slowdown, order=bottleneck, \
                              tree=a policy that ends in -fair";
const FAIR_FINISH_ALLOWED: &str = "guarantee=0.000001 to 1, sizes=declared, sizes=history, sizes=none, \
                                   tree=a policy that ends in -fair";
const EXCLUSIVE_ALLOWED: &str = "order=fifo, lowest-id, longest-io, shortest-io, shortest-remaining, longest-remaining, \
                                 bandwidth or stretch, lease=100ms to 1h, gap=1ms to the lease, \
                                 tree=a policy that ends in -fair";
const MCLOCK_ALLOWED: &str = "job:NAME=…, user:NAME=…, group:NAME=… with NAME or * and any of reservation:RATE, limit:RATE, \
                              weight:NUMBER joined by +";
const SET10_ALLOWED: &str = "job:NAME=TIME, user:NAME=TIME, group:NAME=TIME with NAME or * and a time such as 90s";

/// One policy's settings as they are read.
pub(crate) struct Settings<'a> {
    policy: &'static str,
    allowed: &'static str,
    pub(crate) items: Vec<&'a str>,
}

/// Reads a policy with settings; `None` if `text` does not begin with the word of one.
pub(crate) fn read(text: &str) -> Option<Result<Scheme, ParsePolicyError>> {
    let end = text.find('{').unwrap_or(text.len());
    let (word, braces) = text.split_at(end);
    let read = match word {
        "coflow" => |braces: &str| read_coflow(&Settings::new("coflow", COFLOW_ALLOWED, braces)?),
        "fair-finish" => |braces: &str| read_fair_finish(&Settings::new("fair-finish", FAIR_FINISH_ALLOWED, braces)?),
        "exclusive" => |braces: &str| read_exclusive(&Settings::new("exclusive", EXCLUSIVE_ALLOWED, braces)?),
        "tbf" => rates::read,
        "mclock" => |braces: &str| {
            let settings = Settings::new("mclock", MCLOCK_ALLOWED, braces)?;
            settings.rules(&settings.items, |value| read_qos(&settings, value)).map(Scheme::MClock)
        },
        "set10" => |braces: &str| {
            let settings = Settings::new("set10", SET10_ALLOWED, braces)?;
            settings.rules(&settings.items, |value| read_time(&settings, value)).map(Scheme::IoSets)
        },
        _ => return allocated::read(word, braces),
    };
    Some(read(braces))
}

impl<'a> Settings<'a> {
    pub(crate) fn new(policy: &'static str, allowed: &'static str, braces: &'a str) -> Result<Self, ParsePolicyError> {
        let mut settings = Self { policy, allowed, items: Vec::new() };
        if braces.is_empty() {
            return Ok(settings);
        }
        let mut depth = 0;
        let mut begin = 1;
        for (at, c) in braces.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if (c == ',' && depth == 1) || depth == 0 {
                settings.items.push(braces[begin..at].trim());
                begin = at + 1;
            }
            if depth == 0 {
                break;
            }
        }
        if depth != 0 {
            return Err(settings.bad(braces, "the closing brace is missing"));
        }
        if begin < braces.len() {
            return Err(settings.bad(&braces[begin..], "it stands behind the closing brace"));
        }
        if settings.items.len() > WEIGHTS_MAX {
            return Err(ParsePolicyError::TooManyWeights);
        }
        Ok(settings)
    }

    pub(crate) fn bad(&self, text: &str, reason: impl fmt::Display) -> ParsePolicyError {
        let (policy, allowed) = (self.policy, self.allowed);
        ParsePolicyError::BadSetting { policy, text: text.to_owned(), reason: reason.to_string(), allowed }
    }

    pub(crate) fn pair(&self, item: &'a str) -> Result<(&'a str, &'a str), ParsePolicyError> {
        let (key, value) = item.split_once('=').ok_or_else(|| self.bad(item, "it has no equals sign"))?;
        Ok((key.trim(), value.trim()))
    }

    pub(crate) fn quantity<T: FromStr<Err: fmt::Display>>(&self, text: &str) -> Result<T, ParsePolicyError> {
        text.parse().map_err(|error| self.bad(text, error))
    }

    /// Stores the value of a setting that may stand once.
    pub(crate) fn once<T>(&self, entry: &mut Option<T>, item: &str, value: T) -> Result<(), ParsePolicyError> {
        if entry.replace(value).is_some() { Err(self.bad(item, "it is set twice")) } else { Ok(()) }
    }

    /// A number up to 1.
    pub(crate) fn part(&self, item: &str, value: &str) -> Result<Weight, ParsePolicyError> {
        let number = read_number(value).filter(|&number| number <= Weight::ONE);
        number.ok_or_else(|| self.bad(item, "it is not a part of one"))
    }

    /// The levels of a sharing tree.
    pub(crate) fn tree(&self, item: &str, value: &str) -> Result<Vec<Level>, ParsePolicyError> {
        read_chain_to_end(value).map_err(|error| match error {
            // What a whole policy may be is more than what a tree may be.
            ParsePolicyError::UnknownWord { word } => {
                self.bad(item, format!("{word:?} is none of group, user, job, size and priority"))
            }
            ParsePolicyError::NotFair { .. } => self.bad(item, "it does not end in -fair"),
            error => error,
        })
    }

    pub(crate) fn selector(&self, key: &str) -> Result<Selector, ParsePolicyError> {
        let (word, name) = key.split_once(':').ok_or_else(|| self.bad(key, "no setting has this name"))?;
        let entity = [Entity::Group, Entity::User, Entity::Job].into_iter().find(|entity| entity.word() == word);
        let entity = entity.ok_or_else(|| self.bad(key, "rules are for a group, user, or job"))?;
        if !is_name(name) {
            return Err(self.bad(key, "its name is empty, too long, or has a blank, a brace, or a control character"));
        }
        Ok(Selector { entity, name: (name != "*").then(|| Arc::from(name)) })
    }

    fn rules<T>(
        &self,
        items: &[&'a str],
        read: impl Fn(&'a str) -> Result<T, ParsePolicyError>,
    ) -> Result<Vec<Rule<T>>, ParsePolicyError> {
        let mut rules: Vec<Rule<T>> = Vec::new();
        for item in items {
            let (key, value) = self.pair(item)?;
            let selector = self.selector(key)?;
            if rules.iter().any(|rule| rule.selector == selector) {
                return Err(self.bad(item, "it is set twice"));
            }
            rules.push(Rule { selector, value: read(value)? });
        }
        Ok(rules)
    }
}

fn read_coflow(settings: &Settings) -> Result<Scheme, ParsePolicyError> {
    let (mut guarantee, mut order, mut tree) = (None, None, None);
    for item in &settings.items {
        let (key, value) = settings.pair(item)?;
        match key {
            "guarantee" => settings.once(&mut guarantee, item, settings.part(item, value)?)?,
            "order" => {
                let found = Order::ALL.into_iter().find(|order| order.word() == value);
                settings.once(&mut order, item, found.ok_or_else(|| settings.bad(item, "there is no such order"))?)?;
            }
            "tree" => settings.once(&mut tree, item, settings.tree(item, value)?)?,
            _ => return Err(settings.bad(item, "no setting has this name")),
        }
    }
    Ok(Scheme::Coflow(Coflow {
        guarantee: guarantee.unwrap_or(Coflow::GUARANTEE_DEFAULT),
        order: order.unwrap_or(Order::Attained),
        tree: tree.unwrap_or_else(|| vec![Level::new(Entity::Job)]),
    }))
}

fn read_fair_finish(settings: &Settings) -> Result<Scheme, ParsePolicyError> {
    let (mut guarantee, mut sizes, mut tree) = (None, None, None);
    for item in &settings.items {
        let (key, value) = settings.pair(item)?;
        match key {
            "guarantee" => settings.once(&mut guarantee, item, settings.part(item, value)?)?,
            "sizes" => {
                let found = Sizes::ALL.into_iter().find(|sizes| sizes.word() == value);
                settings.once(&mut sizes, item, found.ok_or_else(|| settings.bad(item, "there are no such sizes"))?)?;
            }
            "tree" => settings.once(&mut tree, item, settings.tree(item, value)?)?,
            _ => return Err(settings.bad(item, "no setting has this name")),
        }
    }
    Ok(Scheme::FairFinish(FairFinish {
        guarantee: guarantee.unwrap_or(FairFinish::GUARANTEE_DEFAULT),
        sizes: sizes.unwrap_or(Sizes::Declared),
        tree: tree.unwrap_or_else(|| vec![Level::new(Entity::Job)]),
    }))
}

fn read_exclusive(settings: &Settings) -> Result<Scheme, ParsePolicyError> {
    let (mut order, mut lease, mut gap, mut tree) = (None, None, None, None);
    for item in &settings.items {
        let (key, value) = settings.pair(item)?;
        match key {
            "order" => {
                let found = value.parse::<PhaseOrder>().map_err(|error| settings.bad(item, error))?;
                settings.once(&mut order, item, found)?;
            }
            "lease" => settings.once(&mut lease, item, settings.quantity(value)?)?,
            "gap" => settings.once(&mut gap, item, settings.quantity(value)?)?,
            "tree" => settings.once(&mut tree, item, settings.tree(item, value)?)?,
            _ => return Err(settings.bad(item, "no setting has this name")),
        }
    }
    let lease = lease.unwrap_or(Exclusive::LEASE_DEFAULT);
    let gap = gap.unwrap_or(Exclusive::GAP_DEFAULT.min(lease));
    if !(Exclusive::LEASE_MIN..=Exclusive::LEASE_MAX).contains(&lease) {
        return Err(settings.bad(&exact(lease.0, &TIMES), "a lease is 100 ms to 1 h long"));
    }
    if gap < Exclusive::GAP_MIN || gap > lease {
        return Err(settings.bad(&exact(gap.0, &TIMES), "a gap is 1 ms long at least, and no longer than the lease"));
    }
    Ok(Scheme::Exclusive(Exclusive {
        rules: PhaseRules { order: order.unwrap_or(PhaseOrder::Fifo), lease, gap },
        tree: tree.unwrap_or_else(|| vec![Level::new(Entity::Job)]),
    }))
}

fn read_qos(settings: &Settings, text: &str) -> Result<Qos, ParsePolicyError> {
    let (mut reservation, mut limit, mut weight): (Option<Rate>, Option<Rate>, _) = (None, None, None);
    for part in text.split('+') {
        match part.split_once(':') {
            Some(("reservation", rate)) => settings.once(&mut reservation, part, settings.quantity(rate)?)?,
            Some(("limit", rate)) => settings.once(&mut limit, part, settings.quantity(rate)?)?,
            Some(("weight", number)) => {
                let number = read_number(number).ok_or_else(|| settings.bad(part, "its number is out of range"))?;
                settings.once(&mut weight, part, number)?;
            }
            _ => return Err(settings.bad(part, "it is not a reservation, a limit, or a weight")),
        }
    }
    if let (Some(reservation), Some(limit)) = (reservation, limit)
        && reservation > limit
    {
        return Err(settings.bad(text, "the reservation is above the limit"));
    }
    Ok(Qos { reservation, limit, weight: weight.unwrap_or(Weight::ONE) })
}

fn read_time(settings: &Settings, text: &str) -> Result<Nanos, ParsePolicyError> {
    let time: Nanos = settings.quantity(text)?;
    if time == Nanos::ZERO { Err(settings.bad(text, "it is zero")) } else { Ok(time) }
}

/// Prints a policy that has settings, every one of them but for those of a policy without rules.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, scheme: &Scheme) -> fmt::Result {
    match scheme {
        Scheme::Fifo => f.write_str("fifo"),
        Scheme::Fair(levels) => write_chain(f, levels),
        Scheme::Coflow(coflow) => {
            write!(f, "coflow{{guarantee={},order={},tree=", coflow.guarantee, coflow.order.word())?;
            write_chain(f, &coflow.tree)?;
            f.write_str("}")
        }
        Scheme::FairFinish(finish) => {
            write!(f, "fair-finish{{guarantee={},sizes={},tree=", finish.guarantee, finish.sizes.word())?;
            write_chain(f, &finish.tree)?;
            f.write_str("}")
        }
        Scheme::Exclusive(Exclusive { rules: PhaseRules { order, lease, gap }, tree }) => {
            let (lease, gap) = (exact(lease.0, &TIMES), exact(gap.0, &TIMES));
            write!(f, "exclusive{{order={order},lease={lease},gap={gap},tree=")?;
            write_chain(f, tree)?;
            f.write_str("}")
        }
        Scheme::Allocated(allocated) => write!(f, "{allocated}"),
        Scheme::TokenBucket(tbf) => rates::write(f, tbf),
        Scheme::MClock(rules) => {
            f.write_str("mclock")?;
            write_rules(f, rules, |f, qos| {
                qos.reservation.map_or(Ok(()), |least| write!(f, "reservation:{}+", rate(least)))?;
                qos.limit.map_or(Ok(()), |most| write!(f, "limit:{}+", rate(most)))?;
                write!(f, "weight:{}", qos.weight)
            })?;
            f.write_str(if rules.is_empty() { "" } else { "}" })
        }
        Scheme::IoSets(rules) => {
            f.write_str("set10")?;
            write_rules(f, rules, |f, time| f.write_str(&exact(time.0, &TIMES)))?;
            f.write_str(if rules.is_empty() { "" } else { "}" })
        }
    }
}

/// Prints rules with the opening brace and without the closing one.
fn write_rules<T>(
    f: &mut fmt::Formatter<'_>,
    rules: &[Rule<T>],
    value: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    let mut separator = '{';
    for rule in rules {
        let name = rule.selector.name.as_deref().unwrap_or("*");
        write!(f, "{separator}{}:{name}=", rule.selector.entity.word())?;
        value(f, &rule.value)?;
        separator = ',';
    }
    Ok(())
}

pub(crate) const SIZES: [(u64, &str); 9] = [
    (1 << 40, "TiB"),
    (1_000_000_000_000, "TB"),
    (1 << 30, "GiB"),
    (1_000_000_000, "GB"),
    (1 << 20, "MiB"),
    (1_000_000, "MB"),
    (1 << 10, "KiB"),
    (1_000, "kB"),
    (1, "B"),
];
pub(crate) const TIMES: [(u64, &str); 4] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];

/// `value` in the largest unit that gives a whole number: what is printed reads back as the same.
pub(crate) fn exact(value: u64, units: &[(u64, &str)]) -> String {
    let fitting = units.iter().find(|(factor, _)| value >= *factor && value.is_multiple_of(*factor));
    fitting.map_or_else(|| value.to_string(), |(factor, unit)| format!("{}{unit}", value / factor))
}

/// A rate in the largest unit that gives a whole number.
pub(crate) fn rate(rate: Rate) -> String {
    exact(rate.bytes_per_s(), &SIZES) + "/s"
}

#[cfg(test)]
mod tests {
    use crate::{ParsePolicyError, PolicySpec, WEIGHTS_MAX};
    use proptest::prelude::*;

    #[test]
    fn every_spelling_has_one_canonical_form() {
        for (text, expected) in [
            ("coflow", "coflow{guarantee=0.8,order=attained,tree=job-fair}"),
            ("coflow{guarantee=1}", "coflow{guarantee=1,order=attained,tree=job-fair}"),
            (
                " coflow{ order = slowdown, tree=user-size-fair ,guarantee=0.5}",
                "coflow{guarantee=0.5,order=slowdown,tree=user-then-size-fair}",
            ),
            (
                "coflow{tree=group-fair{astro=3,bio=1}-then-job-fair{x=2},order=bottleneck}",
                "coflow{guarantee=0.8,order=bottleneck,tree=group{astro=3,bio=1}-then-job-fair{x=2}}",
            ),
            ("fair-finish", "fair-finish{guarantee=0.2,sizes=declared,tree=job-fair}"),
            (
                "fair-finish{tree=user-fair,sizes=history,guarantee=0.5}",
                "fair-finish{guarantee=0.5,sizes=history,tree=user-then-job-fair}",
            ),
            ("exclusive", "exclusive{order=fifo,lease=60s,gap=100ms,tree=job-fair}"),
            ("exclusive{lease=100ms}", "exclusive{order=fifo,lease=100ms,gap=100ms,tree=job-fair}"),
            (
                "exclusive{tree=user-fair, gap=0.5s,order=stretch,lease=2min}",
                "exclusive{order=stretch,lease=120s,gap=500ms,tree=user-then-job-fair}",
            ),
            ("tbf{job:a=1MB/s}", "tbf{job:a=1MB/s,burst=3MiB,spare=unused}"),
            (
                "tbf{burst=1000,user:ada=1.5GiB/s+realtime,spare=proportional,job:*=7}",
                "tbf{user:ada=1536MiB/s+realtime,job:*=7B/s,burst=1kB,spare=proportional}",
            ),
            ("mclock", "mclock"),
            (
                "mclock{group:a=limit:2MiB/s, job:b+c=weight:2+reservation:1KiB/s+limit:1KiB/s,user:*=weight:0.5}",
                "mclock{group:a=limit:2MiB/s+weight:1,job:b+c=reservation:1KiB/s+limit:1KiB/s+weight:2,user:*=weight:0.5}",
            ),
            ("set10", "set10"),
            ("set10{job:a=1.5min,user:a=10ms}", "set10{job:a=90s,user:a=10ms}"),
        ] {
            let spec = text.parse::<PolicySpec>().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(spec.to_string(), expected, "{text}");
            assert_eq!(expected.parse(), Ok(spec));
        }
    }

    #[test]
    fn names_the_offending_setting_and_what_is_allowed() {
        for (text, parts) in [
            ("coflow{}", vec!["\"\" is not a setting of coflow", "no equals sign", "order=attained"]),
            ("coflow{guarantee=0}", vec!["\"guarantee=0\"", "part of one"]),
            ("coflow{guarantee=1.1}", vec!["part of one", "0.000001 to 1"]),
            ("coflow{order=fifo}", vec!["no such order", "order=slowdown"]),
            (
                "coflow{tree=fifo}",
                vec!["\"tree=fifo\"", "\"fifo\" is none of group", "tree=a policy that ends in -fair"],
            ),
            ("coflow{tree=user-then-size}", vec!["\"tree=user-then-size\"", "does not end in -fair"]),
            ("coflow{tree=job-user-fair}", vec!["follows \"job\", which ends the chain"]),
            ("coflow{g=1}", vec!["\"g=1\"", "no setting has this name"]),
            ("coflow{order=attained,order=attained}", vec!["set twice"]),
            ("coflow{guarantee=1", vec!["closing brace is missing"]),
            ("coflow{guarantee=1}-fair", vec!["\"-fair\"", "behind the closing brace"]),
            (
                "coflow-fair",
                vec!["\"coflow\" is not part of a policy", "coflow{…}, fair-finish{…}, exclusive{…}, tbf{…}"],
            ),
            ("fair-finish{sizes=all}", vec!["no such sizes", "sizes=history"]),
            ("fair-finish{guarantee=0,sizes=none}", vec!["part of one", "0.000001 to 1"]),
            ("fair-finish{order=attained}", vec!["no setting has this name", "tree=a policy"]),
            ("exclusive{order=random}", vec!["\"order=random\"", "no order of I/O phases", "order=fifo, lowest-id"]),
            ("exclusive{lease=99ms}", vec!["\"99ms\"", "100 ms to 1 h"]),
            ("exclusive{lease=2h}", vec!["100 ms to 1 h"]),
            ("exclusive{gap=0s}", vec!["1 ms long at least"]),
            ("exclusive{gap=2s,lease=1s}", vec!["\"2s\"", "no longer than the lease"]),
            ("exclusive{gap=soon}", vec!["\"soon\""]),
            ("exclusive{lease=1s,lease=1s}", vec!["set twice"]),
            ("exclusive{tree=fifo}", vec!["\"fifo\" is none of group"]),
            ("exclusive{holder=ada}", vec!["no setting has this name"]),
            ("exclusive+latency{p99=2ms,job:a}", vec!["exclusive cannot have a latency class"]),
            ("tbf", vec!["setting of tbf: it has no rule", "job:NAME=RATE"]),
            ("tbf{burst=1MiB}", vec!["no rule"]),
            ("tbf{job:a=1MB}", vec!["\"1MB\"", "does not end in /s"]),
            ("tbf{job:a=0B/s}", vec!["it is zero"]),
            ("tbf{job:a=1MB/s+fast}", vec!["\"1MB/s+fast\"", "+realtime behind a rate"]),
            ("tbf{job:=1MB/s}", vec!["\"job:\"", "its name is empty"]),
            ("tbf{size:4=1MB/s}", vec!["\"size:4\"", "group, user, or job"]),
            ("tbf{job:a=1MB/s,job:a=2MB/s}", vec!["\"job:a=2MB/s\"", "set twice"]),
            ("tbf{job:a=1MB/s,spare=all}", vec!["no such use", "spare=proportional"]),
            ("tbf{job:a=1MB/s,spare=proportional}", vec!["a job without a rate", "job:*=RATE"]),
            ("mclock{job:a=1MB/s}", vec!["\"1MB/s\"", "not a reservation", "reservation:RATE"]),
            ("mclock{job:a=weight:0}", vec!["\"weight:0\"", "out of range"]),
            ("mclock{job:a=weight:1+weight:1}", vec!["set twice"]),
            ("mclock{job:a=reservation:2MB/s+limit:1MB/s}", vec!["above the limit"]),
            ("set10{job:a=0s}", vec!["it is zero"]),
            ("set10{job:a=10}x", vec!["\"x\""]),
            ("set10{a=10s}", vec!["\"a\"", "no setting has this name", "job:NAME=TIME"]),
        ] {
            let message = text.parse::<PolicySpec>().unwrap_err().to_string();
            for part in parts {
                assert!(message.contains(part), "{text:?}: {message:?} lacks {part:?}");
            }
        }
        let many: Vec<_> = (0..=WEIGHTS_MAX).map(|i| format!("job:{i}=1s")).collect();
        let refused = format!("set10{{{}}}", many.join(",")).parse::<PolicySpec>();
        assert_eq!(refused, Err(ParsePolicyError::TooManyWeights));
    }

    proptest! {
        #[test]
        fn never_panics_and_reads_back_what_it_prints(
            word in "(coflow|exclusive|tbf|mclock|set10)",
            parts in proptest::collection::vec(
                "(guarantee=|order=|stretch|lease=|gap=|attained|tree=|job-fair|job:a=|user:\\*=|9MB/s|\\+realtime|limit:|weight:|1|,|,|\\{|\\}|é|burst=|5s|spare=unused)",
                0..12,
            ),
        ) {
            for text in [format!("{word}{}", parts.concat()), format!("{word}{{{}}}", parts.concat())] {
                if let Ok(spec) = text.parse::<PolicySpec>() {
                    prop_assert_eq!(spec.to_string().parse::<PolicySpec>(), Ok(spec));
                }
            }
        }
    }
}
