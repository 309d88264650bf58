//! What a bandwidth allocation scheme gives each application of a case, for one decision.

mod case;

use case::Case;
use isonomia_allocation::{
    AdapTbfConfig, Allocation, CoflowError, Coupons, Decide, GiftConfig, Order, Parameters, Problem, ProblemError,
    Scheme as Decider, SchemeError, SchemeSpec, Strategy,
};
use isonomia_units::{Nanos, Rate};
use serde::Serialize;
use std::str::FromStr;

/// The part of the fair share that coflow keeps for everybody if the case does not say.
const GUARANTEE: f64 = 0.5;
/// The same for fair finish, as its arbiter has it.
const GUARANTEE_OF_FAIR_FINISH: f64 = 0.2;
/// A target where it matters: a demand of which nothing is known is taken for what that serves in a second.
const BANDWIDTH: Rate = match Rate::new(1_000_000_000) {
    Some(rate) => rate,
    None => unreachable!(),
};

/// Bandwidth allocation schemes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Per-OST fair share: each target for itself.
    Pofs,
    /// Basic synchronous I/O progress: the fair share of the most contended target.
    Bsip,
    /// Minimum bandwidth wastage: the greatest effective bandwidth.
    Mbw,
    /// Throttle small applications.
    Tsa,
    /// Expand small applications.
    Esa,
    /// Throttle the most frequent applications.
    Tmf,
    /// Throttle randomly.
    Rnd,
    /// Throttle and reward, with coupons.
    Gift,
    /// Token buckets with spare bandwidth shared.
    Tbf,
    /// Token buckets by nodes, of which nothing has been lent yet.
    AdapTbf,
    /// One phase at a time, or all of them, for phases that begin now.
    Calciom,
    /// A guaranteed part of the fair share, the rest in an order.
    Coflow,
    /// One after the other, as fair sharing would finish phases that begin now.
    FairFinish,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Pofs,
        Self::Bsip,
        Self::Mbw,
        Self::Tsa,
        Self::Esa,
        Self::Tmf,
        Self::Rnd,
        Self::Gift,
        Self::Tbf,
        Self::AdapTbf,
        Self::Calciom,
        Self::Coflow,
        Self::FairFinish,
    ];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pofs => "pofs",
            Self::Bsip => "bsip",
            Self::Mbw => "mbw",
            Self::Tsa => "tsa",
            Self::Esa => "esa",
            Self::Tmf => "tmf",
            Self::Rnd => "rnd",
            Self::Gift => "gift",
            Self::Tbf => "tbf",
            Self::AdapTbf => "adaptbf",
            Self::Calciom => "calciom",
            Self::Coflow => "coflow",
            Self::FairFinish => "fair-finish",
        }
    }
}

/// A word that is no scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scheme {0:?} is unknown (allowed: {names})", names = Scheme::ALL.map(Scheme::name).join(", "))]
pub struct ParseSchemeError(String);

impl FromStr for Scheme {
    type Err = ParseSchemeError;

    fn from_str(text: &str) -> Result<Self, ParseSchemeError> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == text).ok_or_else(|| ParseSchemeError(text.to_owned()))
    }
}

/// Why there is no allocation; always one line that begins with the case's name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocateError {
    /// Something in the case cannot be used.
    #[error("{file}{what}")]
    Case {
        /// The case's name.
        file: String,
        /// `:LINE: FIELD: what is wrong (allowed: …)`.
        what: String,
    },
    /// The case makes no problem.
    #[error("{file}: {why}")]
    Problem {
        /// The case's name.
        file: String,
        /// Why.
        why: ProblemError,
    },
    /// The scheme cannot decide.
    #[error("{file}: {why}")]
    Decision {
        /// The case's name.
        file: String,
        /// Why.
        why: SchemeError,
    },
}

/// What a scheme gives, in the order of the case. Bandwidth and coupons are counted in targets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The applications.
    pub apps: Vec<AppLine>,
    /// The targets.
    pub targets: Vec<TargetLine>,
    /// What all applications together can make use of.
    pub effective_bandwidth: f64,
}

/// What one application gets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AppLine {
    /// Its name.
    pub name: String,
    /// Its part of each of its targets, under synchronous progress.
    pub share: f64,
    /// The part under BSIP.
    pub fair_share: f64,
    /// Coupons for what it gives up.
    pub coupon_issued: f64,
    /// Coupons that it is paid for.
    pub coupon_redeemed: f64,
}

/// What one target gives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetLine {
    /// Its name.
    pub name: String,
    /// The part of its bandwidth that somebody makes use of.
    pub used: f64,
    /// The rest.
    pub wasted: f64,
}

/// What `scheme` gives to the applications of the case `text`, a TOML file called `file`.
///
/// # Errors
/// The first thing in the case that cannot be used, or what keeps the scheme from deciding.
pub fn allocate(file: &str, text: &str, scheme: Scheme) -> Result<Report, AllocateError> {
    let wrong = |what| AllocateError::Case { file: file.to_owned(), what };
    let case = Case::parse(text).map_err(wrong)?;
    let problem = case.problem().map_err(|why| AllocateError::Problem { file: file.to_owned(), why })?;
    let allocation = decide(&case, &problem, scheme).map_err(|error| match &error {
        SchemeError::Coflow(CoflowError::UnknownRemaining { app, target, order }) => {
            let what = format!("unknown at `{target}` (allowed: bytes for each target, which order {order} needs)");
            wrong(case.wrong(app, "remaining", what))
        }
        _ => AllocateError::Decision { file: file.to_owned(), why: error },
    })?;
    Ok(report(&case, &allocation))
}

fn decide(case: &Case, problem: &Problem, scheme: Scheme) -> Result<Allocation, SchemeError> {
    let gift = GiftConfig::default();
    let knows_sizes = problem.apps().iter().flat_map(|app| &app.demands).all(|demand| demand.remaining.is_some());
    let guarantee = if scheme == Scheme::FairFinish { GUARANTEE_OF_FAIR_FINISH } else { GUARANTEE };
    let parameters = Parameters {
        progress: case.progress,
        gift: GiftConfig { b_thres: case.b_thres.unwrap_or(gift.b_thres), ..gift },
        adaptbf: AdapTbfConfig::default(),
        strategy: case.strategy.unwrap_or(if knows_sizes { Strategy::Dynamic } else { Strategy::Serialize }),
        guarantee: case.guarantee.unwrap_or(guarantee),
        order: case.order.unwrap_or(if knows_sizes { Order::Bottleneck } else { Order::Attained }),
        seed: case.seed,
    };
    let named = SchemeSpec::named(scheme.name(), &parameters).expect("each of them has a name there");
    let mut decider = named?.start(BANDWIDTH)?;
    if let Decider::Gift(gift) = &mut decider {
        for (app, owed) in problem.apps().iter().map(|app| (app, case.owed(&app.name))) {
            if owed > Coupons(0) {
                gift.carry(app, owed);
            }
        }
    }
    decider.allocate(Nanos::ZERO, problem)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_decision_of_gift_fig_6() {
        let text = "b_thres = 0.3\n[[app]]\nname = \"A\"\ntargets = [\"t1\"]\nthrottle_friendly = true\n\
                    [[app]]\nname = \"B\"\ntargets = [\"t1\", \"t2\"]\nthrottle_friendly = false\n";
        let report = allocate("k1.toml", text, Scheme::Gift).unwrap();
        let shares: Vec<f64> = report.apps.iter().map(|app| (app.share * 1e6).round() / 1e6).collect();
        assert_eq!(shares, [0.35, 0.65]);
    }

    /// B would be done first under fair sharing: it has what nobody is guaranteed.
    #[test]
    fn fair_finish_serves_who_would_end_first() {
        let text = "guarantee = 0.5\n[[app]]\nname = \"A\"\ntargets = [\"t1\"]\nremaining = { t1 = \"2GB\" }\n\
                    [[app]]\nname = \"B\"\ntargets = [\"t1\"]\nremaining = { t1 = \"1GB\" }\n";
        let shares = |text: &str| {
            let report = allocate("case.toml", text, Scheme::FairFinish).unwrap();
            report.apps.iter().map(|app| app.share).collect::<Vec<f64>>()
        };
        assert_eq!(shares(text), [0.25, 0.75]);
        assert_eq!(shares(&text.replace("guarantee = 0.5", "guarantee = 0.0")), [0.0, 1.0]);
        assert_eq!(shares(&text.replace("name = \"A\"", "name = \"A\"\nweight = 3.0")), [0.875, 0.125]);
    }

    /// B needs less, so A waits; by nodes B would have to.
    #[test]
    fn calciom_serves_who_costs_least_and_adaptbf_by_nodes() {
        let text = "[[app]]\nname = \"A\"\ntargets = [\"t1\"]\nremaining = { t1 = \"2GB\" }\nnodes = 3\n\
                    [[app]]\nname = \"B\"\ntargets = [\"t1\"]\nremaining = { t1 = \"1GB\" }\n";
        let shares = |text: &str, scheme| {
            let report = allocate("case.toml", text, scheme).unwrap();
            report.apps.iter().map(|app| app.share).collect::<Vec<f64>>()
        };
        assert_eq!(shares(text, Scheme::Calciom), [1.0, 0.0]);
        assert_eq!(shares(&text.replace("nodes = 3", "nodes = 1"), Scheme::Calciom), [0.0, 1.0]);
        assert_eq!(shares(&format!("strategy = \"interfere\"\n{text}"), Scheme::Calciom), [0.5, 0.5]);
        assert_eq!(shares(text, Scheme::AdapTbf), [0.75, 0.25]);
        let complaint = |text: &str| allocate("case.toml", text, Scheme::Calciom).unwrap_err().to_string();
        assert!(
            complaint(&format!("strategy = \"stop\"\n{text}")).starts_with("case.toml:1: strategy: \"stop\" is no")
        );
        let unknown = format!("strategy = \"dynamic\"\n{}", text.replace("remaining = { t1 = \"2GB\" }\n", ""));
        assert!(complaint(&unknown).contains("`A`: the bytes that remain at target `t1` are unknown"));
        assert!(complaint(&text.replace("nodes = 3", "nodes = 0")).contains("nodes: 0 (allowed: 1 or more)"));
    }

    #[test]
    fn complaints_begin_with_the_file_and_its_line() {
        let complaint = |text| allocate("case.toml", text, Scheme::Coflow).unwrap_err().to_string();
        let error = complaint("[[app]]\nname = \"A\"\ntargets = [\"t1\"]\nweight = -1.0\n");
        assert_eq!(error, "case.toml:4: app `A`: weight: -1 (allowed: a positive number)");
        let error = complaint("order = \"bssf\"\n[[app]]\nname = \"A\"\ntargets = [\"t1\"]\n");
        assert!(error.starts_with("case.toml:3: app `A`: remaining: unknown at `t1`"), "{error}");
    }

    #[test]
    fn schemes_have_names() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.name().parse(), Ok(scheme));
        }
        let error = "best".parse::<Scheme>().unwrap_err().to_string();
        assert!(error.starts_with("scheme \"best\" is unknown (allowed: pofs, bsip,"), "{error}");
    }
}
