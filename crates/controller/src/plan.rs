//! One decision: reports of servers in, what each is to be told out.

use crate::kept::{AccountKept, Change, Kept, Payment};
use crate::message::{Content, JOBS_MAX, JobKey, PARTS_PER_TARGET, ROWS_MAX, Rate, Report};
use isonomia_allocation::{
    Accounts, App, BadLedger, Compensation, Coupons, Decide, Demand, Gift, GiftConfig, NodeTime, Problem, ProblemError,
    Rule, Scheme, SchemeError, SchemeSpec, TargetIndex, Targets,
};
use isonomia_policy::exchange::{due, is_believed_more};
use isonomia_policy::{Gift as GiftSettings, Level, Method, Order, PolicySpec, Progress, Throttled, Trait};
use isonomia_units::{JobInfo, Nanos, Rate as ByteRate, ServerId, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Applications whose runs are counted; when there are more, counting begins anew.
const RUNS_KEPT: usize = 65_536;
/// An order is computed so often at least.
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
    /// The reports do not fit each other.
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
    /// How often each application has run, and which jobs were there the last time.
    runs: BTreeMap<Arc<str>, u64>,
    present: BTreeSet<JobKey>,
    kept: Kept,
}

#[derive(Debug)]
enum By {
    Rates(Scheme),
    Ranks(Order),
}

/// A decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// What each server is to be told that has reported.
    pub contents: BTreeMap<ServerId, Content>,
    /// Changes of the ledger, to be stored before that is sent.
    pub changes: Vec<Change>,
    /// Jobs that were decided about.
    pub jobs: usize,
    /// Coupons that were issued.
    pub issued: Coupons,
    /// Coupons that are redeemed.
    pub redeemed: Coupons,
    /// Why there are no contents: the changes are to be stored all the same.
    pub failed: Option<PlanError>,
}

/// A job over all servers.
struct Known<'a> {
    info: JobInfo,
    /// By server and row.
    rows: Vec<(ServerId, &'a crate::message::Row)>,
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
        Ok(Some(Self { by, levels, identity, runs: BTreeMap::new(), present: BTreeSet::new(), kept }))
    }

    /// How often it is decided, if the cluster file says `decide`.
    pub fn interval(policy: &PolicySpec, decide: Nanos) -> Nanos {
        match policy.allocated() {
            Some(allocated) => allocated.decide.unwrap_or(decide),
            // An order is out of date as soon as somebody has been served.
            None => decide.min(ORDER_EVERY),
        }
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
        self.identity.iter().map(of).collect::<Vec<_>>().join(" ").into()
    }

    /// One decision at `wall`, nanoseconds since 1970 that only the end of a regret period goes by.
    ///
    /// # Errors
    /// The reports cannot be decided about; then nothing has changed.
    pub fn decide(&mut self, wall: Nanos, reports: &BTreeMap<ServerId, Report>) -> Result<Decided, PlanError> {
        let known = join(reports);
        self.count_runs(&known);
        let mut decided = Decided { jobs: known.len(), ..Decided::default() };
        if let By::Ranks(order) = self.by {
            decided.contents = ranks(order, &known, reports);
            return Ok(decided);
        }
        let problem = self.problem(&known)?;
        if let By::Rates(Scheme::Gift(gift)) = &mut self.by {
            let paid = gift.assess(wall);
            if !paid.is_empty() {
                self.pay(wall, paid, &mut decided.changes);
            }
        }
        if known.is_empty() {
            self.keep_changes(&known, &mut decided.changes);
            return Ok(decided);
        }
        let By::Rates(scheme) = &mut self.by else { return Ok(decided) };
        let allocation = scheme.allocate(wall, &problem);
        // What was paid is kept even if the scheme fails now.
        self.keep_changes(&known, &mut decided.changes);
        let allocation = match allocation {
            Ok(allocation) => allocation,
            Err(error) => {
                decided.failed = Some(error.into());
                return Ok(decided);
            }
        };
        for app in allocation.apps() {
            decided.issued += app.coupon_issued;
            decided.redeemed += app.coupon_redeemed;
        }
        let mut contents: BTreeMap<ServerId, (Vec<JobKey>, Vec<Rate>)> =
            reports.keys().map(|server| (*server, Default::default())).collect();
        for (name, (key, job)) in names().zip(&known) {
            let rates: BTreeMap<&str, f64> =
                allocation.rates(&name).map(|(target, rate)| (&**allocation.targets().name(target), rate)).collect();
            for (server, row) in &job.rows {
                let Some((jobs, told)) = contents.get_mut(server).filter(|(_, told)| told.len() < ROWS_MAX) else {
                    continue;
                };
                if jobs.last() != Some(key) {
                    if jobs.len() == JOBS_MAX {
                        continue;
                    }
                    jobs.push(key.clone());
                }
                let rate = rates.get(&*target_name(row.target)).copied().unwrap_or(0.0).clamp(0.0, 1.0);
                let parts = (rate * f64::from(PARTS_PER_TARGET)).round() as u32;
                told.push(Rate { job: jobs.len() as u32 - 1, target: row.target, parts });
            }
        }
        let content = |(server, (jobs, rates))| (server, Content::Rates { jobs, rates });
        decided.contents = contents.into_iter().map(content).collect();
        Ok(decided)
    }

    /// The applications on all targets that anybody uses.
    fn problem(&self, known: &BTreeMap<JobKey, Known>) -> Result<Problem, ProblemError> {
        let used: BTreeSet<TargetId> =
            known.values().flat_map(|job| job.rows.iter().map(|(_, row)| row.target)).collect();
        let targets = Arc::new(Targets::new(used.iter().map(|target| (target_name(*target), 1.0)))?);
        // Their names are in the order of their numbers.
        let indices: BTreeMap<TargetId, TargetIndex> = used.into_iter().zip(targets.iter()).collect();
        let infos: Vec<&JobInfo> = known.values().map(|job| &job.info).collect();
        let shares = due(&self.levels, &infos);
        let app = |((name, job), share): ((Arc<str>, &Known), f64)| {
            let account = self.account(&job.info);
            let at: BTreeSet<TargetIndex> = job.rows.iter().map(|(_, row)| indices[&row.target]).collect();
            App {
                runs: self.runs.get(&account).copied().unwrap_or(1),
                user: Some(account),
                weight: (share * infos.len() as f64).max(f64::MIN_POSITIVE),
                // What is only claimed is worth no more than one node.
                nodes: if job.info.within.is_none() { job.info.nodes } else { 1 },
                demands: at.into_iter().map(|target| Demand { target, remaining: None }).collect(),
                ..App::new(name, [])
            }
        };
        let apps = names().zip(known.values()).zip(shares).map(app).collect();
        Problem::new(targets, apps)
    }

    /// A job that was not there the last time is another run of its application.
    fn count_runs(&mut self, known: &BTreeMap<JobKey, Known>) {
        if self.runs.len() > RUNS_KEPT {
            self.runs.clear();
        }
        for job in known.iter().filter(|(key, _)| !self.present.contains(key)).map(|(_, job)| job) {
            let account = self.account(&job.info);
            *self.runs.entry(account).or_default() += 1;
        }
        self.present = known.keys().cloned().collect();
    }

    fn pay(&mut self, wall: Nanos, paid: Vec<Compensation>, changes: &mut Vec<Change>) {
        let payment = |Compensation { account, coupons, node_time: NodeTime(node_ns) }| {
            let of = self.kept.accounts.get(&account).cloned().unwrap_or_default();
            Payment { account, user: of.user, group: of.group, coupons: coupons.0, node_ns }
        };
        let payments = paid.into_iter().map(payment).collect();
        self.kept.add_period(wall.0 / 1_000_000_000, payments, changes);
    }

    fn keep_changes(&mut self, known: &BTreeMap<JobKey, Known>, changes: &mut Vec<Change>) {
        let By::Rates(Scheme::Gift(gift)) = &mut self.by else { return };
        let changed = gift.take_changes();
        if changed.accounts.is_empty() && changed.system.is_none() {
            return;
        }
        let owners: BTreeMap<Arc<str>, &JobInfo> =
            known.values().map(|job| (self.account(&job.info), &job.info)).collect();
        for (name, record) in changed.accounts {
            let mut account = self.kept.accounts.get(&name).cloned().unwrap_or_default();
            if let Some(owner) = owners.get(&name) {
                (account.user, account.group) = (owner.user.clone(), owner.group.clone());
            }
            let account = AccountKept { record, ..account };
            self.kept.set_account(name, account, changes);
        }
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

/// Names of applications, in the order of the jobs' keys: a problem sorts by them.
fn names() -> impl Iterator<Item = Arc<str>> {
    (0_u32..).map(|at| format!("{at:010}").into())
}

/// The name of a target, so that names are in the order of numbers.
fn target_name(target: TargetId) -> String {
    format!("{:05}", target.0)
}

/// The jobs of all reports. Of what is said twice of one that counts which is believed more.
fn join(reports: &BTreeMap<ServerId, Report>) -> BTreeMap<JobKey, Known<'_>> {
    let mut known: BTreeMap<JobKey, Known> = BTreeMap::new();
    for (server, report) in reports {
        for row in &report.rows {
            let Some(job) = report.jobs.get(row.job as usize) else { continue };
            let info = JobInfo::from(job);
            let entry = known.entry(JobKey::of(&info));
            let entry = entry.or_insert_with(|| Known { info: info.clone(), rows: Vec::new() });
            if is_believed_more(&info, &entry.info) {
                entry.info = info;
            }
            entry.rows.push((*server, row));
        }
    }
    known
}

/// The place of each job in the order, over all targets that it uses.
fn ranks(
    order: Order,
    known: &BTreeMap<JobKey, Known>,
    reports: &BTreeMap<ServerId, Report>,
) -> BTreeMap<ServerId, Content> {
    let mut ranks: BTreeMap<ServerId, Vec<(JobKey, u32)>> =
        reports.keys().map(|server| (*server, Vec::new())).collect();
    for (key, job) in known {
        let phases = || job.rows.iter().filter_map(|(_, row)| row.progress);
        let most = |of: fn(crate::message::Progress) -> u64| Nanos::from_millis(phases().map(of).max().unwrap_or(0));
        let remaining = phases().filter_map(|phase| phase.remaining_ms).max().map(Nanos::from_millis);
        let progress =
            Progress { attained: most(|phase| phase.attained_ms), elapsed: most(|phase| phase.elapsed_ms), remaining };
        if phases().next().is_none() {
            continue;
        }
        let rank = order.rank(&progress);
        let servers: BTreeSet<ServerId> = job.rows.iter().map(|(server, _)| *server).collect();
        // Who uses one target only is ranked as well there, and sooner.
        for server in servers.into_iter().filter(|_| is_on_several(job)) {
            if let Some(told) = ranks.get_mut(&server).filter(|told| told.len() < JOBS_MAX) {
                told.push((key.clone(), rank));
            }
        }
    }
    ranks.into_iter().map(|(server, ranks)| (server, Content::Ranks(ranks))).collect()
}

fn is_on_several(job: &Known) -> bool {
    let first = job.rows.first().map(|(_, row)| row.target);
    job.rows.iter().any(|(_, row)| Some(row.target) != first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Progress as Told, ReportedJob, Row, Term};

    /// What a server reports of jobs of one user: the name, the target, and the service that its phase had there.
    fn report(rows: &[(&str, u16, u64)]) -> Report {
        let job = |(name, _, _): &(&str, u16, u64)| ReportedJob::from(&JobInfo::new(name, "ada", "astro"));
        let row = |(at, (_, target, attained_ms)): (usize, &(&str, u16, u64))| Row {
            job: at as u32,
            target: TargetId(*target),
            service_us: 1,
            is_short: true,
            progress: Some(Told { attained_ms: *attained_ms, elapsed_ms: 9_000, remaining_ms: None }),
        };
        let (jobs, rows) = (rows.iter().map(job).collect(), rows.iter().enumerate().map(row).collect());
        Report { term: Term::default(), round: 1, version: 0, window_ns: 1_000, jobs, rows }
    }

    fn plan(policy: &str) -> Plan {
        Plan::new(&policy.parse().unwrap(), Nanos::from_secs(10), Kept::default()).unwrap().unwrap()
    }

    fn decided(plan: &mut Plan, reports: [Report; 2]) -> Decided {
        let reports = [ServerId(1), ServerId(2)].into_iter().zip(reports).collect();
        plan.decide(Nanos::from_secs(1), &reports).unwrap()
    }

    #[test]
    fn a_phase_is_as_far_as_on_the_target_where_it_is_furthest() {
        let reports = [report(&[("wide", 0, 4_000)]), report(&[("wide", 16, 0), ("narrow", 16, 2_000)])];
        let decided = decided(&mut plan("coflow{order=attained}"), reports);
        // On the second server alone it would be first. Who uses one target only is not told of.
        let key = JobKey { user: "ada".into(), name: "wide".into() };
        let rank = Order::Attained.rank(&Progress { attained: Nanos::from_secs(4), ..Progress::default() });
        for server in [ServerId(1), ServerId(2)] {
            assert_eq!(decided.contents[&server], Content::Ranks(vec![(key.clone(), rank)]));
        }
    }

    /// GIFT Fig. 6, first decision: A at one target, B there and at another.
    #[test]
    fn gift_decides_as_in_the_laboratory_and_keeps_what_it_owes() {
        let reports = || [report(&[("A", 0, 0), ("B", 0, 0)]), report(&[("B", 16, 0)])];
        let mut plan = plan("gift{throttle=0.3}");
        let decided = decided(&mut plan, reports());
        let part = |server: u16, name: &str| {
            let Content::Rates { jobs, rates } = &decided.contents[&ServerId(server)] else { unreachable!("rates") };
            let at = jobs.iter().position(|job| &*job.name == name).unwrap();
            rates.iter().find(|rate| rate.job as usize == at).unwrap().parts
        };
        assert_eq!([part(1, "A"), part(1, "B"), part(2, "B")], [350_000, 650_000, 650_000]);
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

    /// A period that is over is paid, and never more than the budget.
    #[test]
    fn what_is_not_redeemed_is_paid() {
        let mut plan = plan("gift{throttle=0.5,period=60s,window=1000000000,system-window=1000000000,budget=1}");
        for at in 0..20 {
            let reports = [report(&[("A", 0, 0), ("B", 0, 0)]), report(&[("B", 16, 0)])];
            let reports = [ServerId(1), ServerId(2)].into_iter().zip(reports).collect();
            plan.decide(Nanos::from_secs(10 * at), &reports).unwrap();
        }
        let periods: Vec<_> = plan.kept().periods.values().collect();
        assert_eq!(
            periods.iter().map(|period| (period.number, period.ended_s)).collect::<Vec<_>>(),
            [(1, 60), (2, 120), (3, 180)]
        );
        for period in periods {
            assert_eq!(&*period.payments[0].account, "user=ada job=A");
            let paid: u128 = period.payments.iter().map(|payment| payment.node_ns).sum();
            assert!(paid > 0 && paid <= NodeTime::from_node_hours(1).0, "{period:?}");
        }
    }
}
