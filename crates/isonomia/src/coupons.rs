//! `isonomia coupons` and `isonomia regret`.

use crate::arguments::{CouponsOptions, RegretOptions, WholeOptions};
use crate::whole::{self, Meant};
use anyhow::{Result, bail};
use isonomia_proto::ledger::{AccountStatus, LedgerStatus, PaymentStatus, PeriodStatus};
use std::collections::BTreeMap;
use std::io::Write;

/// Who is owed what.
pub fn coupons(options: &CouponsOptions) -> Result<()> {
    let ledger = ledger(&options.whole)?;
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&ledger)?)?;
    } else {
        out.write_all(table(&ledger).as_bytes())?;
    }
    Ok(())
}

/// What is to be credited.
pub fn regret(options: &RegretOptions) -> Result<()> {
    let mut ledger = ledger(&options.whole)?;
    if let Some(number) = options.period {
        let known = |periods: &[PeriodStatus]| match (periods.first(), periods.last()) {
            (Some(first), Some(last)) => format!("{} to {}", first.number, last.number),
            _ => "none is over yet".to_owned(),
        };
        let allowed = known(&ledger.periods);
        ledger.periods.retain(|period| period.number == number);
        if ledger.periods.is_empty() {
            bail!("--period {number}: it is not over, or forgotten (allowed: {allowed})");
        }
    }
    let mut out = std::io::stdout().lock();
    if options.json {
        let shown = serde_json::json!({
            "server": ledger.server,
            "budget_node_s": ledger.budget_node_s,
            "outstanding_node_s": ledger.accounts.iter().map(|account| account.regret_node_s).sum::<u64>(),
            "periods": ledger.periods,
        });
        writeln!(out, "{shown:#}")?;
    } else {
        out.write_all(credits(&ledger.periods).as_bytes())?;
    }
    Ok(())
}

/// The ledger, from the server that has it.
fn ledger(options: &WholeOptions) -> Result<LedgerStatus> {
    match whole::meant(options)? {
        Meant::One(mut control, _) => control.ledger(),
        Meant::All(mut all) => {
            let seen = all.look();
            let decides = |seen: &whole::Seen| {
                seen.status()
                    .and_then(|status| status.cluster.as_ref())
                    .is_some_and(|cluster| cluster.controller.is_here)
            };
            match seen.into_iter().find(decides).map(|seen| seen.found) {
                Some(Ok((mut control, _))) => control.ledger(),
                _ => bail!(
                    "no server decides for the cluster at present: its policy is none of gift's kind, or it is about to be"
                ),
            }
        }
    }
}

fn table(ledger: &LedgerStatus) -> String {
    let mut rows =
        vec![["ACCOUNT", "ISSUED", "REDEEMED", "COMPENSATED", "OUTSTANDING", "WORTH", "PAID"].map(str::to_owned)];
    let row = |account: &AccountStatus| {
        let AccountStatus { issued, redeemed, compensated, outstanding, .. } = account;
        let [issued, redeemed, compensated, outstanding] =
            [issued, redeemed, compensated, outstanding].map(ToString::to_string);
        let [worth, paid] = [account.regret_node_s, account.paid_node_s].map(node_hours);
        [account.account.clone(), issued, redeemed, compensated, outstanding, worth, paid]
    };
    rows.extend(ledger.accounts.iter().map(row));
    let mut text = String::new();
    let widths: Vec<usize> =
        (0..7).map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cell = |(at, (cell, width)): (usize, (&String, &usize))| {
            if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        text.push_str(cells.map(cell).collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn node_hours(node_s: u64) -> String {
    format!("{:.2} node-h", node_s as f64 / 3_600.0)
}

/// What each user is to be credited with at each account: a line for each period, user and account.
fn credits(periods: &[PeriodStatus]) -> String {
    let mut text = "Period|Ended|User|Account|NodeSeconds\n".to_owned();
    for period in periods {
        let mut owed: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for PaymentStatus { user, group, node_s, .. } in &period.payments {
            *owed.entry((user, group)).or_default() += node_s;
        }
        for ((user, group), node_s) in owed {
            text += &format!("{}|{}|{user}|{group}|{node_s}\n", period.number, period.ended_s);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payment(user: &str, node_s: u64) -> PaymentStatus {
        let account = format!("user={user} job=j{node_s}");
        PaymentStatus { account, user: user.to_owned(), group: "astro".to_owned(), coupons: 9, node_s }
    }

    #[test]
    fn credits_are_by_user_and_account() {
        let payments = vec![payment("bob", 5), payment("ada", 7), payment("ada", 8)];
        let periods = [PeriodStatus { number: 3, ended_s: 1_700_000_000, payments }];
        let expected = "Period|Ended|User|Account|NodeSeconds\n3|1700000000|ada|astro|15\n3|1700000000|bob|astro|5\n";
        assert_eq!(credits(&periods), expected);
    }

    #[test]
    fn accounts_are_in_columns() {
        let account = AccountStatus {
            account: "user=ada job=lammps".to_owned(),
            issued: 250_000,
            outstanding: 250_000,
            regret_node_s: 5_400,
            ..AccountStatus::default()
        };
        let ledger = LedgerStatus { accounts: vec![account], ..LedgerStatus::default() };
        let text = table(&ledger);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split_whitespace().count(), 7);
        let cells: Vec<&str> = lines[1].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["user=ada job=lammps", "250000", "0", "0", "250000", "1.50 node-h", "0.00 node-h"]);
    }
}
