//! The jobs of all servers together, and what does not change of them from one decision to the next.
//!
//! Most jobs are reported as they were. Who they are, and which account they have, is found out when a server reports one anew;
//! from then on a job is an index here, and no name is compared for it. What is known is a function of what the servers have
//! reported: of what is said twice of one job, that counts which is believed more.

use crate::message::{JobKey, ReportedJob};
use crate::standing::{Standing, Use};
use isonomia_policy::exchange::is_believed_more;
use isonomia_units::{JobInfo, ServerId, TargetId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// Where each job is.
    indices: BTreeMap<JobKey, usize>,
    jobs: Vec<Known>,
    vacant: Vec<usize>,
    /// The jobs of each account.
    owners: BTreeMap<Arc<str>, BTreeMap<JobKey, usize>>,
    /// What each server said the last time of jobs that use its targets, by its numbers for them.
    told: BTreeMap<ServerId, Vec<Told>>,
}

/// A job over all servers.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) info: Arc<JobInfo>,
    /// Of its coupons.
    pub(super) account: Arc<str>,
    /// Where it does I/O, server by server.
    pub(super) rows: Vec<KnownRow>,
    /// It was not there at the decision before.
    pub(super) is_new: bool,
}

/// A job uses a target.
#[derive(Debug)]
pub(super) struct KnownRow {
    /// The server's position in the order of their numbers.
    pub(super) server: usize,
    /// The job's number there.
    pub(super) job: u32,
    pub(super) target: TargetId,
    pub(super) of: Use,
}

#[derive(Debug)]
struct Told {
    number: u32,
    reported: Arc<ReportedJob>,
    info: Arc<JobInfo>,
    index: usize,
}

impl Joined {
    /// Takes in what is known of each server now. `account` names a job's account.
    pub(super) fn join(&mut self, standing: &BTreeMap<ServerId, &Standing>, account: impl Fn(&JobInfo) -> Arc<str>) {
        for job in &mut self.jobs {
            job.rows.clear();
            job.is_new = false;
        }
        // Who each job is by what is said now; nothing for indices where nobody is.
        let mut infos: Vec<Option<Arc<JobInfo>>> = vec![None; self.jobs.len()];
        let mut before = std::mem::take(&mut self.told);
        for (server, (id, standing)) in standing.iter().enumerate() {
            let mut before = before.remove(id).unwrap_or_default().into_iter().peekable();
            let mut told = Vec::with_capacity(before.len());
            for (number, reported, rows) in standing.by_job() {
                while before.next_if(|told| told.number < number).is_some() {}
                let same = before.next_if(|told| told.number == number && is_same(&told.reported, reported));
                let said = same.unwrap_or_else(|| {
                    let info = Arc::new(JobInfo::from(&**reported));
                    let index = self.index_of(&info);
                    // Servers mostly say the same: then there is nothing to compare from the next time on.
                    let known = &self.jobs[index].info;
                    let info = if info == *known { known.clone() } else { info };
                    Told { number, reported: reported.clone(), info, index }
                });
                infos.resize(self.jobs.len(), None);
                let info = &mut infos[said.index];
                let is_more =
                    |other: &Arc<JobInfo>| !Arc::ptr_eq(other, &said.info) && is_believed_more(&said.info, other);
                if info.as_ref().is_none_or(is_more) {
                    *info = Some(said.info.clone());
                }
                let row = |&(target, of): &(TargetId, Use)| KnownRow { server, job: number, target, of };
                self.jobs[said.index].rows.extend(rows.iter().map(row));
                told.push(said);
            }
            self.told.insert(*id, told);
        }
        self.settle(&infos, account);
    }

    /// The index of a job, a new one if it has none.
    fn index_of(&mut self, info: &Arc<JobInfo>) -> usize {
        *self.indices.entry(JobKey::of(info)).or_insert_with(|| {
            let job = Known { info: info.clone(), account: "".into(), rows: Vec::new(), is_new: true };
            match self.vacant.pop() {
                Some(index) => {
                    self.jobs[index] = job;
                    index
                }
                None => {
                    self.jobs.push(job);
                    self.jobs.len() - 1
                }
            }
        })
    }

    /// Makes these what jobs are, and forgets those of which nothing is said.
    fn settle(&mut self, infos: &[Option<Arc<JobInfo>>], account: impl Fn(&JobInfo) -> Arc<str>) {
        let Self { indices, jobs, vacant, owners, .. } = self;
        indices.retain(|key, index| {
            let job = &mut jobs[*index];
            let info = infos.get(*index).and_then(Option::as_ref);
            let is_as_before = !job.is_new && info.is_some_and(|info| Arc::ptr_eq(info, &job.info));
            if is_as_before {
                return true;
            }
            if let Some(of) = owners.get_mut(&job.account).filter(|_| !job.is_new) {
                of.remove(key);
                if of.is_empty() {
                    owners.remove(&job.account);
                }
            }
            let Some(info) = info else {
                vacant.push(*index);
                return false;
            };
            (job.info, job.account) = (info.clone(), account(info));
            owners.entry(job.account.clone()).or_default().insert(key.clone(), *index);
            true
        });
    }

    /// How many jobs there are.
    pub(super) fn len(&self) -> usize {
        self.indices.len()
    }

    /// The jobs, in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Known> + Clone {
        self.indices.values().map(|index| &self.jobs[*index])
    }

    /// The last job, in the order of their keys, of those that have this account.
    pub(super) fn owner(&self, account: &str) -> Option<&JobInfo> {
        let (_, index) = self.owners.get(account)?.last_key_value()?;
        Some(&self.jobs[*index].info)
    }
}

fn is_same(one: &Arc<ReportedJob>, other: &Arc<ReportedJob>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standing::Using;
    use proptest::prelude::*;

    type Shown = Vec<(JobInfo, Vec<(usize, u32, TargetId)>, Arc<str>)>;

    fn account(info: &JobInfo) -> Arc<str> {
        format!("{} {}", info.user, info.nodes % 3).into()
    }

    fn shown(joined: &Joined) -> Shown {
        let row = |row: &KnownRow| (row.server, row.job, row.target);
        joined
            .iter()
            .map(|job| ((*job.info).clone(), job.rows.iter().map(row).collect(), job.account.clone()))
            .collect()
    }

    /// What a server says: of jobs by their numbers, the nodes, whether it is only claimed, and the targets.
    type Said = BTreeMap<u8, (u8, bool, BTreeMap<u16, ()>)>;

    fn standing(said: &Said) -> Standing {
        let using: Vec<Using> = said
            .iter()
            .map(|(job, (nodes, is_claimed, at))| {
                let within = is_claimed.then(|| Arc::from(""));
                let named = JobInfo::new(&format!("job{job}"), &format!("user{}", job % 2), "astro");
                let info = JobInfo { nodes: u32::from(*nodes) + 1, within, ..named };
                Using {
                    job: ReportedJob::from(&info),
                    at: at.keys().map(|at| (TargetId(*at), Use::default())).collect(),
                }
            })
            .collect();
        Standing::of(&using)
    }

    fn said() -> impl Strategy<Value = Said> {
        let at = proptest::collection::btree_map(0..6_u16, Just(()), 0..4);
        proptest::collection::btree_map(0..7_u8, (0..4_u8, any::<bool>(), at), 0..7)
    }

    proptest! {
        /// What was there before makes no difference, but for who is new.
        #[test]
        fn it_is_what_a_new_one_would_be(rounds in proptest::collection::vec(proptest::collection::btree_map(1..4_u16, said(), 0..4), 1..8)) {
            let mut kept = Joined::default();
            let mut before: Vec<JobKey> = Vec::new();
            for round in rounds {
                let servers: BTreeMap<ServerId, Standing> =
                    round.iter().map(|(server, said)| (ServerId(*server), standing(said))).collect();
                let servers = servers.iter().map(|(server, standing)| (*server, standing)).collect();
                kept.join(&servers, account);
                let mut fresh = Joined::default();
                fresh.join(&servers, account);
                prop_assert_eq!(shown(&kept), shown(&fresh));
                prop_assert_eq!(kept.len(), shown(&kept).len());
                for job in kept.iter() {
                    prop_assert_eq!(job.is_new, !before.contains(&JobKey::of(&job.info)));
                    prop_assert_eq!(kept.owner(&job.account), fresh.owner(&job.account));
                }
                prop_assert_eq!(kept.owners.values().map(BTreeMap::len).sum::<usize>(), kept.len());
                before = kept.iter().map(|job| JobKey::of(&job.info)).collect();
            }
        }
    }
}
