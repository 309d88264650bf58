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
    } else if options.slurm {
        out.write_all(owed(&ledger).as_bytes())?;
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
    } else if options.slurm {
        out.write_all(script(&ledger.periods).as_bytes())?;
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
            let controller = |seen: &whole::Seen| Some(seen.status()?.cluster.as_ref()?.controller.clone());
            let decides = |seen: &whole::Seen| controller(seen).is_some_and(|controller| controller.is_here);
            let error = |seen: &whole::Seen| Some(format!("{}: {}", seen.member.name, controller(seen)?.error?));
            let errors: Vec<String> = seen.iter().filter_map(error).collect();
            match seen.into_iter().find(decides).map(|seen| seen.found) {
                Some(Ok((mut control, _))) => control.ledger(),
                _ if !errors.is_empty() => bail!("no server decides for the cluster at present: {}", errors.join("; ")),
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

/// A name as one field of a line. A group is what a job says of itself: with a `|` in it, it could claim any number of node-seconds.
fn field(name: &str) -> String {
    name.replace('|', "%7C")
}

/// What each user would be credited with at each account now.
fn owed(ledger: &LedgerStatus) -> String {
    let mut owed: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for AccountStatus { user, group, outstanding, regret_node_s, .. } in &ledger.accounts {
        let (coupons, node_s) = owed.entry((user, group)).or_default();
        (*coupons, *node_s) = (*coupons + outstanding, *node_s + regret_node_s);
    }
    let mut text = "User|Account|Coupons|NodeSeconds\n".to_owned();
    for ((user, group), (coupons, node_s)) in owed.into_iter().filter(|(_, (coupons, _))| *coupons > 0) {
        text += &format!("{}|{}|{coupons}|{node_s}\n", field(user), field(group));
    }
    text
}

/// The node-seconds that are given at the end of a period, by user and account.
fn given(period: &PeriodStatus) -> BTreeMap<(&str, &str), u64> {
    let mut given: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for PaymentStatus { user, group, node_s, .. } in &period.payments {
        *given.entry((user, group)).or_default() += node_s;
    }
    given
}

/// What each user is to be credited with at each account: a line for each period, user and account.
fn credits(periods: &[PeriodStatus]) -> String {
    let mut text = "Period|Ended|User|Account|NodeSeconds\n".to_owned();
    for period in periods {
        for ((user, group), node_s) in given(period) {
            text += &format!("{}|{}|{}|{}|{node_s}\n", period.number, period.ended_s, field(user), field(group));
        }
    }
    text
}

/// Slurm has no command that adds to a limit, so the present one is asked for. What is asked and said of one credit is about one association:
/// `sacctmgr modify` without a cluster would set the limit in all of them. Before a limit is changed the script notes what it was, and afterwards
/// that it was changed; so it can tell on another run whether a change that it does not know the end of was made.
const CREDIT: &str = r#"#!/bin/sh
# Node-minutes for coupons that were not redeemed, as isonomia regret --slurm printed them. What is added is the
# limit GrpTRESMins=node of the user's one association. Save it in a file and run that: it notes what it does in a
# file beside it (credits.sh.done), and credits no period twice. So it can be run again after it stopped. Without
# that file, or in another directory, it would credit once more.
status=0
notes=$0.done
passed_over() {
    echo "not credited: $1 at $2 $3" >&2
    status=1
}
stopped() {
    echo "stopped at: credit $1 $2 $3: $4" >&2
    exit 1
}
if ! [ -f "$0" ] || ! true >>"$notes"; then
    echo "nothing is credited: what is done can be noted nowhere (run this as a file, in a directory that can be written to)" >&2
    exit 1
fi
if ! mkdir "$notes.lock" 2>/dev/null; then
    echo "nothing is credited: another run is at work, or was killed (then remove $notes.lock)" >&2
    exit 1
fi
trap 'rmdir "$notes.lock"' EXIT
trap 'exit 1' HUP INT TERM
credit() {
    begun=
    while read -r what of user account minutes limit; do
        case "$what $of $user $account $minutes" in
        "credited $period $1 $2 $3")
            echo "credited before: $1 $2 $3"
            return
            ;;
        "begun $period $1 $2 $3") begun=$limit ;;
        esac
    done <"$notes"
    found=$(sacctmgr -nP show assoc where user="$1" account="$2" format=Cluster,Partition,GrpTRESMins) ||
        stopped "$1" "$2" "$3" "sacctmgr failed to tell the limit"
    case $(printf '%s\n' "$found" | grep -c .) in
    1) ;;
    *)
        passed_over "$1" "$2" "has not just one association"
        return
        ;;
    esac
    cluster=${found%%|*}
    partition=${found#*|}
    partition=${partition%%|*}
    limit=$(printf '%s\n' "${found##*|}" | tr ',' '\n' | sed -n 's/^node=//p')
    case $limit in
    '' | *[!0-9]*)
        passed_over "$1" "$2" "has not just one limit GrpTRESMins=node"
        return
        ;;
    esac
    case $limit in
    "${begun:-$limit}")
        echo "begun $period $1 $2 $3 $limit" >>"$notes" || stopped "$1" "$2" "$3" "it cannot be noted in $notes"
        sacctmgr -i modify user where name="$1" account="$2" cluster="$cluster" ${partition:+partition="$partition"} \
            set GrpTRESMins=node=$((limit + $3)) || stopped "$1" "$2" "$3" "sacctmgr failed to set the limit; run this again"
        begun=$limit
        ;;
    $((begun + $3))) ;;
    *)
        stopped "$1" "$2" "$3" "it was begun before, at node=$begun, and now the limit is node=$limit; look whether \
that has the credit, and add a line 'credited $period $1 $2 $3' to $notes if so, or else take out the one with 'begun'"
        ;;
    esac
    echo "credited: $1 $2 $3 (node=$begun is node=$((begun + $3)) now)"
    echo "credited $period $1 $2 $3" >>"$notes" || stopped "$1" "$2" "$3" "it is credited, and that cannot be noted in $notes"
}
"#;

/// The credits as a script. What a shell could take for anything but a name is in comments only.
fn script(periods: &[PeriodStatus]) -> String {
    let may_be = |name: &str| {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || "._@+-".contains(char);
        !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain)
    };
    let mut text = CREDIT.to_owned();
    for period in periods {
        let PeriodStatus { number, ended_s, .. } = period;
        // So its notes are of this period alone, whatever file it is saved in.
        text += &format!("# Period {number}, which ended {ended_s} s after 1970 began\nperiod={number}@{ended_s}\n");
        for ((user, group), node_s) in given(period) {
            text += &match node_s / 60 {
                // Names have no ends of lines, and escaped they could not.
                _ if !may_be(user) || !may_be(group) => {
                    format!("# not credited: {user:?} at {group:?} with {node_s} node-seconds is nobody in Slurm\n")
                }
                0 => format!("# {user} at {group}: {node_s} node-seconds, less than a minute\n"),
                minutes => format!("credit {user} {group} {minutes}\n"),
            };
        }
    }
    text + "exit $status\n"
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
    fn a_name_is_one_field() {
        let mut forged = payment("ada", 7);
        forged.group = "astro|9999999".to_owned();
        let periods = [PeriodStatus { number: 3, ended_s: 1, payments: vec![forged] }];
        assert_eq!(credits(&periods).lines().nth(1), Some("3|1|ada|astro%7C9999999|7"));
    }

    #[test]
    fn what_is_owed_is_by_user_and_account() {
        let account = |user: &str, group: &str, outstanding, regret_node_s| AccountStatus {
            user: user.to_owned(),
            group: group.to_owned(),
            outstanding,
            regret_node_s,
            ..AccountStatus::default()
        };
        let accounts =
            vec![account("bob", "bio", 0, 0), account("ada", "as|tro", 5, 60), account("ada", "as|tro", 6, 61)];
        let ledger = LedgerStatus { accounts, ..LedgerStatus::default() };
        assert_eq!(owed(&ledger), "User|Account|Coupons|NodeSeconds\nada|as%7Ctro|11|121\n");
    }

    /// What a script prints and how it ends, by a shell in which `sacctmgr` is a function that says what it was asked to do, and knows the
    /// associations of some users: each a case of the shell. It is a file in `dir`, in which its notes stay.
    fn run_in(dir: &std::path::Path, script: &str, associations: &str) -> (String, String, Option<i32>) {
        let slurm = format!(
            "sacctmgr() {{
                case \"$*\" in
                {associations}
                '-nP show assoc where user='*' account=astro format=Cluster,Partition,GrpTRESMins') ;;
                *) echo \"$*\" ;;
                esac
            }}\n"
        );
        let file = dir.join("credits.sh");
        std::fs::write(&file, slurm + script).unwrap();
        let done = std::process::Command::new("sh").arg(file).output().unwrap();
        let [out, err] = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (out, err, done.status.code())
    }

    fn run(script: &str, associations: &str) -> (String, String, Option<i32>) {
        run_in(tempfile::tempdir().unwrap().path(), script, associations)
    }

    #[test]
    fn a_script_asks_slurm_for_nothing_but_the_credits() {
        let mut payments = vec![payment("ada", 15_120), payment("ada", 59), payment("bob", 3_600), payment("eve", 59)];
        payments.extend(["$(touch here)", "a b", "-i", "x;true", "new\nline"].map(|user| payment(user, 600)));
        let script = script(&[PeriodStatus { number: 3, ended_s: 1_700_000_000, payments }]);
        let (out, err, code) = run(&script, "-nP*user=ada\\ *) echo 'c1||cpu=70,node=1000,gres/gpu=5' ;;");
        // 15,179 node-seconds are 252 minutes and a part of one.
        let expected = "-i modify user where name=ada account=astro cluster=c1 set GrpTRESMins=node=1252\n\
            credited: ada astro 252 (node=1000 is node=1252 now)\n";
        assert_eq!(out, expected, "{script}");
        assert_eq!(err, "not credited: bob at astro has not just one association\n");
        assert_eq!(code, Some(1));
        let commented = script.lines().filter(|line| line.starts_with("# not credited")).count();
        assert_eq!((commented, script.lines().filter(|line| line.starts_with("credit ")).count()), (5, 2));
    }

    /// Of two associations one may have no limit, and must not get one.
    #[test]
    fn a_user_with_several_associations_is_left_alone() {
        let payments = ["ada", "bob", "eve", "joe"].map(|user| payment(user, 600)).into();
        let script = script(&[PeriodStatus { number: 3, ended_s: 1, payments }]);
        let associations = "-nP*user=ada\\ *) printf 'c1||\\nc1|fast|node=1000\\n' ;;
            -nP*user=bob\\ *) printf 'c1||node=5\\nc2||cpu=7\\n' ;;
            -nP*user=eve\\ *) echo 'c2|fast|node=7' ;;
            -nP*user=joe\\ *) echo 'c2||' ;;";
        let (out, err, code) = run(&script, associations);
        let expected = "-i modify user where name=eve account=astro cluster=c2 partition=fast set GrpTRESMins=node=17\n\
            credited: eve astro 10 (node=7 is node=17 now)\n";
        assert_eq!(out, expected);
        let expected = "not credited: ada at astro has not just one association\n\
            not credited: bob at astro has not just one association\n\
            not credited: joe at astro has not just one limit GrpTRESMins=node\n";
        assert_eq!((&*err, code), (expected, Some(1)));
    }

    /// What was credited is said before anything fails, and nothing is tried after that. What is run again goes on there, whatever became of
    /// the change that failed.
    #[test]
    fn a_script_stops_where_slurm_fails_and_goes_on_there() {
        let payments = ["ada", "bob", "eve"].map(|user| payment(user, 600)).into();
        let script = script(&[PeriodStatus { number: 3, ended_s: 1, payments }]);
        let known = "-nP*user=ada\\ *|-nP*user=eve\\ *) echo 'c1||node=1000' ;;";
        let credited = |user: &str, limit: u64| {
            let then = limit + 10;
            format!(
                "-i modify user where name={user} account=astro cluster=c1 set GrpTRESMins=node={then}\n\
                 credited: {user} astro 10 (node={limit} is node={then} now)\n"
            )
        };
        let unasked = format!("{known} -nP*user=bob\\ *) echo 'c1||node=1'; return 1 ;;");
        let unset = format!("{known} -nP*user=bob\\ *) echo 'c1||node=1' ;; -i*name=bob\\ *) return 1 ;;");
        let of_bob = |limit: u64| format!("{known} -nP*user=bob\\ *) echo 'c1||node={limit}' ;;");
        for (associations, what) in [(unasked, "tell"), (unset, "set")] {
            let dir = tempfile::tempdir().unwrap();
            let (out, err, code) = run_in(dir.path(), &script, &associations);
            assert_eq!((&*out, code), (&*credited("ada", 1000), Some(1)));
            let stopped = format!("stopped at: credit bob astro 10: sacctmgr failed to {what} the limit");
            assert!(err.starts_with(&stopped) && err.lines().count() == 1, "{err}");
            if what == "set" {
                // Somebody else has changed the limit meanwhile: nobody can tell.
                let (out, err, code) = run_in(dir.path(), &script, &of_bob(5));
                assert_eq!((&*out, code), ("credited before: ada astro 10\n", Some(1)));
                assert!(err.contains("it was begun before, at node=1, and now the limit is node=5"), "{err}");
                // It had been changed after all.
                let (out, _, code) = run_in(dir.path(), &script, &of_bob(11));
                let bob = "credited: bob astro 10 (node=1 is node=11 now)\n";
                assert_eq!(out, format!("credited before: ada astro 10\n{bob}{}", credited("eve", 1000)));
                assert_eq!(code, Some(0));
            } else {
                let (out, err, code) = run_in(dir.path(), &script, &of_bob(1));
                let more = credited("bob", 1) + &credited("eve", 1000);
                assert_eq!((out, code), (format!("credited before: ada astro 10\n{more}"), Some(0)), "{err}");
            }
            let again = ["ada", "bob", "eve"].map(|user| format!("credited before: {user} astro 10\n")).concat();
            assert_eq!(run_in(dir.path(), &script, &of_bob(1)), (again, String::new(), Some(0)));
        }
    }

    #[test]
    fn a_script_that_can_note_nothing_credits_nothing() {
        let payments = vec![payment("ada", 600)];
        let script = script(&[PeriodStatus { number: 3, ended_s: 1, payments }]);
        let done = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert_eq!((done.status.code(), done.stdout.len()), (Some(1), 0));
        assert!(String::from_utf8_lossy(&done.stderr).contains("what is done can be noted nowhere"));
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
