//! The tables of jobs that other servers sent: [`super::exchange`] has what becomes of them.

use super::controller::Port;
use super::wire::{self, JobTable, RATE_TABLE};
use crate::clock;
use crate::connection::Pending;
use crate::rates::Rates;
use isonomia_cluster::{Map, map};
use isonomia_policy::exchange::{Exchange, Rule};
use isonomia_proto::request::ReplyHeader;
use isonomia_units::{Edition, Editions, Nanos, ServerId};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

/// See the module.
#[derive(Debug)]
pub struct PeerTables {
    exchange: Mutex<Exchange>,
    /// The same of the metadata services.
    of_metadata: Mutex<Exchange>,
    /// The latest tables of each kind.
    editions: Mutex<BTreeMap<u32, Editions>>,
    /// Free bytes of the targets of each server, this one's too.
    free_bytes: Mutex<BTreeMap<ServerId, Vec<u64>>>,
    /// Other jobs are in the tables than when the exchanger looked last.
    pub(super) has_changed: AtomicBool,
    pub(super) exchanger: OnceLock<Thread>,
}

impl PeerTables {
    /// Nothing yet.
    pub fn new(settings: map::Exchange) -> Self {
        Self {
            exchange: Mutex::new(begun(settings)),
            of_metadata: Mutex::new(begun(settings)),
            editions: Mutex::default(),
            free_bytes: Mutex::default(),
            has_changed: AtomicBool::new(false),
            exchanger: OnceLock::new(),
        }
    }

    /// What counts of the targets, or of the metadata services.
    pub(super) fn lock(&self, is_metadata: bool) -> MutexGuard<'_, Exchange> {
        let exchange = if is_metadata { &self.of_metadata } else { &self.exchange };
        exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the table that a server sent; the reply that confirms it.
    pub fn keep(
        &self,
        rates: &Rates,
        port: &Port,
        (own, map): (ServerId, &Map),
        pending: &Pending,
        bytes: &[u8],
    ) -> ReplyHeader {
        let from = ServerId(pending.header.offset as u16);
        let is_known = map.server(from).is_some() && from != own;
        let kept = if is_known {
            self.hear(rates, (from, pending.header.valid), bytes)
        } else {
            Err("it is no other server of the cluster file".to_owned())
        };
        let seq = pending.header.seq;
        match kept {
            Ok(()) => ReplyHeader::ok(seq, 0, 0),
            Err(error) => {
                port.refuse(from, &error);
                ReplyHeader::error(seq, Errno::PROTO.raw_os_error().unsigned_abs())
            }
        }
    }

    fn hear(&self, rates: &Rates, (from, kind): (ServerId, u32), bytes: &[u8]) -> Result<(), String> {
        let (unreadable, now) = (|| "a table that cannot be read".to_owned(), clock::now());
        if kind == RATE_TABLE {
            let (edition, table) = wire::decode_rates(bytes).ok_or_else(unreadable)?;
            self.admit(now, (from, kind), edition)?;
            rates.tell(now, from, table);
            return Ok(());
        }
        let JobTable { edition, table, free_bytes } = JobTable::decode(bytes).ok_or_else(unreadable)?;
        self.admit(now, (from, kind), edition)?;
        let is_metadata = kind == JobTable::OF_METADATA;
        if !is_metadata {
            self.note_free(from, free_bytes);
        }
        let is_new = self.lock(is_metadata).tell(now, from, table).map_err(|error| error.to_string())?;
        if is_new {
            self.has_changed.store(true, Ordering::Release);
            self.exchanger.get().into_iter().for_each(Thread::unpark);
        }
        Ok(())
    }

    /// Refuses a table that came before, or after a later one.
    fn admit(&self, now: Nanos, (from, kind): (ServerId, u32), edition: Edition) -> Result<(), String> {
        let mut editions = self.editions.lock().unwrap_or_else(PoisonError::into_inner);
        editions.entry(kind).or_default().admit(now, from, edition).map_err(|error| format!("an old table: {error}"))
    }

    /// The targets of `server` have so many free bytes.
    pub fn note_free(&self, server: ServerId, free_bytes: Vec<u64>) {
        self.free_bytes.lock().unwrap_or_else(PoisonError::into_inner).insert(server, free_bytes);
    }

    /// Those of each server.
    pub fn free_bytes(&self) -> BTreeMap<ServerId, Vec<u64>> {
        self.free_bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many other servers' tables count.
    pub fn heard(&self) -> usize {
        self.lock(false).heard()
    }

    /// A copy without those who are silent: workers, who keep what comes, do not wait while it is made use of.
    pub fn copy(&self, now: Nanos, is_metadata: bool) -> Exchange {
        let mut told = self.lock(is_metadata);
        told.forget(now);
        told.clone()
    }
}

/// Nothing was told yet.
pub(super) fn begun(settings: map::Exchange) -> Exchange {
    let rule = if settings.is_by_presence { Rule::Presence } else { Rule::Received };
    Exchange::new(rule, interval_of(settings))
}

/// How often servers tell each other.
pub(super) fn interval_of(settings: map::Exchange) -> Nanos {
    settings.interval.unwrap_or(map::Exchange::INTERVAL_DEFAULT)
}
