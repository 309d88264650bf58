//! What is to be allocated: targets with their capacities, and the applications that do I/O on them.
//!
//! Everything is addressed by name. A [`Problem`] keeps its targets and applications in the order of their names,
//! whatever order they came in, so that no solver can depend on it.

use isonomia_units::{Bytes, Nanos};
use std::sync::Arc;

/// Why targets or applications make no problem that can be solved.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProblemError {
    /// Two targets with one name.
    #[error("target `{0}` is there twice")]
    DuplicateTarget(Arc<str>),
    /// A capacity that is none.
    #[error("target `{target}`: capacity {capacity} (allowed: a positive number, 1 for a whole target)")]
    BadCapacity {
        /// The target.
        target: Arc<str>,
        /// What was given.
        capacity: f64,
    },
    /// A target that was not declared.
    #[error("application `{app}`: target `{target}` is unknown")]
    UnknownTarget {
        /// The application.
        app: Arc<str>,
        /// What was given.
        target: Arc<str>,
    },
    /// Two applications with one name.
    #[error("application `{0}` is there twice")]
    DuplicateApp(Arc<str>),
    /// An application that names a target twice.
    #[error("application `{app}`: target `{target}` is there twice")]
    DuplicateDemand {
        /// The application.
        app: Arc<str>,
        /// The target.
        target: Arc<str>,
    },
    /// An application that wants nothing.
    #[error("application `{0}` has nothing to do at any target: leave it out")]
    NoDemand(Arc<str>),
    /// A weight that is none.
    #[error("application `{app}`: weight {weight} (allowed: a positive number)")]
    BadWeight {
        /// The application.
        app: Arc<str>,
        /// What was given.
        weight: f64,
    },
    /// A rate that is none.
    #[error("application `{app}`: rate {rate} (allowed: a positive number, in shares of one target)")]
    BadRate {
        /// The application.
        app: Arc<str>,
        /// What was given.
        rate: f64,
    },
    /// A slowdown that is none.
    #[error("application `{app}`: slowdown {slowdown} (allowed: a number that is not negative)")]
    BadSlowdown {
        /// The application.
        app: Arc<str>,
        /// What was given.
        slowdown: f64,
    },
}

/// A target among [`Targets`]: what [`Targets::index`] gave for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetIndex(pub(crate) u32);

/// The storage targets, in the order of their names.
#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    names: Vec<Arc<str>>,
    capacities: Vec<f64>,
}

/// What an application does at one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The target.
    pub target: TargetIndex,
    /// Bytes that are left of the I/O phase there, if that is known. With none left the application does not use
    /// the target any more.
    pub remaining: Option<Bytes>,
}

/// An application that does I/O: one that has requests at every target of its demands, and goes on only when all
/// of them have served it (GIFT §2, synchronous I/O progress).
#[derive(Clone, Debug, PartialEq)]
pub struct App {
    /// The name, unique in the problem. Under GIFT it is the recurring application's: coupons are kept by it.
    pub name: Arc<str>,
    /// Whose application it is, where coupons are kept by user (GIFT §3.3, last paragraph).
    pub user: Option<Arc<str>>,
    /// The targets in use, each once.
    pub demands: Vec<Demand>,
    /// Weight of its fair share, more than 0 (GIFT §3.3, last paragraph).
    pub weight: f64,
    /// Compute nodes, at least 1: what regret is counted in (GIFT §3.2).
    pub nodes: u32,
    /// Whether it may be throttled; `None` lets GIFT find out by its redemption rate (GIFT §3.2).
    pub throttle_friendly: Option<bool>,
    /// How often it has run, for [`Rule::MostFrequent`](crate::Rule::MostFrequent).
    pub runs: u64,
    /// Service received in this I/O phase, for [`Order::Attained`](crate::Order::Attained).
    pub attained: Bytes,
    /// How many times longer this I/O phase takes than it should, for [`Order::Slowdown`](crate::Order::Slowdown).
    pub slowdown: f64,
    /// The rate of its token bucket in shares of one target, for [`token_bucket`](crate::token_bucket()); its weight
    /// if `None`.
    pub rate: Option<f64>,
    /// Whether its rate is a hard one (Lustre's hard token compensation), for [`token_bucket`](crate::token_bucket()).
    pub is_hard: bool,
    /// When this I/O phase began, for [`FairFinish`](crate::FairFinish): it tells one phase from the next.
    pub began: Nanos,
}

/// Applications on targets.
///
/// Complexity of making one: O(d log d) for d demands.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    targets: Arc<Targets>,
    apps: Vec<App>,
    pub(crate) members: Members,
}

/// Which application is at which target, from both sides; positions are those of the names' order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Members {
    app_start: Vec<u32>,
    app_targets: Vec<u32>,
    target_start: Vec<u32>,
    target_apps: Vec<u32>,
}

impl Targets {
    /// Targets with names and capacities, 1 being the bandwidth that shares and coupons are counted in.
    pub fn new<N: Into<Arc<str>>>(targets: impl IntoIterator<Item = (N, f64)>) -> Result<Self, ProblemError> {
        let mut targets: Vec<(Arc<str>, f64)> = targets.into_iter().map(|(name, c)| (name.into(), c)).collect();
        targets.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(pair) = targets.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(ProblemError::DuplicateTarget(pair[0].0.clone()));
        }
        for (target, capacity) in &targets {
            if !(capacity.is_finite() && *capacity > 0.0) {
                return Err(ProblemError::BadCapacity { target: target.clone(), capacity: *capacity });
            }
        }
        let (names, capacities) = targets.into_iter().unzip();
        Ok(Self { names, capacities })
    }

    /// The target called `name`. O(log n).
    pub fn index(&self, name: &str) -> Option<TargetIndex> {
        self.names.binary_search_by(|other| other.as_ref().cmp(name)).ok().map(|at| TargetIndex(at as u32))
    }

    /// The name of `target`.
    pub fn name(&self, target: TargetIndex) -> &Arc<str> {
        &self.names[target.0 as usize]
    }

    /// The capacity of `target`.
    pub fn capacity(&self, target: TargetIndex) -> f64 {
        self.capacities[target.0 as usize]
    }

    /// All targets, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = TargetIndex> + use<> {
        (0..self.names.len() as u32).map(TargetIndex)
    }

    /// How many targets there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The position of `target` in the order of the names, from 0.
    pub fn position(&self, target: TargetIndex) -> usize {
        target.0 as usize
    }

    pub(crate) fn capacities(&self) -> &[f64] {
        &self.capacities
    }
}

impl App {
    /// An application of weight 1 and one node at `targets`, about which nothing else is known.
    pub fn new(name: impl Into<Arc<str>>, targets: impl IntoIterator<Item = TargetIndex>) -> Self {
        Self {
            name: name.into(),
            user: None,
            demands: targets.into_iter().map(|target| Demand { target, remaining: None }).collect(),
            weight: 1.0,
            nodes: 1,
            throttle_friendly: None,
            runs: 1,
            attained: Bytes(0),
            slowdown: 1.0,
            rate: None,
            is_hard: false,
            began: Nanos::ZERO,
        }
    }

    /// Like [`App::new`], with targets by name.
    pub fn at(name: impl Into<Arc<str>>, targets: &Targets, at: &[&str]) -> Result<Self, ProblemError> {
        let name = name.into();
        let index = |target: &&str| {
            let unknown = || ProblemError::UnknownTarget { app: name.clone(), target: (*target).into() };
            targets.index(target).ok_or_else(unknown)
        };
        let found: Vec<TargetIndex> = at.iter().map(index).collect::<Result<_, _>>()?;
        Ok(Self::new(name, found))
    }

    fn check(&self, targets: &Targets) -> Result<(), ProblemError> {
        let app = || self.name.clone();
        if !(self.weight.is_finite() && self.weight > 0.0) {
            return Err(ProblemError::BadWeight { app: app(), weight: self.weight });
        }
        if let Some(rate) = self.rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err(ProblemError::BadRate { app: app(), rate });
        }
        if !(self.slowdown.is_finite() && self.slowdown >= 0.0) {
            return Err(ProblemError::BadSlowdown { app: app(), slowdown: self.slowdown });
        }
        if let Some(beyond) = self.demands.iter().find(|demand| demand.target.0 as usize >= targets.len()) {
            let target = format!("#{}", beyond.target.0).into();
            return Err(ProblemError::UnknownTarget { app: app(), target });
        }
        Ok(())
    }
}

impl Problem {
    /// `apps` on `targets`; refuses what no solver could make sense of.
    pub fn new(targets: Arc<Targets>, mut apps: Vec<App>) -> Result<Self, ProblemError> {
        apps.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = apps.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(ProblemError::DuplicateApp(pair[0].name.clone()));
        }
        for app in &mut apps {
            app.check(&targets)?;
            app.demands.sort_by_key(|demand| demand.target);
            if let Some(pair) = app.demands.windows(2).find(|pair| pair[0].target == pair[1].target) {
                let target = targets.name(pair[0].target).clone();
                return Err(ProblemError::DuplicateDemand { app: app.name.clone(), target });
            }
            app.demands.retain(|demand| demand.remaining != Some(Bytes(0)));
            if app.demands.is_empty() {
                return Err(ProblemError::NoDemand(app.name.clone()));
            }
            app.nodes = app.nodes.max(1);
        }
        let members = Members::new(targets.len(), &apps);
        Ok(Self { targets, apps, members })
    }

    /// The targets.
    pub fn targets(&self) -> &Arc<Targets> {
        &self.targets
    }

    /// The applications, in the order of their names; each demand's target is one where something remains.
    pub fn apps(&self) -> &[App] {
        &self.apps
    }

    /// The sum of the weights of the applications at each target, in the order of the targets.
    pub(crate) fn weight_totals(&self) -> Vec<f64> {
        let mut totals = vec![0.0; self.targets.len()];
        for (app, targets) in self.apps.iter().zip(self.members.by_app()) {
            for &target in targets {
                totals[target as usize] += app.weight;
            }
        }
        totals
    }
}

impl Members {
    fn new(targets: usize, apps: &[App]) -> Self {
        let mut app_start = Vec::with_capacity(apps.len() + 1);
        let mut app_targets = Vec::new();
        let mut target_start = vec![0_u32; targets + 1];
        app_start.push(0);
        for app in apps {
            for demand in &app.demands {
                app_targets.push(demand.target.0);
                target_start[demand.target.0 as usize + 1] += 1;
            }
            app_start.push(app_targets.len() as u32);
        }
        for at in 0..targets {
            target_start[at + 1] += target_start[at];
        }
        let mut next = target_start.clone();
        let mut target_apps = vec![0; app_targets.len()];
        for (at, app) in apps.iter().enumerate() {
            for demand in &app.demands {
                let entry = &mut next[demand.target.0 as usize];
                target_apps[*entry as usize] = at as u32;
                *entry += 1;
            }
        }
        Self { app_start, app_targets, target_start, target_apps }
    }

    /// The targets of application `app`.
    pub(crate) fn targets_of(&self, app: usize) -> &[u32] {
        &self.app_targets[self.app_start[app] as usize..self.app_start[app + 1] as usize]
    }

    /// The applications at `target`.
    pub(crate) fn apps_at(&self, target: usize) -> &[u32] {
        &self.target_apps[self.target_start[target] as usize..self.target_start[target + 1] as usize]
    }

    /// The targets of one application after the other.
    pub(crate) fn by_app(&self) -> impl Iterator<Item = &[u32]> {
        self.app_start.windows(2).map(|range| &self.app_targets[range[0] as usize..range[1] as usize])
    }

    /// Where the rates of each application begin, in an array with one for each demand; one more at the end.
    pub(crate) fn app_start(&self) -> &[u32] {
        &self.app_start
    }

    /// The target of each demand, application by application.
    pub(crate) fn app_targets(&self) -> &[u32] {
        &self.app_targets
    }
}
