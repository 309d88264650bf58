//! The lottery draw: ThemisIO's statistical tokens (§3), with tokens of service rather than of requests.
//!
//! A random number in [0, 1) picks a segment among the jobs that have something queued; segments are as long as
//! the jobs' shares. The number is drawn once at each level of the sharing tree, O(log children) each, so that
//! no table of segments is rebuilt when a job comes or goes.
//!
//! Deviation: in the paper a token is one request whatever its size, so a job of large requests takes the
//! bandwidth. Here a token is a quantum of service, the largest cost seen lately. The winner's balance grows by
//! the quantum; a job with a positive balance goes first, and each request it dispatches is taken off. So
//! service is proportional to tokens, which are proportional to shares, whatever the sizes; with requests of one
//! size it is the paper's draw exactly. A balance stays within one quantum of zero, except while the quantum
//! shrinks, and is struck when the job becomes inactive.
//!
//! It is right in expectation only: after n tokens the share of a job is off by about √(share / n). There is no
//! anticipation, as there is none in the paper: a share goes to those who are queued.

use crate::arbiter::{Arbiter, EnqueueError, Next, Request};
use crate::queueing::roster::Roster;
use crate::queueing::tree::{Leaf, ShareTree};
use crate::spec::Level;
use crate::{COST_MAX, RequestId, Tuning};
use isonomia_units::{JobId, JobInfo, Nanos};
use rand::RngExt;
use rand_pcg::Pcg64;
use std::collections::VecDeque;

/// The most draws in one decision. The last winner goes even in debt, which it pays off by later tokens.
const DRAWS_MAX: usize = 64;
/// The quantum loses 1 / this at each dispatch of a smaller request.
const QUANTUM_DECAY: u64 = 1024;

pub(crate) struct Lottery {
    roster: Roster,
    /// Jobs with something queued are the active ones here.
    queued: ShareTree,
    /// By slot.
    accounts: Vec<Account>,
    /// Slots with something queued and a positive balance, first come first served.
    funded: VecDeque<u32>,
    quantum: Nanos,
    generator: Pcg64,
}

struct Account {
    leaf: Leaf,
    /// Service won and not yet used, in ns; negative if used in advance.
    balance: i64,
    funded: bool,
}

impl Lottery {
    pub(crate) fn new(levels: &[Level], seed: u64, tuning: Tuning) -> Self {
        Self {
            roster: Roster::new(levels, tuning.active_window),
            queued: ShareTree::new(levels),
            accounts: Vec::new(),
            funded: VecDeque::new(),
            quantum: Nanos(1),
            generator: Pcg64::new(u128::from(seed), 0),
        }
    }

    fn advance(&mut self, now: Nanos) {
        self.roster.advance(now);
        while let Some(slot) = self.roster.expire_one() {
            self.accounts[slot as usize].balance = 0;
        }
    }

    fn winner(&mut self) -> Option<u32> {
        if let Some(&slot) = self.funded.front() {
            return Some(slot);
        }
        let mut winner = None;
        for _ in 0..DRAWS_MAX {
            let slot = self.queued.pick(|| self.generator.random())?;
            let account = &mut self.accounts[slot as usize];
            account.balance = account.balance.saturating_add(self.quantum.0 as i64);
            winner = Some(slot);
            if account.balance > 0 {
                break;
            }
        }
        winner
    }

    /// Brings the books of a slot in line with its queue and its balance.
    fn settle(&mut self, slot: u32) {
        let has_queued = self.roster.job(slot).has_queued();
        let account = &mut self.accounts[slot as usize];
        if has_queued {
            self.queued.activate(account.leaf);
        } else {
            self.queued.deactivate(account.leaf);
        }
        let funded = has_queued && account.balance > 0;
        if funded && !account.funded {
            self.funded.push_back(slot);
        } else if account.funded && !funded {
            self.funded.retain(|&other| other != slot);
        }
        account.funded = funded;
    }
}

impl Arbiter for Lottery {
    fn set_job(&mut self, now: Nanos, job: JobId, info: &JobInfo) {
        self.advance(now);
        let (slot, new) = self.roster.set_job(job, info);
        if !new {
            self.queued.remove(self.accounts[slot as usize].leaf);
        }
        let leaf = self.queued.insert(info, slot);
        let account = Account { leaf, balance: 0, funded: false };
        if slot as usize == self.accounts.len() {
            self.accounts.push(account);
        } else if new {
            self.accounts[slot as usize] = account;
        } else {
            self.accounts[slot as usize].leaf = leaf;
        }
        self.settle(slot);
    }

    fn remove_job(&mut self, now: Nanos, job: JobId) -> Vec<Request> {
        self.advance(now);
        let Some((slot, queue)) = self.roster.remove_job(job) else { return Vec::new() };
        self.settle(slot);
        self.queued.remove(self.accounts[slot as usize].leaf);
        queue
    }

    fn enqueue(&mut self, now: Nanos, request: Request) -> Result<(), EnqueueError> {
        self.advance(now);
        let arrival = self.roster.enqueue(request)?;
        if arrival.first {
            self.settle(arrival.slot);
        }
        Ok(())
    }

    fn next(&mut self, now: Nanos) -> Next {
        self.advance(now);
        let Some(slot) = self.winner() else { return Next::Idle };
        let Some((request, cost, _)) = self.roster.dispatch(slot) else { return Next::Idle };
        // The quantum must cover any debt it is to pay off, so it follows the largest request at once.
        self.quantum = cost.max(self.quantum - Nanos(self.quantum.0 / QUANTUM_DECAY));
        self.accounts[slot as usize].balance -= cost.0 as i64;
        self.settle(slot);
        Next::Dispatch(request)
    }

    fn correct(&mut self, now: Nanos, job: JobId, charged: Nanos, took: Nanos) {
        self.advance(now);
        let Some(slot) = self.roster.slot(job) else { return };
        let [charged, took] = [charged, took].map(|cost| cost.clamp(Nanos(1), COST_MAX));
        self.quantum = self.quantum.max(took);
        self.accounts[slot as usize].balance += charged.0 as i64 - took.0 as i64;
        self.settle(slot);
    }

    fn complete(&mut self, now: Nanos, _request: RequestId, job: JobId) {
        self.advance(now);
        self.roster.complete(job);
    }

    fn cancel(&mut self, now: Nanos, request: RequestId, job: JobId) -> bool {
        self.advance(now);
        let Some((slot, ..)) = self.roster.cancel(request, job) else { return false };
        self.settle(slot);
        true
    }

    fn queued(&self) -> usize {
        self.roster.queued()
    }

    fn queued_of(&self, job: JobId) -> usize {
        self.roster.queued_of(job)
    }

    fn shares(&self, now: Nanos) -> Vec<(JobId, f64)> {
        self.roster.shares(now)
    }

    fn apportion(&mut self, now: Nanos, parts: &[(JobId, f64)]) {
        self.advance(now);
        self.roster.apportion(parts);
        let leaf = |job: JobId| Some(self.accounts[self.roster.slot(job)? as usize].leaf);
        let parts: Vec<_> = parts.iter().filter_map(|(job, part)| Some((leaf(*job)?, *part))).collect();
        self.queued.apportion(&parts);
    }

    fn drain(&mut self) -> Vec<Request> {
        let drained = self.roster.drain();
        for slot in 0..self.accounts.len() as u32 {
            if self.accounts[slot as usize].funded || self.queued.is_active(self.accounts[slot as usize].leaf) {
                self.settle(slot);
            }
        }
        drained
    }
}
