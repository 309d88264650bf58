//! What workers and operators have to do with the thread `controller`: what other servers sent goes in, its state comes out.

use super::lease::Lease;
use crate::connection::Pending;
use isonomia_cluster::Map;
use isonomia_controller::{AccountKept, Allocation, Ask, COUPONS_PER_TARGET, Kept, PaidPeriod, Payment, Report};
use isonomia_proto::control::{ControlReply, ControllerStatus};
use isonomia_proto::ledger::{AccountStatus, LedgerStatus, PaymentStatus, PeriodStatus};
use isonomia_proto::request::ReplyHeader;
use isonomia_units::{Nanos, ServerId};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Messages that wait for the thread at most: a report of each server, and some more. Further ones are refused, and lost.
const WAITING_MAX: usize = 4_096;
/// Accounts that are shown at most,
const ACCOUNTS_MAX: usize = 8_192;
/// and regret periods, the latest.
const PERIODS_MAX: usize = 62;

/// What another server sent.
#[derive(Debug)]
pub enum Heard {
    Ask(Ask),
    Report(Box<Report>),
    Allocation(Allocation),
}

impl Heard {
    pub const ASK: u32 = 4;
    pub const REPORT: u32 = 5;
    pub const ALLOCATION: u32 = 6;

    /// Whether messages of this kind are the controller's or for it.
    pub fn is_kind(kind: u32) -> bool {
        (Self::ASK..=Self::ALLOCATION).contains(&kind)
    }

    /// Kind and bytes.
    pub fn encode(&self) -> (u32, Vec<u8>) {
        match self {
            Self::Ask(ask) => (Self::ASK, ask.encode()),
            Self::Report(report) => (Self::REPORT, report.encode()),
            Self::Allocation(allocation) => (Self::ALLOCATION, allocation.encode()),
        }
    }

    fn decode(kind: u32, bytes: &[u8]) -> Result<Self, String> {
        let decoded = match kind {
            Self::ASK => Ask::decode(bytes).map(Self::Ask),
            Self::REPORT => Report::decode(bytes).map(|report| Self::Report(Box::new(report))),
            _ => Allocation::decode(bytes).map(Self::Allocation),
        };
        decoded.map_err(|error| error.to_string())
    }
}

/// What is told of the controller.
#[derive(Debug, Default)]
pub struct Shown {
    /// For `status`.
    pub status: ControllerStatus,
    /// The ledger, if this server is the controller and the policy has one.
    pub ledger: Option<Arc<Kept>>,
    /// The most that one of its periods may cost.
    pub budget_node_s: Option<u64>,
    /// Term and number of the decision that this is of.
    pub ledger_of: (u64, u64, bool),
}

/// See the module.
pub struct Port {
    inbox: SyncSender<(ServerId, Heard)>,
    /// Until the thread takes it.
    received: Mutex<Option<Receiver<(ServerId, Heard)>>>,
    shown: Mutex<Shown>,
    received_bytes: AtomicU64,
    refused: AtomicU64,
    /// How often the policy was set.
    policies: AtomicU64,
    /// What etcd says of who decides, if the cluster file names one.
    lease: Mutex<Option<Arc<Lease>>>,
}

impl Default for Port {
    fn default() -> Self {
        let (inbox, received) = sync_channel(WAITING_MAX);
        let [received_bytes, refused, policies] = std::array::from_fn(|_| AtomicU64::new(0));
        let received = Mutex::new(Some(received));
        let (shown, lease) = (Mutex::default(), Mutex::default());
        Self { inbox, received, shown, received_bytes, refused, policies, lease }
    }
}

impl Port {
    /// What the thread receives; once.
    pub fn take(&self) -> Option<Receiver<(ServerId, Heard)>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Passes on what a server sent; the reply that confirms it.
    pub fn keep(&self, (own, map): (ServerId, &Map), pending: &Pending, bytes: &[u8]) -> ReplyHeader {
        let from = ServerId(pending.header.offset as u16);
        let seq = pending.header.seq;
        self.received_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let heard = match Heard::decode(pending.header.valid, bytes) {
            _ if map.server(from).is_none() || from == own => {
                Err("it is no other server of the cluster file".to_owned())
            }
            heard => heard,
        };
        match heard.map(|heard| self.inbox.try_send((from, heard))) {
            Ok(Ok(())) => ReplyHeader::ok(seq, 0, 0),
            Ok(Err(_)) => ReplyHeader::error(seq, Errno::AGAIN.raw_os_error().unsigned_abs()),
            Err(error) => {
                self.refuse(from, &error);
                ReplyHeader::error(seq, Errno::PROTO.raw_os_error().unsigned_abs())
            }
        }
    }

    /// Who decides is from now on whoever has this lease, or whom the cluster file names.
    pub fn set_lease(&self, lease: Option<Arc<Lease>>) {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = lease;
    }

    /// Who decides for all servers at `now`, as far as the server `own` knows: the one that the cluster file names, or has the lease
    /// in etcd. None if nobody has that.
    pub fn decider(&self, own: ServerId, map: &Map, now: Nanos) -> Option<ServerId> {
        if map.control().etcd.is_empty() {
            return Some(map.controller().number);
        }
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        if lease.own_term(now).is_some() {
            return Some(own);
        }
        // A lease of its own that has ended here is nobody's before etcd says whose it is.
        Some(map.named(&lease.holder()?)?.number).filter(|holder| *holder != own)
    }

    /// The policy was set, be it the same again: nothing of what was decided is in the arbiters.
    pub fn arbiters_are_new(&self) {
        self.policies.fetch_add(1, Ordering::AcqRel);
    }

    /// How often the policy was set.
    pub fn policies(&self) -> u64 {
        self.policies.load(Ordering::Acquire)
    }

    /// Something that a server sent is not heeded.
    pub fn refuse(&self, from: ServerId, error: &dyn std::fmt::Display) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(server = %from, %error, "what a server says is refused");
    }

    /// What is told.
    pub fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ledger.
    ///
    /// # Errors
    /// This server does not decide, or the policy has none.
    pub fn ledger(&self) -> Result<ControlReply, String> {
        let shown = self.shown();
        let status = &shown.status;
        let Some(ledger) = shown.ledger.clone() else {
            return Err(match &status.server {
                _ if status.error.is_some() => {
                    format!("nobody decides: {}", status.error.as_deref().unwrap_or_default())
                }
                Some(server) if !status.is_here => format!("{server} decides, and has the coupons: ask that server"),
                _ => "no coupons are issued under this policy, or nobody decides yet".to_owned(),
            });
        };
        let (server, interval_ns) = (status.server.clone().unwrap_or_default(), status.interval_ns);
        let budget_node_s = shown.budget_node_s;
        drop(shown);
        let mut told = ledger_status(&ledger);
        (told.server, told.interval_ns, told.budget_node_s) = (server, interval_ns, budget_node_s);
        Ok(ControlReply::Ledger(Box::new(told)))
    }

    /// The state of the controller as this server sees it.
    pub fn status(&self) -> ControllerStatus {
        let received_bytes = self.received_bytes.load(Ordering::Relaxed);
        let refused = self.refused.load(Ordering::Relaxed);
        ControllerStatus { received_bytes, refused, ..self.shown().status.clone() }
    }
}

/// Node-nanoseconds in whole node-seconds.
fn node_s(node_ns: u128) -> u64 {
    u64::try_from(node_ns / 1_000_000_000).unwrap_or(u64::MAX)
}

fn ledger_status(ledger: &Kept) -> LedgerStatus {
    let account = |(name, kept): (&Arc<str>, &AccountKept)| {
        let record = &kept.record;
        AccountStatus {
            account: name.to_string(),
            user: kept.user.to_string(),
            group: kept.group.to_string(),
            issued: record.issued,
            redeemed: record.redeemed,
            compensated: record.compensated,
            outstanding: record.issued.saturating_sub(record.redeemed).saturating_sub(record.compensated),
            regret_node_s: node_s(record.regret),
            paid_node_s: node_s(record.paid),
        }
    };
    let payment = |payment: &Payment| PaymentStatus {
        account: payment.account.to_string(),
        user: payment.user.to_string(),
        group: payment.group.to_string(),
        coupons: payment.coupons,
        node_s: node_s(payment.node_ns),
    };
    let period = |period: &PaidPeriod| PeriodStatus {
        number: period.number,
        ended_s: period.ended_s,
        payments: period.payments.iter().map(payment).collect(),
    };
    LedgerStatus {
        coupons_per_target: COUPONS_PER_TARGET,
        // As many as an answer has room for; those with the longest names would not fit it otherwise.
        accounts: ledger.accounts.iter().take(ACCOUNTS_MAX).map(account).collect(),
        periods: ledger.periods.values().rev().take(PERIODS_MAX).rev().map(period).collect(),
        ..LedgerStatus::default()
    }
}
