//! The allocation schemes under one roof: the controller of running servers and the simulation have the same one.

use crate::{
    AdapTbf, AdapTbfConfig, Allocation, BadGuarantee, BadReclaim, Calciom, Coflow, CoflowError, FairFinish, Gift,
    GiftConfig, GiftConfigError, Ledger, Order, Problem, ProgramError, Progress, Rule, RuleThrottle, Strategy, Targets,
    UnknownRemaining, bsip, mbw, pofs, token_bucket,
};
use isonomia_units::{Nanos, Rate};
use std::sync::Arc;

/// The names of all schemes.
pub const SCHEMES: [&str; 15] = [
    "pofs",
    "bsip",
    "mbw",
    "tsa",
    "esa",
    "tmf",
    "rnd",
    "gift",
    "tbf",
    "adaptbf",
    "calciom",
    "coflow",
    "fair-finish",
    "srpt",
    "fcfs",
];

/// Where it is known from how long an I/O phase will be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// The application says it when the phase begins.
    #[default]
    Declared,
    /// Expected by its earlier phases.
    History,
    /// It is not.
    None,
}

/// Of what system fair finish keeps the clock: what fair sharing would have served of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Of the phases that come, when they come.
    #[default]
    Open,
    /// The same, but an application's next phase begins when fair sharing would have ended the one before.
    Accounts,
    /// Of the closed system: it begins as long after that as the application took between the two. At each change only.
    Closed,
    /// Of the whole system with its nodes: it begins when it did in a run under fair sharing, which has to be known before. At each
    /// change only.
    Replayed,
}

impl Clock {
    /// Whether a [`ClosedClock`](crate::ClosedClock) leads the clocks of all targets.
    pub fn is_led(self) -> bool {
        matches!(self, Self::Closed | Self::Replayed)
    }
}

/// A guarantee is checked with this bandwidth; any would do.
const UNIT: Rate = match Rate::new(1) {
    Some(rate) => rate,
    None => unreachable!(),
};

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SchemeSpec {
    /// Each target is shared fairly for itself (GIFT §2).
    Pofs(Progress),
    /// Synchronous progress at the share of the most contended target (GIFT §2).
    Bsip,
    /// The greatest effective bandwidth (GIFT §2).
    Mbw,
    /// Throttling by rule (GIFT §4).
    Rule {
        /// Whom.
        rule: Rule,
        /// By how much at most.
        b_thres: f64,
        /// Of the random rule.
        seed: u64,
    },
    /// Throttle and reward (GIFT §3). With `b_thres` 0 nobody is throttled: the linear program only fills gaps.
    Gift(GiftConfig),
    /// Token buckets with rates in proportion to weights.
    TokenBucket(Progress),
    /// Token buckets with rates by priority, whose unused tokens are lent.
    AdapTbf(AdapTbfConfig),
    /// Applications that agree on whose phase goes first.
    Calciom {
        /// How they agree.
        strategy: Strategy,
        /// The model of progress where they share.
        progress: Progress,
    },
    /// Guaranteed shares, and the rest in an order.
    Coflow(Coflow),
    /// One after the other, in the order in which fair sharing would finish.
    FairFinish {
        /// The part of what fair sharing would have served that everybody has at every moment, 0 to 1.
        guarantee: f64,
        /// Where sizes come from.
        sizes: Sizes,
        /// What it takes for fair sharing.
        clock: Clock,
    },
    /// Each target serves the part with the least left first, which it has to know. At each change only.
    ShortestFirst,
    /// Each target serves one part after the other as they come. At each change only.
    FirstCome,
}

/// A scheme at work: what [`SchemeSpec::start`] makes.
#[derive(Debug)]
pub enum Scheme {
    /// See [`SchemeSpec::Pofs`].
    Pofs(Progress),
    /// See [`SchemeSpec::Bsip`].
    Bsip,
    /// See [`SchemeSpec::Mbw`].
    Mbw,
    /// See [`SchemeSpec::Rule`].
    Rule(Rule, RuleThrottle),
    /// See [`SchemeSpec::Gift`].
    Gift(Box<Gift>),
    /// See [`SchemeSpec::TokenBucket`].
    TokenBucket(Progress),
    /// See [`SchemeSpec::AdapTbf`].
    AdapTbf(Box<AdapTbf>),
    /// See [`SchemeSpec::Calciom`].
    Calciom(Box<Calciom>),
    /// See [`SchemeSpec::Coflow`].
    Coflow(Coflow),
    /// See [`SchemeSpec::FairFinish`].
    FairFinish(Box<FairFinish>),
}

/// A scheme could not decide.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SchemeError {
    /// A coflow order lacks what it needs.
    #[error(transparent)]
    Coflow(#[from] CoflowError),
    /// What AdapTBF reclaims is out of its range.
    #[error(transparent)]
    Reclaim(#[from] BadReclaim),
    /// CALCioM's choice lacks what it needs.
    #[error(transparent)]
    Calciom(#[from] UnknownRemaining),
    /// A guarantee is out of its range.
    #[error(transparent)]
    Guarantee(#[from] BadGuarantee),
    /// The linear program was not solved.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A parameter of GIFT's is out of its range.
    #[error(transparent)]
    GiftConfig(#[from] GiftConfigError),
    /// It decides at each change only.
    #[error("it decides at each change (allowed: decisions = \"event\")")]
    Interval,
    /// What a scheme of one's own says.
    #[error("{0}")]
    Own(String),
}

/// Who decides.
pub trait Decide {
    /// Divides every target at `now`, which never runs backwards, among applications that have something to do at their
    /// targets. What is decided holds until the next call.
    ///
    /// # Errors
    /// It cannot decide, [`SchemeError::Own`].
    fn allocate(&mut self, now: Nanos, problem: &Problem) -> Result<Allocation, SchemeError>;

    /// Whether the same applications on the same targets get the same rates again, whatever happened since; then it is
    /// not asked again.
    fn is_steady(&self) -> bool {
        false
    }

    /// When the last decision has to be made anew although nobody comes or is done, if decisions are made at each change.
    fn next_change(&self) -> Option<Nanos> {
        None
    }

    /// Nobody is in I/O since now.
    fn rest(&mut self, _now: Nanos, _targets: &Arc<Targets>) {}

    /// GIFT's accounts.
    fn ledger(&self) -> Option<&Ledger> {
        None
    }
}

/// Parameters that only some schemes have, as they are written beside a scheme's name.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// The model of progress, for POFS, token buckets, AdapTBF and CALCioM.
    pub progress: Progress,
    /// GIFT's, and those of the rules.
    pub gift: GiftConfig,
    /// AdapTBF's, its progress aside.
    pub adaptbf: AdapTbfConfig,
    /// Of CALCioM.
    pub strategy: Strategy,
    /// Of coflow and fair finish.
    pub guarantee: f64,
    /// Of coflow.
    pub order: Order,
    /// Of the random rule.
    pub seed: u64,
}

impl SchemeSpec {
    /// Whether it decides at each change, and can at nothing else.
    pub fn is_by_event(&self) -> bool {
        match self {
            Self::ShortestFirst | Self::FirstCome => true,
            Self::FairFinish { clock, .. } => clock.is_led(),
            _ => false,
        }
    }

    /// The scheme called `name`; `None` if there is none.
    ///
    /// # Errors
    /// A parameter of it is out of its range.
    pub fn named(name: &str, parameters: &Parameters) -> Option<Result<Self, SchemeError>> {
        let rule = |rule| Self::Rule { rule, b_thres: parameters.gift.b_thres, seed: parameters.seed };
        Some(Ok(match name {
            "pofs" => Self::Pofs(parameters.progress),
            "bsip" => Self::Bsip,
            "mbw" => Self::Mbw,
            "tsa" => rule(Rule::Small),
            "esa" => rule(Rule::Large),
            "tmf" => rule(Rule::MostFrequent),
            "rnd" => rule(Rule::Random),
            "gift" => match Gift::new(parameters.gift) {
                Ok(_) => Self::Gift(parameters.gift),
                Err(error) => return Some(Err(error.into())),
            },
            "tbf" => Self::TokenBucket(parameters.progress),
            "adaptbf" => {
                let config = AdapTbfConfig { progress: parameters.progress, ..parameters.adaptbf };
                match AdapTbf::new(config, UNIT) {
                    Ok(_) => Self::AdapTbf(config),
                    Err(error) => return Some(Err(error.into())),
                }
            }
            "calciom" => Self::Calciom { strategy: parameters.strategy, progress: parameters.progress },
            "coflow" => match Coflow::new(parameters.guarantee, parameters.order) {
                Ok(coflow) => Self::Coflow(coflow),
                Err(error) => return Some(Err(error.into())),
            },
            "fair-finish" => match FairFinish::new(parameters.guarantee, UNIT) {
                Ok(_) => Self::FairFinish {
                    guarantee: parameters.guarantee,
                    sizes: Sizes::default(),
                    clock: Clock::default(),
                },
                Err(error) => return Some(Err(error.into())),
            },
            "srpt" => Self::ShortestFirst,
            "fcfs" => Self::FirstCome,
            _ => return None,
        }))
    }

    /// Where the scheme has the sizes of phases from.
    pub fn sizes(&self) -> Sizes {
        match self {
            Self::FairFinish { sizes, .. } => *sizes,
            _ => Sizes::Declared,
        }
    }

    /// The scheme, with nothing decided; `bandwidth` is that of each target, for those that go by time.
    ///
    /// # Errors
    /// A parameter is out of its range, or the scheme decides at each change only.
    pub fn start(&self, bandwidth: Rate) -> Result<Scheme, SchemeError> {
        Ok(match *self {
            Self::Pofs(progress) => Scheme::Pofs(progress),
            Self::Bsip => Scheme::Bsip,
            Self::Mbw => Scheme::Mbw,
            Self::Rule { rule, b_thres, seed } => Scheme::Rule(rule, RuleThrottle::new(rule, b_thres, seed)),
            Self::Gift(config) => Scheme::Gift(Box::new(Gift::new(config)?)),
            Self::TokenBucket(progress) => Scheme::TokenBucket(progress),
            Self::AdapTbf(config) => Scheme::AdapTbf(Box::new(AdapTbf::new(config, bandwidth)?)),
            Self::Calciom { strategy, progress } => Scheme::Calciom(Box::new(Calciom::new(strategy, progress))),
            Self::Coflow(coflow) => Scheme::Coflow(coflow),
            Self::ShortestFirst | Self::FirstCome => return Err(SchemeError::Interval),
            Self::FairFinish { clock, .. } if clock.is_led() => return Err(SchemeError::Interval),
            Self::FairFinish { guarantee, clock, .. } => {
                let scheme = FairFinish::new(guarantee, bandwidth)?;
                Scheme::FairFinish(Box::new(if clock == Clock::Accounts { scheme.with_accounts() } else { scheme }))
            }
        })
    }
}

impl Decide for Scheme {
    fn allocate(&mut self, now: Nanos, problem: &Problem) -> Result<Allocation, SchemeError> {
        Ok(match self {
            Self::Pofs(progress) => pofs(problem, *progress),
            Self::Bsip => bsip(problem),
            Self::Mbw => mbw(problem)?,
            Self::Rule(_, throttle) => throttle.decide(problem),
            Self::Gift(gift) => gift.decide(now, problem)?,
            Self::TokenBucket(progress) => token_bucket(problem, *progress),
            Self::AdapTbf(scheme) => scheme.allocate(now, problem),
            Self::Calciom(scheme) => scheme.allocate(problem)?,
            Self::Coflow(coflow) => coflow.allocate(problem)?,
            Self::FairFinish(scheme) => scheme.allocate(now, problem),
        })
    }

    fn is_steady(&self) -> bool {
        match self {
            Self::Pofs(_) | Self::Bsip | Self::Mbw | Self::TokenBucket(_) => true,
            Self::Rule(rule, _) => *rule != Rule::Random,
            Self::Gift(gift) => gift.config().b_thres == 0.0,
            Self::AdapTbf(_) | Self::Calciom(_) | Self::Coflow(_) | Self::FairFinish(_) => false,
        }
    }

    fn rest(&mut self, now: Nanos, targets: &Arc<Targets>) {
        let nobody = || Problem::new(targets.clone(), Vec::new()).expect("without applications nothing is wrong");
        match self {
            Self::FairFinish(scheme) => _ = scheme.allocate(now, &nobody()),
            Self::AdapTbf(scheme) => _ = scheme.allocate(now, &nobody()),
            _ => {}
        }
    }

    fn next_change(&self) -> Option<Nanos> {
        match self {
            Self::FairFinish(scheme) => scheme.next_change(),
            _ => None,
        }
    }

    fn ledger(&self) -> Option<&Ledger> {
        match self {
            Self::Gift(gift) => Some(gift.ledger()),
            _ => None,
        }
    }
}
