//! What a server has reported so far, and how only the differences are sent.
//!
//! Both sides keep it: the server what it told ([`Reporter`]), the controller what it heard ([`Standing`]). A job's name goes over
//! the network once, with a number that stands for it from then on. Reports are numbered. One that does not follow the one before
//! (which was lost, or went to another controller) is of no use, and the controller asks for everything.

use crate::message::{Changes, JOBS_MAX, JobKey, Load, Progress, ROWS_MAX, Report, ReportedJob, Row, Term};
use isonomia_units::TargetId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// A job, and which targets it uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Using {
    /// Who it is.
    pub job: ReportedJob,
    /// Where it does I/O, and what that is.
    pub at: Vec<(TargetId, Use)>,
}

/// What a job does at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// What it wants, and had.
    pub load: Load,
    /// How far its I/O phase has come, if the policy goes by that.
    pub progress: Option<Progress>,
}

/// What is known of a server by its reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Of the last report.
    number: u64,
    jobs: BTreeMap<u32, Known>,
    /// Of all jobs together.
    row_count: usize,
}

/// A job that a server told of.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    reported: Arc<ReportedJob>,
    /// In the order of the targets. Empty for most: a job keeps its number when it does no more I/O.
    rows: Vec<(TargetId, Use)>,
}

/// Changes that do not follow what is known, or are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap;

impl Default for Use {
    /// It wants all that it can get, and nothing else is known of it.
    fn default() -> Self {
        Self { load: Load::WANTS_ALL, progress: None }
    }
}

impl From<Progress> for Use {
    fn from(progress: Progress) -> Self {
        Self { progress: Some(progress), ..Self::default() }
    }
}

impl Use {
    /// Whether it is worth saying to who was told `told`.
    fn is_other_than(&self, told: &Self) -> bool {
        self.progress != told.progress || self.load.is_other_than(told.load)
    }
}

impl Standing {
    /// The number of the last report.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// As if a server had reported all of this at once.
    pub fn of(using: &[Using]) -> Self {
        let mut standing = Self::default();
        for (number, using) in (0..).zip(using.iter().take(JOBS_MAX)) {
            standing.name(number, &using.job);
            using.at.iter().for_each(|(target, of)| standing.set((number, *target), *of));
        }
        standing
    }

    /// The job of this number.
    pub fn job(&self, number: u32) -> Option<JobKey> {
        self.jobs.get(&number).map(|job| JobKey::from(&*job.reported))
    }

    /// Whether no job uses a target.
    pub fn is_idle(&self) -> bool {
        self.row_count == 0
    }

    /// Each job that uses targets, in the order of their numbers, with its number and its targets, which are in order too.
    pub(crate) fn by_job(&self) -> impl Iterator<Item = (u32, &Arc<ReportedJob>, &[(TargetId, Use)])> {
        let doing = self.jobs.iter().filter(|(_, job)| !job.rows.is_empty());
        doing.map(|(&number, job)| (number, &job.reported, &*job.rows))
    }

    fn row(&self, (number, target): (u32, TargetId)) -> Option<&Use> {
        let rows = &self.jobs.get(&number)?.rows;
        rows.binary_search_by_key(&target, |row| row.0).ok().map(|at| &rows[at].1)
    }

    /// Who the job of a number is.
    fn name(&mut self, number: u32, job: &ReportedJob) {
        let reported = Arc::new(job.clone());
        match self.jobs.entry(number) {
            Entry::Occupied(mut known) => known.get_mut().reported = reported,
            Entry::Vacant(vacant) => _ = vacant.insert(Known { reported, rows: Vec::new() }),
        }
    }

    /// A row of a job that was not told of says nothing.
    fn set(&mut self, (number, target): (u32, TargetId), of: Use) {
        let Some(Known { rows, .. }) = self.jobs.get_mut(&number) else { return };
        match rows.binary_search_by_key(&target, |row| row.0) {
            Ok(at) => rows[at].1 = of,
            Err(at) => {
                rows.insert(at, (target, of));
                self.row_count += 1;
            }
        }
    }

    fn remove(&mut self, (number, target): (u32, TargetId)) {
        let Some(Known { rows, .. }) = self.jobs.get_mut(&number) else { return };
        if let Ok(at) = rows.binary_search_by_key(&target, |row| row.0) {
            rows.remove(at);
            self.row_count -= 1;
        }
    }

    /// Takes in what a server reports.
    pub(crate) fn apply(&mut self, changes: &Changes) -> Result<(), Gap> {
        if changes.is_whole {
            *self = Self::default();
        } else if changes.number != self.number + 1 {
            return Err(Gap);
        }
        self.number = changes.number;
        changes.jobs.iter().for_each(|(number, job)| self.name(*number, job));
        changes.gone.iter().for_each(|row| self.remove(*row));
        for &Row { job, target, load, progress } in &changes.rows {
            self.set((job, target), Use { load, progress });
        }
        if self.jobs.len() > JOBS_MAX || self.row_count > ROWS_MAX {
            *self = Self::default();
            return Err(Gap);
        }
        Ok(())
    }
}

/// What a server told the controller, so that it tells only what is new.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reporter {
    /// Whom; nobody has been told anything if there is none.
    term: Option<Term>,
    told: Standing,
    /// Each job keeps its number while there is room: an allocation that is under way may name it.
    numbers: BTreeMap<JobKey, u32>,
    names: BTreeMap<u32, JobKey>,
    next_number: u32,
}

impl Reporter {
    /// The next report says everything.
    pub(crate) fn forget(&mut self) {
        self.term = None;
    }

    /// The job that a number stands for.
    pub(crate) fn job(&self, number: u32) -> Option<&JobKey> {
        self.names.get(&number)
    }

    /// Whether by `using` the controller of `term` would decide otherwise than by what it was told.
    pub(crate) fn has_changed(&self, term: Term, using: &[Using]) -> bool {
        if self.term != Some(term) {
            return !using.is_empty();
        }
        let rows = using.iter().map(|using| using.at.len()).sum::<usize>();
        rows != self.told.row_count || using.iter().any(|using| !self.is_told(using))
    }

    /// Whether other jobs use other targets than the controller of `term` was told, or a phase has begun, whatever has come of those that
    /// it was told of.
    pub(crate) fn has_other_phases(&self, term: Term, using: &[Using]) -> bool {
        if self.term != Some(term) {
            return !using.is_empty();
        }
        let rows = using.iter().map(|using| using.at.len()).sum::<usize>();
        let goes_on = |told: &Use, now: &Use| match (&told.progress, &now.progress) {
            (Some(told), Some(now)) => told.elapsed_ms <= now.elapsed_ms,
            (told, now) => told.is_some() == now.is_some(),
        };
        let is_known = |using: &Using| {
            let number = self.numbers.get(&JobKey::from(&using.job));
            let row = |number, target| self.told.row((number, target));
            number.is_some_and(|number| {
                using.at.iter().all(|(target, now)| row(*number, *target).is_some_and(|told| goes_on(told, now)))
            })
        };
        rows != self.told.row_count || !using.iter().all(is_known)
    }

    fn is_told(&self, using: &Using) -> bool {
        let number = self.numbers.get(&JobKey::from(&using.job));
        let is_known = |number: &&u32| self.told.jobs.get(number).is_some_and(|told| *told.reported == using.job);
        let is_as_told = |now: &Use, told: &Use| now.progress == told.progress && !now.load.wants_other_than(told.load);
        number.filter(is_known).is_some_and(|number| {
            let told = |target| self.told.row((*number, target));
            using.at.iter().all(|(target, now)| told(*target).is_some_and(|told| is_as_told(now, told)))
        })
    }

    /// What is to be told of `using` in this round of the controller of `term`, which is 0 if it has not asked.
    pub(crate) fn report(&mut self, (term, round): (Term, u64), version: u64, using: &[Using]) -> Report {
        let mut changes = self.changes(term, using);
        if self.names.len() > JOBS_MAX {
            // Those that are there no more are forgotten.
            self.forget();
            self.numbers.clear();
            self.names.clear();
            changes = self.changes(term, using);
        }
        if round > 0
            && !changes.is_whole
            && changes.jobs.is_empty()
            && changes.rows.is_empty()
            && changes.gone.is_empty()
        {
            let (number, version) = (self.told.number as u8, version as u8);
            return Report::Same { tag: term.tag(), round: round as u8, number, version };
        }
        (changes.round, changes.version, changes.number) = (round, version, self.told.number + 1);
        // It cannot be too much: what is left out above is not told of.
        let _ = self.told.apply(&changes);
        Report::Changes(changes)
    }

    fn changes(&mut self, term: Term, using: &[Using]) -> Changes {
        let is_whole = self.term.replace(term) != Some(term);
        if is_whole {
            self.told = Standing { number: self.told.number, ..Standing::default() };
        }
        let mut changes = Changes { term, is_whole, ..Changes::default() };
        let mut now = BTreeMap::new();
        for using in using.iter().take(JOBS_MAX) {
            let key = JobKey::from(&using.job);
            let number = *self.numbers.entry(key.clone()).or_insert_with(|| {
                self.next_number = self.next_number.wrapping_add(1);
                self.names.insert(self.next_number, key);
                self.next_number
            });
            if self.told.jobs.get(&number).is_none_or(|told| *told.reported != using.job) {
                changes.jobs.push((number, using.job.clone()));
            }
            let room = ROWS_MAX - now.len();
            now.extend(using.at.iter().take(room).map(|(target, of)| ((number, *target), *of)));
        }
        let is_new =
            |(row, now): &(&(u32, TargetId), &Use)| self.told.row(**row).is_none_or(|told| now.is_other_than(told));
        let row =
            |(&(job, target), &Use { load, progress }): (&(u32, TargetId), &Use)| Row { job, target, load, progress };
        changes.rows = now.iter().filter(is_new).map(row).collect();
        let told = self.told.by_job().flat_map(|(job, _, rows)| rows.iter().map(move |(target, _)| (job, *target)));
        changes.gone = told.filter(|row| !now.contains_key(row)).collect();
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::{JobInfo, Nanos};
    use proptest::prelude::*;

    const TERM: Term = Term { epoch: 1, number: 7 };

    /// Jobs by number, with their targets and what they do there.
    fn using(jobs: &[(u8, Vec<(u16, Use)>)]) -> Vec<Using> {
        let one = |(job, at): &(u8, Vec<(u16, Use)>)| Using {
            job: ReportedJob::from(&JobInfo::new(&format!("job{job}"), "ada", "astro")),
            at: at.iter().map(|(at, of)| (TargetId(*at), *of)).collect(),
        };
        jobs.iter().map(one).collect()
    }

    fn shown(standing: &Standing) -> BTreeMap<(JobKey, TargetId), Use> {
        let rows = standing.by_job().flat_map(|(_, job, rows)| {
            rows.iter().map(|(target, of)| ((JobKey::from(&**job), *target), *of)).collect::<Vec<_>>()
        });
        rows.collect()
    }

    fn a_use() -> impl Strategy<Value = Use> {
        (0..=100_u64, any::<bool>())
            .prop_map(|(had, wants_more)| Use { load: Load::of(Nanos(had), Nanos(100), wants_more), progress: None })
    }

    proptest! {
        /// Whoever has heard all reports knows what is so now, but for small differences in what jobs had; also if everything is
        /// asked for now and then.
        #[test]
        fn differences_add_up(
            rounds in proptest::collection::vec(
                (
                    proptest::collection::btree_map(0..6_u8, proptest::collection::btree_map(0..5_u16, a_use(), 1..5), 0..6),
                    0..8,
                ),
                1..20,
            ),
        ) {
            let (mut reporter, mut heard) = (Reporter::default(), Standing::default());
            for (at, (jobs, chance)) in rounds.into_iter().enumerate() {
                let using = using(&jobs.into_iter().map(|(job, at)| (job, at.into_iter().collect())).collect::<Vec<_>>());
                if chance == 0 {
                    reporter.forget();
                }
                let has_changed = reporter.has_changed(TERM, &using);
                match reporter.report((TERM, at as u64 + 1), 0, &using) {
                    Report::Same { number, .. } => {
                        prop_assert_eq!(u64::from(number), heard.number());
                        prop_assert!(!has_changed);
                    }
                    Report::Changes(changes) => prop_assert_eq!(heard.apply(&changes), Ok(())),
                }
                let mut now = BTreeMap::new();
                for Using { job, at } in &using {
                    now.extend(at.iter().map(|(at, of)| ((JobKey::from(job), *at), *of)));
                }
                let known = shown(&heard);
                prop_assert!(known.keys().eq(now.keys()));
                prop_assert!(known.iter().all(|(row, told)| !now[row].is_other_than(told)));
                prop_assert!(!reporter.has_changed(TERM, &using));
            }
        }
    }

    /// A job that only comes further, or gets more of what it wants, is no reason for a message.
    #[test]
    fn what_a_job_wants_is_said_at_once_and_what_it_had_when_there_is_something_to_say() {
        let mut reporter = Reporter::default();
        let of = |had, wants_more| {
            let load = Load::of(Nanos(had), Nanos(100), wants_more);
            using(&[(1, vec![(0, Use { load, progress: None })])])
        };
        let rows = |report: Report| -> Vec<Load> {
            match report {
                Report::Changes(changes) => changes.rows.iter().map(|row| row.load).collect(),
                Report::Same { .. } => Vec::new(),
            }
        };
        let _ = reporter.report((TERM, 1), 0, &of(30, true));
        assert!(!reporter.has_changed(TERM, &of(90, true)));
        assert_eq!(rows(reporter.report((TERM, 2), 0, &of(50, true))), [], "nor is it worth a word");
        assert_eq!(rows(reporter.report((TERM, 3), 0, &of(60, true))), [Load::of(Nanos(60), Nanos(100), true)]);
        assert!(reporter.has_changed(TERM, &of(60, false)));
        let _ = reporter.report((TERM, 4), 0, &of(60, false));
        assert!(!reporter.has_changed(TERM, &of(50, false)) && reporter.has_changed(TERM, &of(40, false)));
    }

    #[test]
    fn a_name_is_told_once_and_a_lost_report_is_noticed() {
        let (mut reporter, mut heard) = (Reporter::default(), Standing::default());
        let mut told = |heard: &mut Standing, jobs: &[(u8, Vec<u16>)]| {
            let at = |at: &Vec<u16>| at.iter().map(|at| (*at, Use::default())).collect();
            let jobs: Vec<_> = jobs.iter().map(|(job, targets)| (*job, at(targets))).collect();
            match reporter.report((TERM, 0), 0, &using(&jobs)) {
                Report::Changes(changes) => (changes.jobs.len(), heard.apply(&changes)),
                Report::Same { .. } => unreachable!("nobody has asked"),
            }
        };
        assert_eq!(told(&mut heard, &[(1, vec![0])]), (1, Ok(())));
        assert_eq!(told(&mut heard, &[]), (0, Ok(())));
        assert!(heard.is_idle());
        assert_eq!(told(&mut heard, &[(1, vec![4])]), (0, Ok(())));
        let mut lost = heard.clone();
        assert_eq!(told(&mut lost, &[(2, vec![4])]), (1, Ok(())));
        let before = heard.clone();
        assert_eq!(told(&mut heard, &[(2, vec![4, 5])]), (0, Err(Gap)));
        assert_eq!(heard, before, "what does not follow changes nothing");
    }
}
