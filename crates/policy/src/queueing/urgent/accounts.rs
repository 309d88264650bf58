//! Who is how far ahead of his turns, and who may go on.

use isonomia_units::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The most requests of one owner that are ahead of their turns.
const AHEAD_REQUESTS_MAX: u32 = 1024;
/// The most owners without jobs of whom is known what they owe.
pub(super) const OWING_MAX: usize = 1024;

/// Who has one bound of what is ahead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    User(Arc<str>),
    /// All that a user claims within one proof.
    Proof(Arc<str>, Arc<str>),
    /// A user's job.
    Job(Arc<str>, Arc<str>),
}

/// A queued request of the class by its position among all arrivals, and its number.
pub(super) type Queued = (u64, u32);

struct Account {
    owner: Owner,
    /// Jobs and requests that refer to it.
    references: usize,
    /// Service that was had and whose turns are to come, and what is owed.
    ahead: Nanos,
    /// The part of it for which no turn is going to come by itself: others of the owner's pay for it.
    owed: Nanos,
    /// Requests that were served, or are, and whose turns are to come.
    ahead_requests: u32,
    /// What is queued, with what it costs.
    queue: BTreeMap<Queued, Nanos>,
    /// What all of that costs.
    waiting: Nanos,
    /// The first of the queue, if it may go ahead: as it stands among the candidates.
    candidate: Option<Queued>,
}

/// All accounts, by number.
pub(super) struct Accounts {
    ahead_max: Nanos,
    accounts: Vec<Account>,
    vacant: Vec<u32>,
    numbers: BTreeMap<Owner, u32>,
    /// Those that nobody refers to and who owe something, the one that left first in front.
    owing: VecDeque<u32>,
    /// The first queued request of everybody who may go ahead.
    candidates: BTreeSet<(Queued, u32)>,
}

impl Accounts {
    pub(super) fn new(ahead_max: Nanos) -> Self {
        Self {
            ahead_max,
            accounts: Vec::new(),
            vacant: Vec::new(),
            numbers: BTreeMap::new(),
            owing: VecDeque::new(),
            candidates: BTreeSet::new(),
        }
    }

    fn of(&mut self, account: u32) -> &mut Account {
        &mut self.accounts[account as usize]
    }

    /// A job of `owner` more refers to its account.
    pub(super) fn join(&mut self, owner: Owner) -> u32 {
        if let Some(&account) = self.numbers.get(&owner) {
            self.refer(account);
            self.owing.retain(|other| *other != account);
            return account;
        }
        let fresh = Account {
            owner: owner.clone(),
            references: 1,
            ahead: Nanos::ZERO,
            owed: Nanos::ZERO,
            ahead_requests: 0,
            queue: BTreeMap::new(),
            waiting: Nanos::ZERO,
            candidate: None,
        };
        let account = self.vacant.pop().unwrap_or(self.accounts.len() as u32);
        if account as usize == self.accounts.len() {
            self.accounts.push(fresh);
        } else {
            self.accounts[account as usize] = fresh;
        }
        self.numbers.insert(owner, account);
        account
    }

    /// A request more refers to an account.
    pub(super) fn refer(&mut self, account: u32) {
        self.of(account).references += 1;
    }

    /// A job or a request refers to an account no more.
    pub(super) fn drop_reference(&mut self, account: u32) {
        let state = self.of(account);
        state.references -= 1;
        if state.references > 0 {
            return;
        }
        if state.owed == Nanos::ZERO {
            return self.free(account);
        }
        self.owing.push_back(account);
        if self.owing.len() > OWING_MAX
            && let Some(first) = self.owing.pop_front()
        {
            self.free(first);
        }
    }

    fn free(&mut self, account: u32) {
        self.numbers.remove(&self.accounts[account as usize].owner);
        self.vacant.push(account);
    }

    /// A request of the class is queued. Returns whether it could go ahead with all that was queued before it.
    pub(super) fn queue(&mut self, account: u32, queued: Queued, cost: Nanos) -> bool {
        let ahead_max = self.ahead_max;
        let state = self.of(account);
        let before = state.ahead + state.waiting;
        state.waiting += cost;
        state.queue.insert(queued, cost);
        self.settle(account);
        before == Nanos::ZERO || before + cost <= ahead_max
    }

    /// It waits no more.
    pub(super) fn unqueue(&mut self, account: u32, queued: Queued) {
        let state = self.of(account);
        let cost = state.queue.remove(&queued).unwrap_or(Nanos::ZERO);
        state.waiting = state.waiting.since(cost);
        self.settle(account);
    }

    /// A request is served ahead of its turn.
    pub(super) fn go_ahead(&mut self, account: u32, cost: Nanos) {
        let state = self.of(account);
        state.ahead += cost;
        state.ahead_requests += 1;
        self.settle(account);
    }

    /// The turn of a request has come that was had already.
    pub(super) fn repay(&mut self, account: u32, cost: Nanos) {
        let state = self.of(account);
        state.ahead = state.ahead.since(cost);
        state.ahead_requests -= 1;
        self.settle(account);
    }

    /// No turn is going to come for a request that is ahead.
    pub(super) fn owe(&mut self, account: u32, cost: Nanos) {
        let state = self.of(account);
        state.owed += cost;
        state.ahead_requests -= 1;
        self.settle(account);
    }

    /// Pays with a turn that is worth `cost`, if so much is owed.
    pub(super) fn pay_off(&mut self, account: u32, cost: Nanos) -> bool {
        let state = self.of(account);
        let pays = state.owed >= cost;
        if pays {
            state.owed = state.owed.since(cost);
            state.ahead = state.ahead.since(cost);
            self.settle(account);
        }
        pays
    }

    /// Whose request goes ahead next, and its number.
    pub(super) fn first(&self) -> Option<(u32, u32)> {
        self.candidates.first().map(|&((_, number), account)| (account, number))
    }

    /// Brings the candidates in line with an account.
    fn settle(&mut self, account: u32) {
        let ahead_max = self.ahead_max;
        let state = self.of(account);
        let fits = |cost: Nanos| state.ahead == Nanos::ZERO || state.ahead + cost <= ahead_max;
        let first = state.queue.first_key_value();
        let may_go = state.ahead_requests < AHEAD_REQUESTS_MAX;
        let candidate = first.filter(|(_, cost)| may_go && fits(**cost)).map(|(queued, _)| *queued);
        let before = std::mem::replace(&mut state.candidate, candidate);
        if before != candidate {
            before.map(|before| self.candidates.remove(&(before, account)));
            candidate.map(|candidate| self.candidates.insert((candidate, account)));
        }
    }
}
