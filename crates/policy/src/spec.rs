//! What is fair, as data: a chain of levels, each of which splits what it is given among its entities.
//!
//! ThemisIO §2.2.2 names the primitive policies and composes them. Deviations:
//! * `user-fair` and `group-fair` leave the inside of a user or group open in the paper. Here a chain that ends
//!   in `user` or `group` continues with `job`: equal parts to its jobs.
//! * Any entity may carry a weight by name; the paper has equal users and groups only.
//! * The paper believes what a job says of itself. Here jobs that are only claimed ([`JobInfo::within`]) count together as
//!   one job of one node of their user: in a chain without a level for users they have a level of their own below the last
//!   one, split as the last one splits. So whatever a user invents, everybody else has what they would have if he had
//!   said nothing (`tests/liars.rs`).

pub(crate) mod allocated;
pub(crate) mod latency;
pub(crate) mod rates;
pub(crate) mod scheme;
mod settings;
pub(crate) mod text;

use crate::spec::allocated::Allocated;
use crate::spec::latency::LatencyClass;
use crate::spec::rates::TokenBucket;
use crate::spec::scheme::{Coflow, FairFinish, Scheme};
use isonomia_units::JobInfo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What a level splits among.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entity {
    /// Groups (accounts, projects), equal unless weighted.
    Group,
    /// Users, equal unless weighted.
    User,
    /// Jobs, equal unless weighted. Ends the chain.
    Job,
    /// Jobs in proportion to their nodes. Ends the chain.
    Size,
    /// Jobs in proportion to their priority. Ends the chain.
    Priority,
}

/// A positive weight in millionths, so that sums of weights are exact; 0.000001 to 1000000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u64);

/// One level of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// What it splits among.
    pub entity: Entity,
    /// Weights by group, user, or job name; whoever is not named weighs 1. At a size or priority level they
    /// multiply the nodes or the priority.
    pub weights: BTreeMap<Arc<str>, Weight>,
}

/// A policy: `fifo`, a chain of levels from the outside in, or one of the policies with settings; and, beside it, a latency
/// class.
///
/// Read and written as text, also by serde. The canonical text, which `Display` gives, names every level once,
/// joined by `-then-`, with one `-fair` at the end: `user-fair` prints as `user-then-job-fair`, because that is
/// what it means here, and weights follow the word they belong to: `group{astro=3,bio=1}-then-job-fair`,
/// `job-fair{urgent=10}`. Reading also accepts `-fair` at each level and ThemisIO's spelling without `then`.
/// Settings stand in braces: `coflow{guarantee=0.8,order=attained,tree=user-then-size-fair}`. Whether shares are
/// [strict](Self::is_strict), and a latency class, stand behind all of it: `user-then-job-fair+strict+latency{p99=2ms,job:viz}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicySpec {
    scheme: Scheme,
    is_strict: bool,
    latency: Option<LatencyClass>,
}

/// How shares become turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draw {
    /// Weighted fair queueing with bounded anticipation: deterministic, and of far lower variance.
    #[default]
    VirtualTime,
    /// ThemisIO's statistical tokens.
    Lottery,
}

/// A draw that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a draw (allowed: virtual-time, lottery)")]
pub struct ParseDrawError(String);

impl Entity {
    /// Every entity, in the order messages list them.
    pub const ALL: [Self; 5] = [Self::Group, Self::User, Self::Job, Self::Size, Self::Priority];

    /// The word for it in a policy.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::User => "user",
            Self::Job => "job",
            Self::Size => "size",
            Self::Priority => "priority",
        }
    }

    /// Whether it splits among jobs, so that nothing can follow it.
    pub const fn ends_chain(self) -> bool {
        matches!(self, Self::Job | Self::Size | Self::Priority)
    }
}

impl Weight {
    /// The weight of whoever is not named.
    pub const ONE: Self = Self(1_000_000);
    /// The largest weight.
    pub const MAX: Self = Self(1_000_000_000_000);

    /// `micros` millionths, or `None` outside 1 to 10^12.
    pub const fn from_micros(micros: u64) -> Option<Self> {
        if micros == 0 || micros > Self::MAX.0 { None } else { Some(Self(micros)) }
    }

    /// In millionths.
    pub const fn micros(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl Level {
    /// A level without weights.
    pub fn new(entity: Entity) -> Self {
        Self { entity, weights: BTreeMap::new() }
    }

    /// The name under which `info` appears at this level.
    pub fn name_of<'a>(&self, info: &'a JobInfo) -> &'a Arc<str> {
        match self.entity {
            Entity::Group => &info.group,
            Entity::User => &info.user,
            Entity::Job | Entity::Size | Entity::Priority => &info.name,
        }
    }

    /// The weight of `info`'s entity at this level among its siblings, in millionths. Below 2^72.
    pub fn weight_of(&self, info: &JobInfo) -> u128 {
        let named = self.weights.get(self.name_of(info)).copied().unwrap_or(Weight::ONE);
        let factor = match self.entity {
            Entity::Size => info.nodes.max(1),
            Entity::Priority => info.priority.max(1),
            Entity::Group | Entity::User | Entity::Job => 1,
        };
        u128::from(named.0) * u128::from(factor)
    }

    /// The weight of all jobs together that are claimed within one proof: that of one job of one node and priority 1,
    /// under the name that is proven.
    pub(crate) fn weight_of_proof(&self, info: &JobInfo) -> u128 {
        u128::from(self.weights.get(info.proven_name()).copied().unwrap_or(Weight::ONE).0)
    }
}

/// Whether jobs that are only claimed need a level of their own below `levels`, so that they divide what is proven and do
/// not add to it. Inside a user's own share they may compete with his other jobs as they are.
pub(crate) fn bounds_claims(levels: &[Level]) -> bool {
    levels.iter().all(|level| level.entity != Entity::User)
}

/// One name for everything that is claimed within one proof. User names have no NUL in them.
pub(crate) fn proof_of(info: &JobInfo) -> Option<Arc<str>> {
    info.within.as_ref().map(|within| format!("{}\0{within}", info.user).into())
}

impl PolicySpec {
    /// The policy that owes nobody anything: arrival order.
    pub const fn fifo() -> Self {
        Self::from_scheme(Scheme::Fifo)
    }

    /// What it does.
    pub const fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Whether jobs have their parts of a device's time at any price: one that falls behind because its requests are one after the other
    /// has the device to itself until it has caught up, also where that gains it little and costs the others much. Only policies
    /// that divide time by a sharing tree at every moment can be so ([`Self::can_be_strict`]), and only [`Draw::VirtualTime`] heeds it.
    pub const fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Whether its shares can be strict: it divides a device's time by a sharing tree, at every moment.
    pub(crate) const fn can_be_strict(&self) -> bool {
        matches!(self.scheme, Scheme::Fair(_) | Scheme::Allocated(_))
    }

    /// The same policy with strict shares. The caller has checked that it [can be](Self::can_be_strict).
    pub(crate) fn with_strict_shares(self) -> Self {
        Self { is_strict: true, ..self }
    }

    /// Whose requests are answered soon, if anybody's are.
    pub const fn latency(&self) -> Option<&LatencyClass> {
        self.latency.as_ref()
    }

    /// The same policy with another latency class, or none.
    pub fn with_latency(self, latency: Option<LatencyClass>) -> Self {
        Self { latency, ..self }
    }

    /// The levels of its sharing tree from the outside in; empty for a policy that owes nobody a share.
    pub fn levels(&self) -> &[Level] {
        match &self.scheme {
            Scheme::Fair(levels)
            | Scheme::Coflow(Coflow { tree: levels, .. })
            | Scheme::FairFinish(FairFinish { tree: levels, .. })
            | Scheme::Allocated(Allocated { tree: levels, .. }) => levels,
            Scheme::Fifo | Scheme::TokenBucket(_) | Scheme::MClock(_) | Scheme::IoSets(_) | Scheme::Exclusive(_) => &[],
        }
    }

    /// The rates by rule, of a policy that has them.
    pub const fn rates(&self) -> Option<&TokenBucket> {
        match &self.scheme {
            Scheme::TokenBucket(rates) => Some(rates),
            _ => None,
        }
    }

    /// A policy of these rates with the latency class of this one; they are to be such as can be read.
    #[must_use]
    pub fn with_rates(self, rates: TokenBucket) -> Self {
        Self::from_scheme(Scheme::TokenBucket(rates)).with_latency(self.latency)
    }

    /// The directories that its rules look at, in the order of the bits of [`Nature::below`](crate::Nature::below).
    pub fn prefixes(&self) -> Vec<Arc<str>> {
        self.rates().map(TokenBucket::prefixes).unwrap_or_default()
    }

    /// Whether it divides the time that a device works for each job, so that what requests are charged is to follow the
    /// device. The others count in a unit of their own (bytes, for rates and for progress), which must not change, or serve
    /// in an order.
    pub const fn divides_time(&self) -> bool {
        matches!(self.scheme, Scheme::Fair(_) | Scheme::Allocated(_) | Scheme::Exclusive(_))
    }

    /// What divides a service that nobody has to himself: the sharing tree of a policy of exclusive phases, or the policy itself.
    pub fn without_phases(&self) -> Self {
        match &self.scheme {
            Scheme::Exclusive(settings) => Self::from_scheme(Scheme::Fair(settings.tree.clone())),
            _ => self.clone(),
        }
    }

    /// What the cluster's controller decides, if it decides this policy.
    pub const fn allocated(&self) -> Option<&Allocated> {
        match &self.scheme {
            Scheme::Allocated(allocated) => Some(allocated),
            _ => None,
        }
    }

    /// The caller has checked that the scheme is one that can be read: see [`Scheme`].
    pub(crate) const fn from_scheme(scheme: Scheme) -> Self {
        Self { scheme, is_strict: false, latency: None }
    }
}

impl From<PolicySpec> for String {
    fn from(spec: PolicySpec) -> Self {
        spec.to_string()
    }
}

impl FromStr for Draw {
    type Err = ParseDrawError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s.trim() {
            "virtual-time" => Ok(Self::VirtualTime),
            "lottery" => Ok(Self::Lottery),
            other => Err(ParseDrawError(other.chars().take(64).collect())),
        }
    }
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::VirtualTime => "virtual-time",
            Self::Lottery => "lottery",
        })
    }
}
