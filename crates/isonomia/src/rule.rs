//! `isonomia rule`: the rules of the policy `tbf`, one at a time.
//!
//! A change is made to the text of the policy, here, and set if nobody else has set another meanwhile.

use crate::arguments::{RuleCommand, RuleOptions, WholeOptions};
use crate::control::Control;
use crate::policy::{laggards, warn, warn_of_nobody};
use crate::table;
use crate::whole::{self, Meant, report};
use anyhow::{Context, Result, bail};
use isonomia_policy::{Allowance, BadRule, PolicySpec, Position, RateRule, Spare, TokenBucket, read_one, read_value};
use isonomia_proto::control::RateStatus;
use isonomia_units::Nanos;
use std::io::Write;

pub fn rule(options: &RuleOptions) -> Result<()> {
    match &options.command {
        RuleCommand::Start { whole, name, scope, rate, realtime, before, last, replace } => {
            let rule = read_one(name, scope, &value(rate, *realtime))?;
            let position = match before {
                Some(name) => Position::Before(name.clone()),
                None if *last => Position::Last,
                None => Position::First,
            };
            change(whole, Some(&rule), |policy| started(policy, rule.clone(), &position, *replace))
        }
        RuleCommand::Change { whole, name, rate, realtime } => {
            let allowance = read_value(&value(rate, *realtime))?;
            change(whole, None, |policy| changed(policy, name, allowance))
        }
        RuleCommand::Stop { whole, name, then } => change(whole, None, |policy| stopped(policy, name, then.as_ref())),
        RuleCommand::Spare { whole, spare } => change(whole, None, |policy| spared(policy, *spare)),
        RuleCommand::List { whole, json } => list(whole, *json),
    }
}

fn value(rate: &str, realtime: bool) -> String {
    format!("{rate}{}", if realtime { "+realtime" } else { "" })
}

/// The rates of a policy that has some.
fn rates(policy: &PolicySpec) -> Result<TokenBucket> {
    policy.rates().cloned().with_context(|| format!("the policy is {policy}, which has no rules"))
}

/// The policy with these rules: read again, so that nothing is set that could not be written.
fn with(policy: PolicySpec, rates: TokenBucket) -> Result<PolicySpec> {
    Ok(policy.with_rates(rates).to_string().parse()?)
}

fn started(policy: &PolicySpec, rule: RateRule, position: &Position, replace: bool) -> Result<PolicySpec> {
    let Some(mut rates) = policy.rates().cloned() else {
        if !replace {
            bail!(
                "the policy is {policy}, which has no rules: with --replace it becomes tbf, under which jobs that no rule \
                 selects are served as they come"
            );
        }
        let rates = TokenBucket { rules: vec![rule], burst: TokenBucket::BURST_DEFAULT, spare: Spare::Unused };
        return with(policy.clone(), rates);
    };
    rates.start(rule, position)?;
    with(policy.clone(), rates)
}

fn changed(policy: &PolicySpec, name: &str, allowance: Option<Allowance>) -> Result<PolicySpec> {
    let mut rates = rates(policy)?;
    rates.change(name, allowance)?;
    with(policy.clone(), rates)
}

fn stopped(policy: &PolicySpec, name: &str, then: Option<&PolicySpec>) -> Result<PolicySpec> {
    let mut rates = rates(policy)?;
    match (rates.stop(name), then) {
        (Ok(()), None) => with(policy.clone(), rates),
        (Ok(()), Some(_)) => bail!("{name} is not the last rule: --then is for that one"),
        (Err(BadRule::Last(_)), Some(then)) => Ok(then.clone()),
        (Err(BadRule::Last(name)), None) => {
            bail!("{name} is the last rule: --then POLICY says what is fair without it, such as --then job-fair")
        }
        (Err(error), _) => Err(error.into()),
    }
}

fn spared(policy: &PolicySpec, spare: Spare) -> Result<PolicySpec> {
    let rates = TokenBucket { spare, ..rates(policy)? };
    with(policy.clone(), rates)
}

/// Sets what `change` makes of the present policy.
fn change(
    options: &WholeOptions,
    new: Option<&RateRule>,
    change: impl FnOnce(&PolicySpec) -> Result<PolicySpec>,
) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match whole::meant(options)? {
        Meant::One(mut control, status) => {
            warn_of_nobody(new, &status.jobs);
            let policy = change(&status.policy.parse()?)?;
            let set = control.set_policy(&policy, None, true, Some(&status.policy))?;
            writeln!(out, "{}", set.policy)?;
            warn(&set);
        }
        Meant::All(mut all) => {
            let seen = all.look();
            let (jobs, present) = {
                let report = report(&all.members, &seen);
                (report.jobs, report.policy.map(|policy| policy.policy.to_owned()))
            };
            warn_of_nobody(new, &jobs);
            let present = present.context("no server says which policy there is")?;
            let policy = change(&present.parse()?)?;
            let set = Control::connect(&options.first()?)?.set_policy(&policy, None, false, Some(&present))?;
            let version = set.version.unwrap_or(0);
            writeln!(out, "{}, version {version}", set.policy)?;
            warn(&set);
            for line in laggards(&mut all, version) {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(())
}

fn list(options: &WholeOptions, json: bool) -> Result<()> {
    let (policy, rates) = match whole::meant(options)? {
        Meant::One(_, status) => (status.policy.clone(), status.rates),
        Meant::All(mut all) => {
            let seen = all.look();
            let report = report(&all.members, &seen);
            (report.policy.map(|policy| policy.policy.to_owned()).unwrap_or_default(), report.rates)
        }
    };
    let mut out = std::io::stdout().lock();
    let spec: Option<PolicySpec> = policy.parse().ok();
    let Some(rules) = spec.as_ref().and_then(PolicySpec::rates) else {
        if json {
            writeln!(out, "{:#}", serde_json::json!({ "policy": policy, "rules": [] }))?;
        } else {
            writeln!(out, "the policy is {policy}, which has no rules")?;
        }
        return Ok(());
    };
    if json {
        let of = |rule: &RateRule| {
            let label = rule.label();
            let classes: Vec<&RateStatus> = rates.iter().filter(|class| class.rule == label).collect();
            serde_json::json!({
                "name": label,
                "for": rule.scope.to_string(),
                "allows": rule.value(),
                "classes": classes,
            })
        };
        let shown = serde_json::json!({
            "policy": policy,
            "spare": rules.spare.word(),
            "burst_bytes": rules.burst.0,
            "rules": rules.rules.iter().map(of).collect::<Vec<_>>(),
        });
        writeln!(out, "{shown:#}")?;
        return Ok(());
    }
    let mut rows =
        table::plain(&["rule", "for", "allows", "served now", "waiting", "held for", "of whom"], &[0, 1, 2, 6]);
    for rule in &rules.rules {
        let label = rule.label();
        let classes: Vec<&RateStatus> = rates.iter().filter(|class| class.rule == label).collect();
        let held = classes.iter().filter(|class| class.held_ns_total > 0);
        let whom: Vec<_> = held.take(3).map(|class| class.class.clone()).collect();
        rows.add_row([
            label,
            rule.scope.to_string(),
            rule.value(),
            table::per_s(classes.iter().map(|class| class.per_s).sum(), &rule.value()),
            classes.iter().map(|class| class.queued).sum::<u64>().to_string(),
            Nanos(classes.iter().map(|class| class.held_ns_total).max().unwrap_or(0)).to_string(),
            if whom.is_empty() { "-".to_owned() } else { whom.join(" ") },
        ]);
    }
    writeln!(out, "spare bandwidth: {}, burst {}\n\n{}", rules.spare.word(), rules.burst, table::lines(&rows))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> PolicySpec {
        text.parse().unwrap()
    }

    fn rule(name: &str, scope: &str, value: &str) -> RateRule {
        read_one(name, scope, value).unwrap()
    }

    #[test]
    fn rules_come_go_and_change() {
        let first = started(&spec("job-fair"), rule("a", "user:ada", "1MB/s"), &Position::First, true).unwrap();
        assert_eq!(first.to_string(), "tbf{a@user:ada=1MB/s,burst=3MiB,spare=unused}");
        let both = started(&first, rule("b", "op:write&job:x", "5ops/s+realtime"), &Position::First, false).unwrap();
        let text = "tbf{b@job:x&op:write=5ops/s+realtime,a@user:ada=1MB/s,burst=3MiB,spare=unused}";
        assert_eq!(both.to_string(), text);
        let other = changed(&both, "a", None).unwrap();
        assert!(other.to_string().contains("a@user:ada=exempt"), "{other}");
        assert_eq!(stopped(&both, "b", None).unwrap(), first);
        assert_eq!(stopped(&first, "a", Some(&spec("fifo"))).unwrap(), spec("fifo"));
        // Rates have no shares that could be strict; a latency class stays.
        let strict = spec("job-fair+strict+latency{p99=2ms,job:viz}");
        let rates = started(&strict, rule("a", "user:ada", "1MB/s"), &Position::First, true).unwrap();
        assert_eq!(rates, spec(&format!("{first}+latency{{p99=2ms,job:viz}}")));
        assert_eq!(spec(&rates.to_string()), rates);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let two = spec("tbf{a@user:ada=1MB/s,all@user:*=5MB/s,burst=3MiB,spare=unused}");
        let refused = |found: Result<PolicySpec>| format!("{:#}", found.unwrap_err());
        for (found, part) in [
            (started(&two, rule("a", "user:bob", "1MB/s"), &Position::First, false), "a rule \"a\" already"),
            (started(&two, rule("c", "user:ada", "2MB/s"), &Position::Last, false), "c contradicts rule a"),
            (started(&two, rule("c", "user:bob", "2MB/s"), &Position::Last, false), "rule all, which comes before it"),
            (
                started(&two, rule("c", "user:*&op:read", "2MB/s"), &Position::Last, false),
                "rule c would select nothing",
            ),
            (started(&two, rule("c", "group:*", "2MB/s"), &Position::First, false), "rule a would select nothing"),
            (started(&two, rule("c", "job:x", "2MB/s"), &Position::Before("z".into()), false), "no rule \"z\""),
            (started(&spec("fifo"), rule("c", "job:x", "2MB/s"), &Position::First, false), "--replace"),
            (changed(&two, "z", None), "there is no rule \"z\" (rules: a, all)"),
            (stopped(&spec("tbf{a@job:a=1MB/s}"), "a", None), "a is the last rule"),
            (spared(&spec("tbf{a@job:a=1MB/s}"), Spare::Proportional), "add job:*=RATE"),
        ] {
            let message = refused(found);
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
        for (scope, value, part) in [
            ("user:ada", "0B/s", "it is zero"),
            ("user:ada", "0ops/s", "it is zero"),
            ("user:ada", "fast", "\"fast\""),
            ("op:append", "1MB/s", "no such operation"),
            ("op:metadata", "1MB/s", "in ops/s"),
            ("path:scratch", "1MB/s", "begins with a slash"),
            ("path:/a/../b", "1MB/s", ". or .."),
            ("path:/", "1MB/s", "leave it out"),
            ("nodes:4", "1MB/s", "group, user, or job"),
        ] {
            let message = read_one("r", scope, value).unwrap_err().to_string();
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
        assert!(read_one("my rule", "job:a", "1MB/s").unwrap_err().to_string().contains("letters, digits"));
    }
}
