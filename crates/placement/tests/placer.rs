//! Files of many jobs, one by one: what a job has open, and what others leave, decides where its next one goes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_placement::{JOBS_MAX, NewFile, Placer, Room, Topology};
use isonomia_units::{JobId, Placement, ServerId, TargetId};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::sync::Arc;

const JOB: JobId = JobId(7);

/// Four servers with two targets each.
fn placer() -> Placer {
    let targets = (0..8).map(|target| (TargetId(target), ServerId(target / 2)));
    Placer::new(Arc::new(Topology::direct(targets).unwrap()))
}

struct Site {
    placer: Placer,
    generator: Pcg64,
    files: u64,
}

impl Site {
    fn new() -> Self {
        Self { placer: placer(), generator: Pcg64::seed_from_u64(1), files: 0 }
    }

    fn place_for(&mut self, job: JobId, placement: Placement, stripes: usize) -> Vec<u16> {
        self.files += 1;
        let file = NewFile { number: self.files, job, stripes, among: None };
        let targets = self.placer.place(placement, &file, &mut self.generator);
        targets.into_iter().map(|target| target.0).collect()
    }

    /// How many of `files` files of one stripe each target gets.
    fn counts(&mut self, placement: Placement, files: usize) -> Vec<usize> {
        let mut counts = vec![0; 8];
        for _ in 0..files {
            counts[usize::from(self.place_for(JOB, placement, 1)[0])] += 1;
        }
        counts
    }

    fn tell_room(&mut self, version: u64, room: impl Fn(u16) -> Room) {
        self.placer.tell_room(JOB, version, || move |target: TargetId| room(target.0));
    }
}

#[test]
fn targets_get_files_in_proportion_to_what_others_leave() {
    let mut site = Site::new();
    // One target of two servers each is used by somebody who leaves half of it.
    site.tell_room(2, |target| Room::new(if target % 4 == 0 { 0.5 } else { 1.0 }, 1, 1));
    let counts = site.counts(Placement::Balanced, 56);
    for (target, count) in counts.iter().enumerate() {
        let expected = if target % 4 == 0 { 3..=5 } else { 7..=9 };
        assert!(expected.contains(count), "{target}: {counts:?}");
    }
    assert_eq!(Site::new().counts(Placement::Balanced, 56), [7; 8], "as many each where nobody else is");
}

#[test]
fn what_is_closed_does_not_count() {
    let mut site = Site::new();
    let first: Vec<_> = (0..4).map(|_| site.place_for(JOB, Placement::Balanced, 2)).collect();
    assert_eq!(site.placer.uses(JOB, TargetId(first[0][0])), 1);
    // The first time a file may not be open yet.
    for open in [4, 4, 3] {
        assert_eq!(site.placer.open_files(), open);
        site.placer.forget_closed(|file| file != 1);
    }
    assert_eq!(first[0].iter().map(|target| site.placer.uses(JOB, TargetId(*target))).sum::<u32>(), 0);
    let mut next = site.place_for(JOB, Placement::Balanced, 2);
    next.sort_unstable();
    let mut freed = first[0].clone();
    freed.sort_unstable();
    assert_eq!(next, freed, "there the job has nothing");
}

#[test]
fn a_shut_target_is_used_in_need_only() {
    let mut site = Site::new();
    site.tell_room(2, |target| if target < 6 { Room::NONE } else { Room::ALL });
    let counts = site.counts(Placement::Balanced, 20);
    assert_eq!(counts, [0, 0, 0, 0, 0, 0, 10, 10]);
    assert_eq!(site.place_for(JOB, Placement::Balanced, 8).len(), 8, "a stripe for each");
    // The same version is not looked at again.
    site.tell_room(2, |_| Room::ALL);
    assert_eq!(site.counts(Placement::Balanced, 10)[..6], [0; 6]);
    site.tell_room(3, |_| Room::ALL);
    assert!(site.counts(Placement::Balanced, 12)[..6].iter().all(|count| *count > 0));
}

#[test]
fn one_after_the_other_goes_round_though_nothing_stays_open() {
    let mut site = Site::new();
    let mut counts = BTreeMap::new();
    for _ in 0..16 {
        *counts.entry(site.place_for(JOB, Placement::Balanced, 1)[0]).or_insert(0) += 1;
        site.placer.forget_closed(|_| false);
        site.placer.forget_closed(|_| false);
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [2; 8]);
}

#[test]
fn round_robin_by_chance_and_by_hash() {
    let mut site = Site::new();
    assert_eq!(site.counts(Placement::RoundRobin, 16), [2; 8]);
    for placement in [Placement::Random, Placement::Hash] {
        let counts = site.counts(placement, 800);
        // Six standard deviations of a hundred.
        assert!(counts.iter().all(|count| (44..=156).contains(count)), "{placement}: {counts:?}");
    }
    assert_eq!(site.place_for(JOB, Placement::Volume, 99).len(), 8, "no more than there are");
}

#[test]
fn a_file_may_be_kept_to_some_targets() {
    let mut site = Site::new();
    let among = [6, 1].map(TargetId);
    for placement in Placement::ALL {
        let file = NewFile { number: 1, job: JOB, stripes: 3, among: Some(&among) };
        let mut targets = site.placer.place(placement, &file, &mut site.generator);
        targets.sort_unstable();
        assert_eq!(targets, [1, 6].map(TargetId), "{placement}");
        let none = NewFile { among: Some(&[]), ..file };
        assert_eq!(site.placer.place(placement, &none, &mut site.generator), []);
    }
}

#[test]
fn jobs_are_bounded() {
    let mut site = Site::new();
    for job in 0..JOBS_MAX as u32 + 5 {
        site.place_for(JobId(job), Placement::Balanced, 1);
    }
    assert_eq!(site.placer.open_files(), JOBS_MAX);
    assert_eq!((0..8).map(|target| site.placer.uses(JobId(0), TargetId(target))).sum::<u32>(), 0, "it made room");
}

proptest! {
    /// However files come and go, a job's open streams are what is counted.
    #[test]
    fn what_is_counted_is_what_is_open(steps in proptest::collection::vec((0..3u32, 1..4usize, any::<bool>()), 1..60)) {
        let mut site = Site::new();
        let mut open: BTreeMap<u64, (JobId, Vec<u16>)> = BTreeMap::new();
        for (job, stripes, closes) in steps {
            let targets = site.place_for(JobId(job), Placement::Balanced, stripes);
            prop_assert_eq!(targets.len(), stripes);
            open.insert(site.files, (JobId(job), targets));
            if closes {
                open.pop_first();
                for _ in 0..2 {
                    site.placer.forget_closed(|file| open.contains_key(&file));
                }
            }
            for job in (0..3).map(JobId) {
                for target in 0..8 {
                    let expected = open.values().filter(|(of, targets)| *of == job && targets.contains(&target)).count();
                    prop_assert_eq!(site.placer.uses(job, TargetId(target)) as usize, expected);
                }
            }
        }
    }
}
