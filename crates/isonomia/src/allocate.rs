//! `isonomia allocate`: what a scheme gives each application of a case, for one decision.

use crate::arguments::AllocateOptions;
use crate::table;
use anyhow::Result;
use isonomia_whatif::allocate::{Report, allocate as answer};
use isonomia_whatif::read_text;
use std::io::Write;

pub fn allocate(options: &AllocateOptions) -> Result<()> {
    let text = read_text(&options.case)?;
    let report = answer(&options.case.display().to_string(), &text, options.scheme.into())?;
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&mut out, &report)?;
    }
    Ok(())
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
