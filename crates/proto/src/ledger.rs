//! What operators are told of coupons and of node-hours: GIFT's ledger.
//!
//! Node time is in whole node-seconds, rounded down, so that what is given for it never adds up to more than is owed.

use serde::{Deserialize, Serialize};

/// The ledger of a cluster, as its controller has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerStatus {
    /// The server that has it.
    pub server: String,
    /// Coupons that make up one target for one decision interval.
    pub coupons_per_target: u64,
    /// Between two decisions, in nanoseconds.
    pub interval_ns: u64,
    /// The most node-seconds that one regret period may cost, if there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_node_s: Option<u64>,
    /// Every account, by name.
    pub accounts: Vec<AccountStatus>,
    /// The regret periods that are over and are remembered, by number.
    pub periods: Vec<PeriodStatus>,
}

/// What an application, or a user, has and had of coupons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountStatus {
    /// What it is known by, such as `user=ada job=lammps`.
    pub account: String,
    /// The user of the job that had it last.
    pub user: String,
    /// The group (account, project) of that job.
    pub group: String,
    /// Coupons issued.
    pub issued: u64,
    /// Coupons redeemed with bandwidth.
    pub redeemed: u64,
    /// Coupons compensated with node time.
    pub compensated: u64,
    /// Coupons still owed.
    pub outstanding: u64,
    /// What they are worth if they are never redeemed, in node-seconds.
    pub regret_node_s: u64,
    /// Node-seconds given so far.
    pub paid_node_s: u64,
}

/// A regret period that is over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeriodStatus {
    /// They count from 1.
    pub number: u64,
    /// Its end, in seconds since 1970.
    pub ended_s: u64,
    /// What is given, by account.
    pub payments: Vec<PaymentStatus>,
}

/// Node time for coupons that were not redeemed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentStatus {
    /// The account.
    pub account: String,
    /// The user of the job that had it last.
    pub user: String,
    /// The group (account, project) of that job.
    pub group: String,
    /// Coupons that were outstanding.
    pub coupons: u64,
    /// What is given for them, in node-seconds.
    pub node_s: u64,
}
