//! The policies that are more than a sharing tree, as data.

use crate::spec::allocated::Allocated;
use crate::spec::rates::TokenBucket;
use crate::spec::{Entity, Level, Weight, proof_of};
use isonomia_planning::PhaseRules;
use isonomia_units::{JobInfo, Nanos, Rate};
use std::sync::Arc;

/// What a policy does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Arrival order.
    Fifo,
    /// A sharing tree. The last level, and only the last, splits among jobs.
    Fair(Vec<Level>),
    /// A guaranteed part of a sharing tree's shares, and an order for the rest.
    Coflow(Coflow),
    /// One phase after the other, as a sharing tree would finish them.
    FairFinish(FairFinish),
    /// A sharing tree, divided over all targets of a cluster as its controller decides.
    Allocated(Allocated),
    /// Rates by rule.
    TokenBucket(TokenBucket),
    /// Reservations, limits, and weights by rule.
    MClock(Vec<Rule<Qos>>),
    /// Sets of jobs by the time between their I/O phases; rules declare that time.
    IoSets(Vec<Rule<Nanos>>),
    /// One application at a time, for a whole I/O phase.
    Exclusive(Exclusive),
}

/// `exclusive{order=…,lease=…,gap=…,tree=…}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclusive {
    /// Who is next, for how long at most, and what ends a phase.
    pub rules: PhaseRules,
    /// How an application's targets are divided among its own jobs, and among all while nobody decides who has them: the levels
    /// of a sharing tree, as in [`Scheme::Fair`].
    pub tree: Vec<Level>,
}

/// `coflow{guarantee=g,order=…,tree=…}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coflow {
    /// The part of its fair share that every active job keeps, at most [`Weight::ONE`].
    pub guarantee: Weight,
    /// Who gets the rest.
    pub order: Order,
    /// What is fair: the levels of a sharing tree, as in [`Scheme::Fair`].
    pub tree: Vec<Level>,
}

/// `fair-finish{guarantee=g,sizes=…,tree=…}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairFinish {
    /// The part of what fair sharing would have served that every job has at every moment, at most [`Weight::ONE`].
    pub guarantee: Weight,
    /// Where it is known from how long a phase will be.
    pub sizes: Sizes,
    /// What is fair: the levels of a sharing tree, as in [`Scheme::Fair`].
    pub tree: Vec<Level>,
}

/// Where it is known from how long an I/O phase will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// The job says it; if it does not, from its history.
    Declared,
    /// Expected by the phases of earlier jobs of the same user and name.
    History,
    /// It is not: the history only tells the class, a factor of [`CLASS_FACTOR`](crate::history::CLASS_FACTOR) wide.
    None,
}

/// Which job is served first beyond what is guaranteed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one that received least in its present phase.
    Attained,
    /// The one whose present phase takes longest for what it received.
    Slowdown,
    /// The one with least left of its present phase.
    Bottleneck,
}

/// Reservation, limit, and weight of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qos {
    /// The least service, in bytes per second.
    pub reservation: Option<Rate>,
    /// The most service, in bytes per second; not less than the reservation.
    pub limit: Option<Rate>,
    /// Part in what is left between the two.
    pub weight: Weight,
}

/// A value for the entities that a selector selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<T> {
    /// For whom.
    pub selector: Selector,
    /// What.
    pub value: T,
}

/// One group, user, or job by name, or each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// [`Entity::Group`], [`Entity::User`], or [`Entity::Job`].
    pub entity: Entity,
    /// `None` selects each of them, every one for itself.
    pub name: Option<Arc<str>>,
}

impl Order {
    /// Every order, in the order messages list them.
    pub const ALL: [Self; 3] = [Self::Attained, Self::Slowdown, Self::Bottleneck];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Attained => "attained",
            Self::Slowdown => "slowdown",
            Self::Bottleneck => "bottleneck",
        }
    }
}

impl Sizes {
    /// All, in the order messages list them.
    pub const ALL: [Self; 3] = [Self::Declared, Self::History, Self::None];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::History => "history",
            Self::None => "none",
        }
    }
}

impl FairFinish {
    /// The guarantee unless told otherwise: it costs phases of known size next to nothing.
    pub const GUARANTEE_DEFAULT: Weight = Weight::from_micros(200_000).expect("constant");
}

impl Exclusive {
    /// The longest grant unless told otherwise: longer than most phases.
    pub const LEASE_DEFAULT: Nanos = Nanos::from_secs(60);
    /// The shortest.
    pub const LEASE_MIN: Nanos = Nanos::from_millis(100);
    /// The longest that can be asked for.
    pub const LEASE_MAX: Nanos = Nanos::from_secs(3_600);
    /// What ends a phase unless told otherwise: long against the pauses in one, on a busy machine, too.
    pub const GAP_DEFAULT: Nanos = Nanos::from_millis(100);
    /// The shortest.
    pub const GAP_MIN: Nanos = Nanos::from_millis(1);
}

impl Coflow {
    /// The guarantee unless told otherwise: nobody is slowed down by more than a quarter.
    pub const GUARANTEE_DEFAULT: Weight = Weight::from_micros(800_000).expect("constant");
}

impl Qos {
    /// What a class is due that no rule selects.
    pub const DEFAULT: Self = Self { reservation: None, limit: None, weight: Weight::ONE };
}

impl Selector {
    /// The name of `info` at the selector's level, as far as it is believed.
    pub fn name_of<'a>(&self, info: &'a JobInfo) -> &'a Arc<str> {
        match self.entity {
            Entity::Group => &info.group,
            Entity::User => &info.user,
            Entity::Job | Entity::Size | Entity::Priority => info.proven_name(),
        }
    }

    /// What jobs have in common that the selector, which selects them, makes one class of.
    pub(crate) fn class_of(&self, info: &JobInfo) -> Arc<str> {
        let is_each_job = self.name.is_none() && self.entity == Entity::Job;
        proof_of(info).filter(|_| is_each_job).unwrap_or_else(|| Arc::clone(self.name_of(info)))
    }

    /// Whether `info` is one of those selected.
    pub fn selects(&self, info: &JobInfo) -> bool {
        self.name.as_ref().is_none_or(|name| name == self.name_of(info))
    }
}
