//! GIFT: the paper's Fig. 6, the ledger, windows, budget, accounts, and the constraints of its program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;

use cases::{Case, arb_case, fig6, permuted};
use isonomia_allocation::{
    Accounts, Allocation, App, Coupons, Gift, GiftConfig, NodeTime, Problem, Targets, bsip, mbw,
};
use isonomia_units::Nanos;
use proptest::prelude::*;
use std::sync::Arc;

const INTERVAL_S: u64 = 10;

fn gift(config: GiftConfig) -> Gift {
    Gift::new(config).unwrap()
}

/// B_thres of Fig. 6, and windows so long that they never matter.
fn fig6_config() -> GiftConfig {
    let window = Coupons(1_000_000_000);
    GiftConfig { b_thres: 0.3, window, system_window: window, ..GiftConfig::default() }
}

fn share(allocation: &Allocation, app: &str) -> f64 {
    allocation.app(app).unwrap().share
}

fn problem(targets: &[&str], apps: &[(&str, &[&str])]) -> Problem {
    let targets = Arc::new(Targets::new(targets.iter().map(|name| (*name, 1.0))).unwrap());
    let apps = apps.iter().map(|(name, at)| App::at(*name, &targets, at).unwrap()).collect();
    Problem::new(targets, apps).unwrap()
}

#[test]
fn fig_6_as_printed() {
    let mut gift = gift(fig6_config());
    let k1 = gift.decide(Nanos::ZERO, &fig6(1)).unwrap();
    assert!((share(&k1, "A") - 0.35).abs() < 1e-9 && (share(&k1, "B") - 0.65).abs() < 1e-9, "{k1:?}");
    assert_eq!(k1.app("A").unwrap().coupon_issued, Coupons(150_000));
    assert!((k1.target_uses()[1].wasted - 0.35).abs() < 1e-9);

    let k2 = gift.decide(Nanos::from_secs(10), &fig6(2)).unwrap();
    for (app, expected) in [("A", 5.0 / 12.0), ("B", 0.25), ("C", 1.0 / 3.0), ("D", 0.25)] {
        assert!((share(&k2, app) - expected).abs() < 1e-6, "{app}: {k2:?}");
    }
    assert_eq!(k2.app("A").unwrap().coupon_redeemed, Coupons(83_333));

    let k3 = gift.decide(Nanos::from_secs(20), &fig6(3)).unwrap();
    assert_eq!(k3.app("A").unwrap().coupon_redeemed, Coupons(66_667));
    assert!((share(&k3, "A") - 0.4).abs() < 1e-6 && (share(&k3, "B") - 0.25).abs() < 1e-9);
    assert!((share(&k3, "C") - 0.35).abs() < 1e-6, "the rest, 0.0167, to the one with less");
    assert_eq!(gift.ledger().balance("A").outstanding, Coupons(0));
    assert!(k2.apps().iter().chain(k3.apps()).all(|app| app.coupon_issued == Coupons(0)));
}

#[test]
fn nobody_is_throttled_for_nothing() {
    let even = gift(fig6_config()).decide(Nanos::ZERO, &problem(&["t"], &[("A", &["t"]), ("B", &["t"])])).unwrap();
    assert_eq!((share(&even, "A"), share(&even, "B")), (0.5, 0.5));
    // B's other target is full by C alone, so B cannot be expanded, and A gives way for nothing.
    let blocked = problem(&["t", "u"], &[("A", &["t"]), ("B", &["t", "u"]), ("C", &["u"])]);
    let blocked = gift(fig6_config()).decide(Nanos::ZERO, &blocked).unwrap();
    assert!(blocked.apps().iter().all(|app| app.share == 0.5 && app.coupon_issued == Coupons(0)), "{blocked:?}");
}

#[test]
fn those_who_may_not_be_throttled_are_not() {
    let mut apps = fig6(1).apps().to_vec();
    apps[0].throttle_friendly = Some(false);
    let problem = Problem::new(fig6(1).targets().clone(), apps).unwrap();
    let allocation = gift(fig6_config()).decide(Nanos::ZERO, &problem).unwrap();
    assert_eq!((share(&allocation, "A"), share(&allocation, "B")), (0.5, 0.5));
}

#[test]
fn equals_are_throttled_equally_and_no_more_than_needed() {
    let apps: [(&str, &[&str]); 5] =
        [("A1", &["t"]), ("A2", &["t"]), ("B", &["t", "u", "v"]), ("C", &["u"]), ("D", &["u"])];
    let mut apps = problem(&["t", "u", "v"], &apps).apps().to_vec();
    apps[3].throttle_friendly = Some(false);
    apps[4].throttle_friendly = Some(false);
    let targets = Arc::new(Targets::new([("t", 1.0), ("u", 1.05), ("v", 1.0)]).unwrap());
    let problem = Problem::new(targets, apps).unwrap();
    let allocation = gift(fig6_config()).decide(Nanos::ZERO, &problem).unwrap();
    let near = |app: &str, expected: f64| assert!((share(&allocation, app) - expected).abs() < 1e-9, "{allocation:?}");
    // B is at 1/3 by t, and C and D at 0.35: u has 1/60 for B, which A1 and A2 pay half each.
    near("B", 0.35);
    near("C", 0.35);
    near("A1", (1.0 - 0.35) / 2.0);
    near("A2", (1.0 - 0.35) / 2.0);
}

#[test]
fn a_window_closes_until_coupons_are_redeemed() {
    let mut gift = gift(GiftConfig { b_thres: 0.3, ..GiftConfig::default() });
    let decide = |gift: &mut Gift, s, problem: &Problem| gift.decide(Nanos::from_secs(s), problem).unwrap();
    assert_eq!(decide(&mut gift, 0, &fig6(1)).app("A").unwrap().coupon_issued, Coupons(150_000));
    assert!((gift.ledger().redemption_rate("A") - 0.4).abs() < 1e-12);
    assert!((gift.ledger().system_redemption_rate() - 0.4).abs() < 1e-12);
    assert_eq!(share(&decide(&mut gift, 10, &fig6(1)), "A"), 0.5);
    decide(&mut gift, 20, &fig6(2));
    decide(&mut gift, 30, &fig6(3));
    assert_eq!((gift.ledger().redemption_rate("A"), gift.ledger().system_redemption_rate()), (1.0, 1.0));
    assert!((share(&decide(&mut gift, 40, &fig6(1)), "A") - 0.35).abs() < 1e-9);
}

#[test]
fn at_the_end_of_the_period_regret_is_paid_and_only_the_system_forgets() {
    let mut gift = gift(GiftConfig { b_thres: 0.3, ..GiftConfig::default() });
    let mut apps = fig6(1).apps().to_vec();
    apps[0].nodes = 40;
    let problem = Problem::new(fig6(1).targets().clone(), apps).unwrap();
    gift.decide(Nanos::from_secs(100), &problem).unwrap();
    assert_eq!(gift.assess(Nanos::from_secs(86_499)), []);
    let paid = gift.assess(Nanos::from_secs(86_500));
    // 0.15 of one target for 10 s at one target, for 40 nodes: 60 node-seconds.
    let node_time = NodeTime(60_000_000_000);
    assert_eq!(
        paid.iter().map(|c| (c.account.as_ref(), c.coupons, c.node_time)).collect::<Vec<_>>(),
        [("A", Coupons(150_000), node_time)]
    );
    assert_eq!(gift.ledger().total().paid, node_time);
    assert_eq!(gift.ledger().system_redemption_rate(), 1.0);
    assert!((gift.ledger().redemption_rate("A") - 0.4).abs() < 1e-12, "compensated is not redeemed");
}

/// The budget of whoever takes over may be less than what is owed already: no period costs more, and nothing is forgotten.
#[test]
fn a_budget_that_became_smaller_is_kept_as_well() {
    let mut apps = fig6(1).apps().to_vec();
    apps[0].nodes = 40;
    let problem = Problem::new(fig6(1).targets().clone(), apps).unwrap();
    let mut before = gift(fig6_config());
    before.decide(Nanos::ZERO, &problem).unwrap();
    let records = before.take_changes();
    // Of 60 node-seconds that are owed.
    let budget = NodeTime(25_000_000_000);
    let config = GiftConfig { regret_budget: Some(budget), ..fig6_config() };
    let mut after = Gift::restore(config, records.accounts, records.system).unwrap();
    let mut costs = Vec::new();
    for day in 0..5 {
        let now = Nanos::from_secs(86_400 * day);
        costs.push(after.assess(now).iter().map(|paid| paid.node_time.0).sum::<u128>());
        assert_eq!(after.decide(now, &problem).unwrap().app("A").unwrap().coupon_issued > Coupons(0), day >= 2);
        let total = after.ledger().total();
        assert!(
            total.is_conserved() && after.ledger().balances().all(|(_, balance)| balance.is_conserved()),
            "{total:?}"
        );
        let kept = after.take_changes();
        assert!(kept.accounts.iter().all(|(_, record)| record.balance().is_some()), "{kept:?}");
    }
    assert!(costs.iter().all(|cost| *cost <= budget.0), "{costs:?}");
    assert_eq!(costs[..3], [0, budget.0, budget.0]);
    assert!(costs[3] > 10_000_000_000, "the rest, and what is owed since there is room for it: {costs:?}");
}

#[test]
fn coupons_by_user_are_redeemed_by_any_application_of_the_user() {
    let config = GiftConfig { accounts: Accounts::ByUser, ..fig6_config() };
    let mut gift = gift(config);
    let of_user = |problem: &Problem, name: &str| {
        let mut apps = problem.apps().to_vec();
        apps.iter_mut().filter(|app| app.name.as_ref() == name).for_each(|app| app.user = Some("ada".into()));
        Problem::new(problem.targets().clone(), apps).unwrap()
    };
    gift.decide(Nanos::ZERO, &of_user(&fig6(1), "A")).unwrap();
    assert_eq!(gift.ledger().balance("ada").issued, Coupons(150_000));
    let k2 = gift.decide(Nanos::from_secs(10), &of_user(&fig6(2), "C")).unwrap();
    assert_eq!(k2.app("C").unwrap().coupon_redeemed, Coupons(83_333));
    assert!((share(&k2, "A") - 1.0 / 3.0).abs() < 1e-6);
}

#[test]
fn a_parameter_out_of_its_range_is_named() {
    let bad = |config| Gift::new(config).unwrap_err().to_string();
    let b_thres = bad(GiftConfig { b_thres: 1.5, ..GiftConfig::default() });
    assert_eq!(b_thres, "b_thres 1.5 (allowed: 0 to 1)");
    assert!(bad(GiftConfig { window: Coupons(0), ..GiftConfig::default() }).contains("at least one coupon"));
}

#[test]
fn mbw_takes_what_gains_most() {
    let k1 = mbw(&fig6(1)).unwrap();
    assert_eq!((share(&k1, "A"), share(&k1, "B"), k1.effective_bandwidth()), (0.0, 1.0, 2.0));
    let k2 = mbw(&fig6(2)).unwrap();
    assert!((k2.effective_bandwidth() - 2.0).abs() < 1e-9);
    assert!((share(&k2, "A") - 0.375).abs() < 1e-9 && (share(&k2, "B") - 0.25).abs() < 1e-9, "{k2:?}");
}

/// Which applications do I/O in each of some decisions.
fn arb_course() -> impl Strategy<Value = (Case, Vec<u8>)> {
    (arb_case(), prop::collection::vec(1_u8..=127, 1..12))
}

fn active(case: &Case, mask: u8) -> Problem {
    let problem = case.problem_of(|at| mask >> at & 1 == 1);
    if problem.apps().is_empty() { case.problem() } else { problem }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_programs_constraints_hold(course in arb_course(), b_thres in 0.0_f64..1.0) {
        let (case, masks) = course;
        let mut gift = gift(GiftConfig { b_thres, ..fig6_config() });
        for (k, &mask) in masks.iter().enumerate() {
            let problem = active(&case, mask);
            let allocation = gift.decide(Nanos::from_secs(INTERVAL_S * k as u64), &problem).unwrap();
            let fair = bsip(&problem);
            let (mut gain, mut worth) = (0.0, 0.0);
            for (app, got) in problem.apps().iter().zip(allocation.apps()) {
                let width = app.demands.len() as f64;
                let least = if app.throttle_friendly == Some(false) { 1.0 } else { 1.0 - b_thres };
                prop_assert!(got.share >= got.fair_share * least - 1e-8, "(1): {got:?}");
                gain += (got.share - got.fair_share) * width;
                worth += (got.fair_share - got.share).max(0.0) * width;
                prop_assert!((got.coupon_issued.targets() - (got.fair_share - got.share).max(0.0) * width).abs() < 2e-6);
                prop_assert!(got.coupon_issued == Coupons(0) || got.coupon_redeemed == Coupons(0));
                let reward = got.coupon_redeemed.targets() / width;
                prop_assert!(got.coupon_redeemed == Coupons(0) || got.share >= got.fair_share + reward - 1e-8);
            }
            prop_assert!(allocation.effective_bandwidth() >= fair.effective_bandwidth() - 1e-8, "(2)");
            prop_assert!(gain >= worth - 1e-7, "(3): {gain} {worth}");
            for used in allocation.target_uses() {
                let capacity = problem.targets().capacity(problem.targets().index(&used.name).unwrap());
                prop_assert!(used.used <= capacity + 1e-8, "{used:?}");
            }
        }
    }

    #[test]
    fn the_ledger_is_conserved_and_the_budget_kept(
        course in arb_course(),
        budget in 0_u64..40,
        by_user in any::<bool>(),
        period in 1_u64..8,
    ) {
        let (case, masks) = course;
        let budget = NodeTime(u128::from(budget) * 1_000_000_000);
        let accounts = if by_user { Accounts::ByUser } else { Accounts::ByApp };
        let regret_period = Nanos::from_secs(period * INTERVAL_S);
        let mut gift = gift(GiftConfig { accounts, regret_period, regret_budget: Some(budget), ..fig6_config() });
        let mut paid = NodeTime(0);
        let (mut issued, mut redeemed) = (Coupons(0), Coupons(0));
        for (k, &mask) in masks.iter().enumerate() {
            let now = Nanos::from_secs(INTERVAL_S * k as u64);
            let compensations = gift.assess(now);
            let cost = compensations.iter().fold(NodeTime(0), |sum, c| sum + c.node_time);
            prop_assert!(cost <= budget, "{cost:?} of {budget:?}");
            paid += cost;
            let allocation = gift.decide(now, &active(&case, mask)).unwrap();
            for app in allocation.apps() {
                issued += app.coupon_issued;
                redeemed += app.coupon_redeemed;
            }
            let total = *gift.ledger().total();
            prop_assert!(total.is_conserved() && total.regret <= budget, "{total:?}");
            prop_assert_eq!((total.issued, total.redeemed, total.paid), (issued, redeemed, paid));
            let outstanding = gift.ledger().balances().fold(Coupons(0), |sum, (_, balance)| sum + balance.outstanding);
            prop_assert_eq!(outstanding, total.outstanding);
            prop_assert!(gift.ledger().balances().all(|(_, balance)| balance.is_conserved()));
        }
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(course in arb_course(), seed in any::<u64>()) {
        let (case, masks) = course;
        let (mut one, mut other) = (gift(fig6_config()), gift(fig6_config()));
        for (k, &mask) in masks.iter().enumerate() {
            let (now, problem) = (Nanos::from_secs(INTERVAL_S * k as u64), active(&case, mask));
            prop_assert_eq!(one.decide(now, &problem), other.decide(now, &permuted(&problem, seed)));
            prop_assert_eq!(mbw(&problem), mbw(&permuted(&problem, seed)));
        }
    }
}
