//! One decision: what is known of each server in, what each is to be told out.

mod accounts;
mod joined;
mod names;
mod satisfied;

pub use accounts::ACCOUNTS_PER_USER_MAX;

use crate::controller::Moment;
use crate::kept::{AccountKept, Change, Kept, Payment};
use crate::message::{JOBS_MAX, PARTS_PER_TARGET, Progress as Told, ROWS_MAX, Rate};
use crate::standing::Standing;
use isonomia_allocation::{
    Accounts, App, BadLedger, Compensation, Coupons, Decide, Gift, GiftConfig, NodeTime, Problem, ProblemError, Rule,
    Scheme, SchemeError, SchemeSpec, TargetIndex, Targets,
};
use isonomia_policy::exchange::due;
use isonomia_policy::{Gift as GiftSettings, Level, Method, Order, PolicySpec, Progress, Throttled, Trait};
use isonomia_units::{JobInfo, Nanos, Rate as ByteRate, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use joined::{Joined, Known};
use names::{Indices, Names};
use satisfied::Satisfied;

/// Applications whose runs are counted; when there are more, counting begins anew.
const RUNS_KEPT: usize = 65_536;
/// An order is computed so often at least, and at once when a phase has begun or ended: how far those have come that go on is known no
/// better by that.
const ORDER_EVERY: Nanos = Nanos::from_millis(500);
/// Schemes that go by time ask for a bandwidth. Those that a controller decides do not.
const UNIT: ByteRate = match ByteRate::new(1) {
    Some(rate) => rate,
    None => unreachable!(),
};

/// Coupons that make up one target for one interval.
pub const COUPONS_PER_TARGET: u64 = Coupons::TARGET.0;

/// Why there is no decision.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The scheme could not decide.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// What servers report does not fit together.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The records of the ledger are none.
    #[error(transparent)]
    Ledger(#[from] BadLedger),
}

/// How a policy is decided.
#[derive(Debug)]
pub struct Plan {
    by: By,
    levels: Vec<Level>,
    identity: BTreeSet<Trait>,
    joined: Joined,
    names: Names,
    /// How often each application has run.
    runs: BTreeMap<Arc<str>, u64>,
    kept: Kept,
    /// How many accounts each user has.
    accounts: BTreeMap<Arc<str>, usize>,
    /// When something last happened to an account, as far as this controller has seen: in which decision.
    touched: BTreeMap<Arc<str>, u64>,
    decisions: u64,
}

#[derive(Debug)]
enum By {
    Rates(Scheme),
    Ranks(Order),
}

impl By {
    fn is_gift(&self) -> bool {
        matches!(self, Self::Rates(Scheme::Gift(_)))
    }

    /// Whether it goes by how often applications have run.
    fn counts_runs(&self) -> bool {
        matches!(self, Self::Rates(Scheme::Rule(..)))
    }
}

/// A decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// What each server gives its jobs.
    pub given: BTreeMap<ServerId, Given>,
    /// Changes of the ledger, to be stored before that is sent.
    pub changes: Vec<Change>,
    /// Jobs that were decided about.
    pub jobs: usize,
    /// Coupons that were issued.
    pub issued: Coupons,
    /// Coupons that are redeemed.
    pub redeemed: Coupons,
    /// Why nothing is given: the changes are to be stored all the same.
    pub failed: Option<PlanError>,
}

/// What a server gives its jobs, which have the numbers that it gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// Parts of its targets, by job and target.
    Rates(Vec<Rate>),
    /// Ranks in an order, by job.
    Ranks(Vec<(u32, u32)>),
}

impl Given {
    /// Whether it is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Rates(rates) => rates.is_empty(),
            Self::Ranks(ranks) => ranks.is_empty(),
        }
    }
}

impl Plan {
    /// Whether a controller has anything to decide under `policy`.
    pub fn is_needed(policy: &PolicySpec) -> bool {
        match policy.scheme() {
            isonomia_policy::Scheme::Allocated(allocated) => allocated.method != Method::Pofs,
            isonomia_policy::Scheme::Coflow(_) => true,
            _ => false,
        }
    }

    /// Whether `policy` has a ledger, which is to be kept.
    pub fn has_ledger(policy: &PolicySpec) -> bool {
        policy.allocated().is_some_and(|allocated| matches!(allocated.method, Method::Gift(_)))
    }

    /// How `policy` is decided every `interval`, with the ledger as it was kept; nothing if targets decide it themselves.
    ///
    /// # Errors
    /// The ledger has lost or made up coupons.
    pub fn new(policy: &PolicySpec, interval: Nanos, kept: Kept) -> Result<Option<Self>, PlanError> {
        let (mut identity, levels) = (GiftSettings::default().identity, policy.levels().to_vec());
        let by = match (policy.allocated(), policy.scheme()) {
            (Some(allocated), _) => match &allocated.method {
                Method::Pofs => return Ok(None),
                Method::Bsip => By::Rates(Scheme::Bsip),
                Method::Mbw => By::Rates(Scheme::Mbw),
                Method::Throttle { whom, part } => {
                    let rule = match whom {
                        Throttled::Small => Rule::Small,
                        Throttled::Large => Rule::Large,
                        Throttled::MostFrequent => Rule::MostFrequent,
                        Throttled::Random => Rule::Random,
                    };
                    let spec = SchemeSpec::Rule { rule, b_thres: part.micros() as f64 / 1e6, seed: 0 };
                    By::Rates(spec.start(UNIT)?)
                }
                Method::Gift(settings) => {
                    identity = settings.identity.clone();
                    let accounts = kept.accounts.iter().map(|(name, kept)| (name.clone(), kept.record.clone()));
                    let gift = Gift::restore(config(settings, interval), accounts, kept.system.clone())?;
                    By::Rates(Scheme::Gift(Box::new(gift)))
                }
            },
            (None, isonomia_policy::Scheme::Coflow(coflow)) => By::Ranks(coflow.order),
            _ => return Ok(None),
        };
        let mut accounts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        kept.accounts.values().for_each(|account| *accounts.entry(account.user.clone()).or_default() += 1);
        Ok(Some(Self {
            by,
            levels,
            identity,
            joined: Joined::default(),
            names: Names::default(),
            runs: BTreeMap::new(),
            kept,
            accounts,
            touched: BTreeMap::new(),
            decisions: 0,
        }))
    }

    /// How often it is decided, if the cluster file says `decide`.
    pub fn interval(policy: &PolicySpec, decide: Nanos) -> Nanos {
        match policy.allocated() {
            Some(allocated) => allocated.decide.unwrap_or(decide),
            // An order is out of date as soon as somebody has been served.
            None => decide.min(ORDER_EVERY),
        }
    }

    /// Whether it goes by what jobs have at the moment, so that every server is asked in every interval; else by who uses
    /// what, which servers report when it changes.
    pub fn is_pulled(&self) -> bool {
        matches!(self.by, By::Ranks(_))
    }

    /// What is kept of the ledger.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// GIFT, if that is what decides.
    pub fn gift(&self) -> Option<&Gift> {
        match &self.by {
            By::Rates(Scheme::Gift(gift)) => Some(gift),
            _ => None,
        }
    }

    /// The account of a job's coupons: what two runs of its application have in common.
    pub fn account(&self, info: &JobInfo) -> Arc<str> {
        account(&self.identity, info)
    }

    /// One decision.
    ///
    /// # Errors
    /// It cannot be decided about; then nothing has changed.
    pub fn decide(&mut self, at: Moment, standing: &BTreeMap<ServerId, &Standing>) -> Result<Decided, PlanError> {
        self.joined.join(standing, |info| account(&self.identity, info));
        self.count_runs();
        let mut decided = Decided { jobs: self.joined.len(), ..Decided::default() };
        if let By::Ranks(order) = self.by {
            decided.given = ranks(order, &self.joined, standing);
            return Ok(decided);
        }
        let (problem, indices, satisfied) = self.problem()?;
        if let By::Rates(Scheme::Gift(gift)) = &mut self.by {
            let paid = gift.assess(at.now);
            if !paid.is_empty() {
                self.pay(at.wall, paid, &mut decided.changes);
            }
        }
        if self.joined.len() == 0 {
            self.keep_changes(&mut decided.changes);
            return Ok(decided);
        }
        let By::Rates(scheme) = &mut self.by else { return Ok(decided) };
        // There is nothing to decide among those who are satisfied.
        let allocation = (!problem.apps().is_empty()).then(|| scheme.allocate(at.now, &problem)).transpose();
        // What was paid is kept even if the scheme fails now.
        self.keep_changes(&mut decided.changes);
        let allocation = match allocation {
            Ok(allocation) => allocation,
            Err(error) => {
                decided.failed = Some(error.into());
                return Ok(decided);
            }
        };
        for app in allocation.iter().flat_map(|allocation| allocation.apps()) {
            decided.issued += app.coupon_issued;
            decided.redeemed += app.coupon_redeemed;
        }
        let mut given: Vec<Vec<Rate>> = vec![Vec::new(); standing.len()];
        // The problem has the applications in the order of the jobs' keys, without those that are satisfied.
        let mut app = 0;
        for (index, job) in self.joined.iter().enumerate() {
            let is_satisfied = satisfied.is(index);
            let rate = |target| match (&allocation, indices.of(target)) {
                _ if is_satisfied => satisfied.due(index, target),
                (Some(allocation), Some(index)) => allocation.rate_at(app, index),
                _ => 0.0,
            };
            for row in &job.rows {
                let told = &mut given[row.server];
                if told.len() < ROWS_MAX {
                    let rate = rate(row.target);
                    let parts = (rate.clamp(0.0, 1.0) * f64::from(PARTS_PER_TARGET)).round() as u32;
                    told.push(Rate { job: row.job, target: row.target, parts });
                }
            }
            app += usize::from(!is_satisfied);
        }
        given.iter_mut().for_each(|rates| rates.sort_unstable_by_key(|rate| (rate.job, rate.target)));
        decided.given = standing.keys().copied().zip(given.into_iter().map(Given::Rates)).collect();
        Ok(decided)
    }

    /// The applications that want more than is due to them, on what is left for them of all targets that they use, in the order of the
    /// jobs' keys; which target is which; and who is satisfied with less.
    fn problem(&mut self) -> Result<(Problem, Indices, Satisfied), ProblemError> {
        let infos: Vec<&JobInfo> = self.joined.iter().map(|job| &*job.info).collect();
        let count = infos.len() as f64;
        let weight = |share: f64| (share * count).max(f64::MIN_POSITIVE);
        let weights = due(&self.levels, &infos).into_iter().map(weight).collect();
        let satisfied = Satisfied::new(&self.joined, weights);
        let others = || self.joined.iter().enumerate().filter(|(index, _)| !satisfied.is(*index));
        let mut indices = Indices::default();
        others().flat_map(|(_, job)| &job.rows).for_each(|row| indices.enter(row.target));
        let left = |target| (self.names.target(target), satisfied.left(target));
        let targets = Arc::new(Targets::new(indices.used().map(left))?);
        // Their names are in the order of their numbers.
        indices.number(targets.iter());
        let without_room = self.without_room();
        let counts_runs = self.by.counts_runs();
        let mut apps = Vec::with_capacity(infos.len());
        for (at, (index, job)) in others().enumerate() {
            let mut at_targets: Vec<TargetIndex> = job.rows.iter().filter_map(|row| indices.of(row.target)).collect();
            at_targets.sort_unstable();
            at_targets.dedup();
            let throttle_friendly = if without_room.contains(&job.account) { Some(false) } else { None };
            apps.push(App {
                throttle_friendly,
                runs: if counts_runs { self.runs.get(&job.account).copied().unwrap_or(1) } else { 1 },
                user: Some(job.account.clone()),
                weight: satisfied.weight(index),
                // What is only claimed is worth no more than one node.
                nodes: if job.info.within.is_none() { job.info.nodes } else { 1 },
                ..App::new(self.names.app(at), at_targets)
            });
        }
        Ok((Problem::new(targets, apps)?, indices, satisfied))
    }

    /// A job that was not there the last time is another run of its application.
    fn count_runs(&mut self) {
        if !self.by.counts_runs() {
            return;
        }
        if self.runs.len() > RUNS_KEPT {
            self.runs.clear();
        }
        for job in self.joined.iter().filter(|job| job.is_new) {
            *self.runs.entry(job.account.clone()).or_default() += 1;
        }
    }

    fn pay(&mut self, wall: Nanos, paid: Vec<Compensation>, changes: &mut Vec<Change>) {
        let payment = |Compensation { account, coupons, node_time: NodeTime(node_ns) }| {
            let of = self.kept.accounts.get(&account).cloned().unwrap_or_default();
            Payment { account, user: of.user, group: of.group, coupons: coupons.0, node_ns }
        };
        let payments = paid.into_iter().map(payment).collect();
        self.kept.add_period(wall.0 / 1_000_000_000, payments, changes);
    }

    fn keep_changes(&mut self, changes: &mut Vec<Change>) {
        let By::Rates(Scheme::Gift(gift)) = &mut self.by else { return };
        let changed = gift.take_changes();
        if changed.accounts.is_empty() && changed.system.is_none() {
            return;
        }
        self.decisions += 1;
        let mut users = BTreeSet::new();
        changes.reserve(changed.accounts.len() + 1);
        for (name, record) in changed.accounts {
            let before = self.kept.accounts.get(&name);
            let mut account = before.cloned().unwrap_or_default();
            let before = before.map(|account| account.user.clone());
            if let Some(owner) = self.joined.owner(&name) {
                (account.user, account.group) = (owner.user.clone(), owner.group.clone());
            }
            if before.as_ref() != Some(&account.user) {
                before.into_iter().for_each(|user| _ = self.accounts.entry(user).and_modify(|count| *count -= 1));
                *self.accounts.entry(account.user.clone()).or_default() += 1;
                users.insert(account.user.clone());
            }
            self.touched.insert(name.clone(), self.decisions);
            let account = AccountKept { record, ..account };
            self.kept.set_account(name, account, changes);
        }
        users.iter().for_each(|user| self.forget_some(user, changes));
        if let Some(system) = changed.system {
            self.kept.set_system(system, changes);
        }
    }
}

fn config(settings: &GiftSettings, interval: Nanos) -> GiftConfig {
    GiftConfig {
        b_thres: settings.throttle.micros() as f64 / 1e6,
        redemption_rate_min: settings.redemption.micros() as f64 / 1e6,
        window: Coupons(settings.window),
        system_window: Coupons(settings.system_window),
        interval,
        regret_period: settings.period,
        regret_budget: settings.budget.map(NodeTime::from_node_hours),
        // An application's name is its job's; what its coupons are kept by is the account.
        accounts: Accounts::ByUser,
    }
}

/// The account of a job's coupons, of which `identity` says what it goes by.
fn account(identity: &BTreeSet<Trait>, info: &JobInfo) -> Arc<str> {
    let title = info.title.as_ref().unwrap_or(&info.name);
    let of = |part: &Trait| {
        let value: &str = match part {
            Trait::Executable => info.executable.as_deref().unwrap_or("-"),
            Trait::User => &info.user,
            Trait::Account => &info.group,
            Trait::Job => title,
        };
        format!("{}={value}", part.word())
    };
    identity.iter().map(of).collect::<Vec<_>>().join(" ").into()
}

/// The rank of each job in the order, over all targets that it uses.
fn ranks(order: Order, known: &Joined, standing: &BTreeMap<ServerId, &Standing>) -> BTreeMap<ServerId, Given> {
    let mut ranks: Vec<Vec<(u32, u32)>> = vec![Vec::new(); standing.len()];
    for job in known.iter() {
        let phases = || job.rows.iter().filter_map(|row| row.of.progress);
        let most = |of: fn(Told) -> u64| Nanos::from_millis(phases().map(of).max().unwrap_or(0));
        let remaining = phases().filter_map(|phase| phase.remaining_ms).max().map(Nanos::from_millis);
        let progress =
            Progress { attained: most(|phase| phase.attained_ms), elapsed: most(|phase| phase.elapsed_ms), remaining };
        if phases().next().is_none() {
            continue;
        }
        let rank = order.rank(&progress);
        let servers: BTreeMap<usize, u32> = job.rows.iter().map(|row| (row.server, row.job)).collect();
        // Who uses one target only is ranked as well there, and sooner.
        for (server, job) in servers.into_iter().filter(|_| is_on_several(job)) {
            if ranks[server].len() < JOBS_MAX {
                ranks[server].push((job, rank));
            }
        }
    }
    standing.keys().copied().zip(ranks.into_iter().map(Given::Ranks)).collect()
}

fn is_on_several(job: &Known) -> bool {
    let first = job.rows.first().map(|row| row.target);
    job.rows.iter().any(|row| Some(row.target) != first)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::message::{Changes, Load, ReportedJob, Row};
    use isonomia_units::TargetId;

    /// What is known of a server with jobs of one user, which it numbers from 0: the name, the target, and the service that its phase
    /// had there.
    pub(super) fn standing(rows: &[(&str, u16, u64)]) -> Standing {
        let job =
            |(at, (name, _, _)): (u32, &(&str, u16, u64))| (at, ReportedJob::from(&JobInfo::new(name, "ada", "astro")));
        let row = |(job, (_, target, attained_ms)): (u32, &(&str, u16, u64))| Row {
            job,
            target: TargetId(*target),
            load: Load::WANTS_ALL,
            progress: Some(Told { attained_ms: *attained_ms, elapsed_ms: 9_000, remaining_ms: None }),
        };
        let numbered = || (0..).zip(rows);
        let (jobs, rows) = (numbered().map(job).collect(), numbered().map(row).collect());
        let mut standing = Standing::default();
        standing.apply(&Changes { is_whole: true, number: 1, jobs, rows, ..Changes::default() }).unwrap();
        standing
    }

    fn plan(policy: &str) -> Plan {
        Plan::new(&policy.parse().unwrap(), Nanos::from_secs(10), Kept::default()).unwrap().unwrap()
    }

    pub(super) fn decided(plan: &mut Plan, at_s: u64, standing: &[Standing; 2]) -> Decided {
        let standing = [ServerId(1), ServerId(2)].into_iter().zip(standing).collect();
        let now = Nanos::from_secs(at_s);
        // Clocks that people look at may show anything.
        plan.decide(Moment { now, wall: now + Nanos::from_secs(7_000) }, &standing).unwrap()
    }

    #[test]
    fn a_phase_is_as_far_as_on_the_target_where_it_is_furthest() {
        let standing = [standing(&[("wide", 0, 4_000)]), standing(&[("narrow", 16, 2_000), ("wide", 16, 0)])];
        let decided = decided(&mut plan("coflow{order=attained}"), 1, &standing);
        // On the second server alone it would be first. Who uses one target only is not told of.
        let rank = Order::Attained.rank(&Progress { attained: Nanos::from_secs(4), ..Progress::default() });
        for (server, number) in [(ServerId(1), 0), (ServerId(2), 1)] {
            assert_eq!(decided.given[&server], Given::Ranks(vec![(number, rank)]));
        }
    }

    /// GIFT Fig. 6, first decision: A at one target, B there and at another.
    #[test]
    fn gift_decides_as_in_the_laboratory_and_keeps_what_it_owes() {
        let mut plan = plan("gift{throttle=0.3}");
        let decided = decided(&mut plan, 1, &[standing(&[("A", 0, 0), ("B", 0, 0)]), standing(&[("B", 16, 0)])]);
        let part = |server: u16, job: u32| {
            let Given::Rates(rates) = &decided.given[&ServerId(server)] else { unreachable!("rates") };
            rates.iter().find(|rate| rate.job == job).unwrap().parts
        };
        assert_eq!([part(1, 0), part(1, 1), part(2, 0)], [350_000, 650_000, 650_000]);
        assert_eq!((decided.jobs, decided.issued), (2, Coupons(150_000)));
        let kept = &plan.kept().accounts["user=ada job=A"];
        assert_eq!((kept.record.issued, &*kept.user, &*kept.group), (150_000, "ada", "astro"));
        let records = decided.changes.iter().filter_map(|(key, value)| Some((&key[..], value.as_deref()?)));
        assert_eq!(&Kept::read(records).unwrap(), plan.kept(), "all of it is to be stored");
    }

    #[test]
    fn an_application_is_known_by_what_the_policy_says() {
        let title = Some("lammps".into());
        let info = JobInfo { title, executable: Some("lmp".into()), ..JobInfo::new("71", "ada", "astro") };
        let account = |policy: &str, info: &JobInfo| plan(policy).account(info).to_string();
        assert_eq!(account("gift", &info), "user=ada job=lammps");
        assert_eq!(account("gift{identity=executable+account}", &info), "executable=lmp account=astro");
        assert_eq!(account("gift", &JobInfo { title: None, ..info.clone() }), "user=ada job=71");
    }

    /// Each run of an application is another job; what the first is owed, the second has.
    #[test]
    fn a_later_run_redeems_the_coupons_of_an_earlier_one() {
        let run = |rows: &[(&str, &str, u16)]| {
            let using = |&(job, title, target): &(&str, &str, u16)| crate::Using {
                job: ReportedJob::from(&JobInfo { title: Some(title.into()), ..JobInfo::new(job, "ada", "astro") }),
                at: vec![(TargetId(target), crate::Use::default())],
            };
            Standing::of(&rows.iter().map(using).collect::<Vec<_>>())
        };
        let mut plan = plan("gift{throttle=0.3}");
        let first = [run(&[("71", "lammps", 0), ("8", "wide", 0)]), run(&[("8", "wide", 16)])];
        let issued = decided(&mut plan, 1, &first).issued;
        assert_eq!(plan.kept().accounts["user=ada job=lammps"].record.issued, issued.0);
        // The first run is over, and the controller has been another one since.
        let mut plan = Plan::new(&"gift{throttle=0.3}".parse().unwrap(), Nanos::from_secs(10), plan.kept().clone());
        let plan = plan.as_mut().unwrap().as_mut().unwrap();
        let others = [("9", "wider", 16), ("10", "e", 16), ("11", "f", 16)];
        let second = [run(&[("72", "lammps", 0), ("9", "wider", 0)]), run(&others)];
        let then = decided(plan, 2, &second);
        assert!(issued > Coupons(0) && then.redeemed == issued, "{issued:?} {:?}", then.redeemed);
        let stranger = [run(&[("73", "gromacs", 0), ("9", "wider", 0)]), run(&others)];
        assert_eq!(decided(plan, 3, &stranger).redeemed, Coupons(0));
    }

    /// A period that is over is paid, and never more than the budget.
    #[test]
    fn what_is_not_redeemed_is_paid() {
        let mut plan = plan("gift{throttle=0.5,period=60s,window=1000000000,system-window=1000000000,budget=1}");
        for at in 0..20 {
            let standing = [standing(&[("A", 0, 0), ("B", 0, 0)]), standing(&[("B", 16, 0)])];
            decided(&mut plan, 10 * at, &standing);
        }
        let periods: Vec<_> = plan.kept().periods.values().collect();
        assert_eq!(
            periods.iter().map(|period| (period.number, period.ended_s)).collect::<Vec<_>>(),
            [(1, 7_060), (2, 7_120), (3, 7_180)]
        );
        for period in periods {
            assert_eq!(&*period.payments[0].account, "user=ada job=A");
            let paid: u128 = period.payments.iter().map(|payment| payment.node_ns).sum();
            assert!(paid > 0 && paid <= NodeTime::from_node_hours(1).0, "{period:?}");
        }
    }
}
