//! The policies that the cluster's controller decides: GIFT and the schemes that it is compared with.
//!
//! ```text
//! policy   = ( "gift" | "pofs" | "bsip" | "mbw" | "tsa" | "esa" | "tmf" | "rnd" ) [ "{" setting { "," setting } "}" ]
//! all      = "decide=" time | "tree=" chain of levels
//! gift     = "throttle=" part | "redemption=" part | "window=" coupons | "system-window=" coupons | "period=" time
//!          | "budget=" ( node-hours | "none" ) | "identity=" field { "+" field }
//! field    = "executable" | "user" | "account" | "job"
//! others   = "throttle=" part                                           tsa, esa, tmf, rnd
//! ```
//!
//! What they decide is computed elsewhere, over all targets. A target alone divides by the tree, and by what is decided
//! once it is told.

use crate::spec::scheme::Scheme;
use crate::spec::settings::{Settings, TIMES, exact};
use crate::spec::text::{ParsePolicyError, write_chain};
use crate::spec::{Entity, Level, Weight};
use isonomia_units::Nanos;
use std::collections::BTreeSet;
use std::fmt;

/// The least time between two decisions,
pub const DECIDE_MIN: Nanos = Nanos::from_millis(100);
/// and the greatest.
pub const DECIDE_MAX: Nanos = Nanos::from_secs(600);
/// The shortest regret period,
const PERIOD_MIN: Nanos = Nanos::from_secs(1);
/// and the longest.
const PERIOD_MAX: Nanos = Nanos::from_secs(366 * 86_400);
/// Coupons of a window at most.
const WINDOW_MAX: u64 = 1_000_000_000_000;
/// Node-hours of a budget at most.
const BUDGET_MAX: u64 = 1_000_000_000_000;

const GIFT_ALLOWED: &str = "throttle=0.000001 to 1, redemption=0.000001 to 1, window=COUPONS, system-window=COUPONS, \
                            period=1s to 8784h, budget=NODE-HOURS or none, identity=any of executable, user, account, job \
                            joined by +, decide=100ms to 600s, tree=a policy that ends in -fair";
const RULE_ALLOWED: &str = "throttle=0.000001 to 1, decide=100ms to 600s, tree=a policy that ends in -fair";
const OTHER_ALLOWED: &str = "decide=100ms to 600s, tree=a policy that ends in -fair";

/// A policy that the cluster's controller decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// How.
    pub method: Method,
    /// Between two decisions; what the cluster file says if there is nothing.
    pub decide: Option<Nanos>,
    /// What is fair: the levels of a sharing tree, as in [`Scheme::Fair`].
    pub tree: Vec<Level>,
}

/// How the controller decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// It does not: each target divides by the tree for itself.
    Pofs,
    /// Synchronous progress at the fair share of the most contended target.
    Bsip,
    /// The greatest effective bandwidth.
    Mbw,
    /// Throttling by rule.
    Throttle {
        /// Whom.
        whom: Throttled,
        /// The part of the fair share that is taken.
        part: Weight,
    },
    /// Throttle and reward.
    Gift(Gift),
}

/// Whom a rule throttles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttled {
    /// TSA: those at few targets.
    Small,
    /// ESA: those at many.
    Large,
    /// TMF: those that have run most often.
    MostFrequent,
    /// RND: anybody.
    Random,
}

/// The settings of GIFT; the default is the paper's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gift {
    /// The greatest part of its fair share that an application is throttled by (B_thres), at most [`Weight::ONE`].
    pub throttle: Weight,
    /// The least redemption rate at which an application, or the system, may be throttled (τ), at most [`Weight::ONE`].
    pub redemption: Weight,
    /// The length of an application's window in coupons (N).
    pub window: u64,
    /// The length of the system's.
    pub system_window: u64,
    /// After this time coupons that are still outstanding are compensated.
    pub period: Nanos,
    /// The most node-hours that one period may cost.
    pub budget: Option<u64>,
    /// What two runs of one application have in common. Not empty.
    pub identity: BTreeSet<Trait>,
}

/// What an application is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trait {
    /// The program that runs.
    Executable,
    /// Whose job it is.
    User,
    /// The account (group, project) of the job.
    Account,
    /// The job's name.
    Job,
}

impl Trait {
    /// All, in the order in which they are printed.
    pub const ALL: [Self; 4] = [Self::Executable, Self::User, Self::Account, Self::Job];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Executable => "executable",
            Self::User => "user",
            Self::Account => "account",
            Self::Job => "job",
        }
    }
}

impl Default for Gift {
    fn default() -> Self {
        Self {
            throttle: part_of_one(100_000),
            redemption: part_of_one(800_000),
            window: 250_000,
            system_window: 250_000,
            period: Nanos::from_secs(86_400),
            budget: None,
            identity: [Trait::User, Trait::Job].into(),
        }
    }
}

/// Of a constant.
const fn part_of_one(micros: u64) -> Weight {
    Weight::from_micros(micros).expect("constant")
}

impl Method {
    /// The policy's word.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Pofs => "pofs",
            Self::Bsip => "bsip",
            Self::Mbw => "mbw",
            Self::Throttle { whom: Throttled::Small, .. } => "tsa",
            Self::Throttle { whom: Throttled::Large, .. } => "esa",
            Self::Throttle { whom: Throttled::MostFrequent, .. } => "tmf",
            Self::Throttle { whom: Throttled::Random, .. } => "rnd",
            Self::Gift(_) => "gift",
        }
    }

    fn of(word: &str) -> Option<Self> {
        let throttle = |whom| Self::Throttle { whom, part: Gift::default().throttle };
        Some(match word {
            "pofs" => Self::Pofs,
            "bsip" => Self::Bsip,
            "mbw" => Self::Mbw,
            "tsa" => throttle(Throttled::Small),
            "esa" => throttle(Throttled::Large),
            "tmf" => throttle(Throttled::MostFrequent),
            "rnd" => throttle(Throttled::Random),
            "gift" => Self::Gift(Gift::default()),
            _ => return None,
        })
    }

    const fn allowed(&self) -> &'static str {
        match self {
            Self::Pofs | Self::Bsip | Self::Mbw => OTHER_ALLOWED,
            Self::Throttle { .. } => RULE_ALLOWED,
            Self::Gift(_) => GIFT_ALLOWED,
        }
    }
}

/// Reads the policy called `word` with what follows; `None` if there is none.
pub(crate) fn read(word: &str, braces: &str) -> Option<Result<Scheme, ParsePolicyError>> {
    let method = Method::of(word)?;
    let settings = Settings::new(method.word(), method.allowed(), braces);
    Some(settings.and_then(|settings| read_settings(&settings, method)))
}

fn read_settings(settings: &Settings, mut method: Method) -> Result<Scheme, ParsePolicyError> {
    let (mut decide, mut tree) = (None, None);
    let mut seen = BTreeSet::new();
    for item in &settings.items {
        let (key, value) = settings.pair(item)?;
        if !seen.insert(key) {
            return Err(settings.bad(item, "it is set twice"));
        }
        match (key, &mut method) {
            ("decide", _) => decide = Some(time(settings, item, value, DECIDE_MIN, DECIDE_MAX)?),
            ("tree", _) => tree = Some(settings.tree(item, value)?),
            ("throttle", Method::Throttle { part, .. }) => *part = settings.part(item, value)?,
            (_, Method::Gift(gift)) => read_gift(settings, item, (key, value), gift)?,
            _ => return Err(settings.bad(item, "no setting has this name")),
        }
    }
    let tree = tree.unwrap_or_else(|| vec![Level::new(Entity::Job)]);
    Ok(Scheme::Allocated(Allocated { method, decide, tree }))
}

fn read_gift(
    settings: &Settings,
    item: &str,
    (key, value): (&str, &str),
    gift: &mut Gift,
) -> Result<(), ParsePolicyError> {
    match key {
        "throttle" => gift.throttle = settings.part(item, value)?,
        "redemption" => gift.redemption = settings.part(item, value)?,
        "window" => gift.window = whole(settings, item, value, WINDOW_MAX)?,
        "system-window" => gift.system_window = whole(settings, item, value, WINDOW_MAX)?,
        "period" => gift.period = time(settings, item, value, PERIOD_MIN, PERIOD_MAX)?,
        "budget" if value == "none" => gift.budget = None,
        "budget" => gift.budget = Some(whole(settings, item, value, BUDGET_MAX)?),
        "identity" => {
            let field = |word: &str| Trait::ALL.into_iter().find(|field| field.word() == word.trim());
            let fields =
                value.split('+').map(|word| field(word).ok_or_else(|| settings.bad(item, "there is no such field")));
            gift.identity = fields.collect::<Result<_, _>>()?;
        }
        _ => return Err(settings.bad(item, "no setting has this name")),
    }
    Ok(())
}

fn time(settings: &Settings, item: &str, value: &str, least: Nanos, most: Nanos) -> Result<Nanos, ParsePolicyError> {
    let time: Nanos = settings.quantity(value)?;
    if (least..=most).contains(&time) { Ok(time) } else { Err(settings.bad(item, "it is out of range")) }
}

/// A whole number from 1 on.
fn whole(settings: &Settings, item: &str, value: &str, most: u64) -> Result<u64, ParsePolicyError> {
    let number = value.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| settings.bad(item, format_args!("it is no whole number from 1 to {most}")))
}

impl fmt::Display for Allocated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{", self.method.word())?;
        match &self.method {
            Method::Pofs | Method::Bsip | Method::Mbw => {}
            Method::Throttle { part, .. } => write!(f, "throttle={part},")?,
            Method::Gift(gift) => {
                let Gift { throttle, redemption, window, system_window, period, budget, identity } = gift;
                write!(
                    f,
                    "throttle={throttle},redemption={redemption},window={window},system-window={system_window},"
                )?;
                write!(f, "period={},budget=", exact(period.0, &TIMES))?;
                match budget {
                    Some(hours) => write!(f, "{hours},")?,
                    None => f.write_str("none,")?,
                }
                let words: Vec<_> = identity.iter().map(|field| field.word()).collect();
                write!(f, "identity={},", words.join("+"))?;
            }
        }
        if let Some(decide) = self.decide {
            write!(f, "decide={},", exact(decide.0, &TIMES))?;
        }
        f.write_str("tree=")?;
        write_chain(f, &self.tree)?;
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use crate::PolicySpec;

    #[test]
    fn every_spelling_has_one_canonical_form() {
        for (text, expected) in [
            ("pofs", "pofs{tree=job-fair}"),
            ("bsip{tree=user-size-fair,decide=1s}", "bsip{decide=1s,tree=user-then-size-fair}"),
            ("mbw{decide = 600s}+latency{p99=2ms,job:viz}", "mbw{decide=600s,tree=job-fair}+latency{p99=2ms,job:viz}"),
            ("tsa", "tsa{throttle=0.1,tree=job-fair}"),
            ("esa{throttle=0.3}", "esa{throttle=0.3,tree=job-fair}"),
            ("tmf{}", ""),
            ("rnd{throttle=1,decide=100ms}", "rnd{throttle=1,decide=100ms,tree=job-fair}"),
            (
                "gift",
                "gift{throttle=0.1,redemption=0.8,window=250000,system-window=250000,period=86400s,budget=none,\
                 identity=user+job,tree=job-fair}",
            ),
            (
                "gift{ budget=40, identity=job + executable,period=1h,window=9,system-window=10,redemption=1,throttle=0.5}",
                "gift{throttle=0.5,redemption=1,window=9,system-window=10,period=3600s,budget=40,\
                 identity=executable+job,tree=job-fair}",
            ),
        ] {
            if expected.is_empty() {
                assert!(text.parse::<PolicySpec>().unwrap_err().to_string().contains("no equals sign"));
                continue;
            }
            let spec = text.parse::<PolicySpec>().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(spec.to_string(), expected, "{text}");
            assert_eq!(expected.parse(), Ok(spec));
        }
    }

    #[test]
    fn names_the_offending_setting_and_what_is_allowed() {
        for (text, parts) in [
            ("gift{throttle=0}", vec!["\"throttle=0\" is not a setting of gift", "part of one", "identity=any of"]),
            ("gift{throttle=2}", vec!["part of one"]),
            ("gift{window=0}", vec!["\"window=0\"", "whole number from 1 to 1000000000000"]),
            ("gift{budget=1.5}", vec!["\"budget=1.5\"", "budget=NODE-HOURS or none"]),
            ("gift{period=0s}", vec!["out of range", "1s to 8784h"]),
            ("gift{identity=}", vec!["no such field"]),
            ("gift{identity=user+host}", vec!["\"identity=user+host\"", "no such field"]),
            ("gift{decide=99ms}", vec!["out of range", "decide=100ms to 600s"]),
            ("gift{decide=1x}", vec!["\"1x\""]),
            ("gift{throttle=0.1,throttle=0.1}", vec!["set twice"]),
            ("gift{order=attained}", vec!["no setting has this name"]),
            ("bsip{throttle=0.1}", vec!["setting of bsip", "no setting has this name"]),
            ("tsa{redemption=0.1}", vec!["setting of tsa", "throttle=0.000001 to 1"]),
            ("mbw{tree=fifo}", vec!["\"tree=fifo\"", "\"fifo\" is none of group"]),
            ("gift{decide=601s", vec!["closing brace is missing"]),
        ] {
            let message = text.parse::<PolicySpec>().unwrap_err().to_string();
            for part in parts {
                assert!(message.contains(part), "{text:?}: {message:?} lacks {part:?}");
            }
        }
    }
}
