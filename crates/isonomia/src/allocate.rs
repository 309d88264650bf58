//! `isonomia allocate`: what a scheme gives each application of a case, for one decision.

mod case;

use crate::arguments::{AllocateOptions, Scheme};
use crate::table;
use anyhow::{Context, Result};
use case::Case;
use isonomia_allocation::{
    Allocation, Coflow, CoflowError, Coupons, Gift, GiftConfig, Order, Problem, Rule, RuleThrottle, bsip, mbw, pofs,
    token_bucket,
};
use isonomia_units::Nanos;
use serde::Serialize;
use std::io::Write;

/// The part of the fair share that coflow keeps for everybody if the case does not say.
const GUARANTEE: f64 = 0.5;

#[derive(Serialize)]
struct Report {
    apps: Vec<AppLine>,
    targets: Vec<TargetLine>,
    effective_bandwidth: f64,
}

#[derive(Serialize)]
struct AppLine {
    name: String,
    share: f64,
    fair_share: f64,
    coupon_issued: f64,
    coupon_redeemed: f64,
}

#[derive(Serialize)]
struct TargetLine {
    name: String,
    used: f64,
    wasted: f64,
}

pub fn allocate(options: &AllocateOptions) -> Result<()> {
    let path = options.case.display();
    let text = std::fs::read_to_string(&options.case).with_context(|| format!("cannot read {path}"))?;
    let case = Case::parse(&text).map_err(|error| anyhow::anyhow!("{path}{error}"))?;
    let problem = case.problem().with_context(|| path.to_string())?;
    let allocation = decide(&case, &problem, options.scheme).map_err(|error| match error.downcast_ref() {
        Some(CoflowError::UnknownRemaining { app, target, order }) => {
            let what = format!("unknown at `{target}` (allowed: bytes for each target, which order {order} needs)");
            anyhow::anyhow!("{path}{}", case.wrong(app, "remaining", what))
        }
        _ => error.context(path.to_string()),
    })?;
    let report = report(&case, &allocation);
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&mut out, &report)?;
    }
    Ok(())
}

fn decide(case: &Case, problem: &Problem, scheme: Scheme) -> Result<Allocation> {
    let b_thres = case.b_thres.unwrap_or(GiftConfig::default().b_thres);
    let by_rule = |rule| RuleThrottle::new(rule, b_thres, case.seed).decide(problem);
    Ok(match scheme {
        Scheme::Pofs => pofs(problem, case.progress),
        Scheme::Bsip => bsip(problem),
        Scheme::Mbw => mbw(problem)?,
        Scheme::Tsa => by_rule(Rule::Small),
        Scheme::Esa => by_rule(Rule::Large),
        Scheme::Tmf => by_rule(Rule::MostFrequent),
        Scheme::Rnd => by_rule(Rule::Random),
        Scheme::Tbf => token_bucket(problem, case.progress),
        Scheme::Gift => {
            let mut gift = Gift::new(GiftConfig { b_thres, ..GiftConfig::default() })?;
            for (app, owed) in problem.apps().iter().map(|app| (app, case.owed(&app.name))) {
                if owed > Coupons(0) {
                    gift.carry(app, owed);
                }
            }
            gift.decide(Nanos::ZERO, problem)?
        }
        Scheme::Coflow => {
            let knows_sizes =
                problem.apps().iter().flat_map(|app| &app.demands).all(|demand| demand.remaining.is_some());
            let order = case.order.unwrap_or(if knows_sizes { Order::Bottleneck } else { Order::Attained });
            Coflow::new(case.guarantee.unwrap_or(GUARANTEE), order)?.allocate(problem)?
        }
    })
}

/// The allocation in the order of the case.
fn report(case: &Case, allocation: &Allocation) -> Report {
    let app = |name: &str| {
        allocation.app(name).map(|app| AppLine {
            name: name.to_owned(),
            share: app.share,
            fair_share: app.fair_share,
            coupon_issued: app.coupon_issued.targets(),
            coupon_redeemed: app.coupon_redeemed.targets(),
        })
    };
    let uses = allocation.target_uses();
    let target = |name: &str| {
        let found = uses.iter().find(|target| target.name.as_ref() == name);
        found.map(|target| TargetLine { name: name.to_owned(), used: target.used, wasted: target.wasted })
    };
    Report {
        apps: case.app_names().filter_map(app).collect(),
        targets: case.targets.iter().filter_map(|name| target(name)).collect(),
        effective_bandwidth: allocation.effective_bandwidth(),
    }
}

fn print(out: &mut impl Write, report: &Report) -> Result<()> {
    let coupon = |coupons: f64| if coupons == 0.0 { "-".to_owned() } else { format!("{coupons:.4}") };
    let mut apps = table::plain(&["application", "share", "fair share", "coupon issued", "redeemed"], &[0]);
    for app in &report.apps {
        apps.add_row([
            app.name.clone(),
            format!("{:.4}", app.share),
            format!("{:.4}", app.fair_share),
            coupon(app.coupon_issued),
            coupon(app.coupon_redeemed),
        ]);
    }
    let mut targets = table::plain(&["target", "used", "wasted"], &[0]);
    for target in &report.targets {
        targets.add_row([target.name.clone(), format!("{:.4}", target.used), format!("{:.4}", target.wasted)]);
    }
    writeln!(out, "{}\n\n{}\n", table::lines(&apps), table::lines(&targets))?;
    let of = report.targets.len();
    writeln!(
        out,
        "effective bandwidth {:.4} of {of} {}",
        report.effective_bandwidth,
        if of == 1 { "target" } else { "targets" }
    )?;
    Ok(())
}
