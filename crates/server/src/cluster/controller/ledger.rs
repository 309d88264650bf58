//! Where the ledger is, and how it gets to whoever is the controller.
//!
//! With etcd it is there, and whoever has the lease reads it. Every server that was the controller also has a copy in its own
//! database; without etcd there is nothing else. A copy says of which controller's term it is. Who becomes the controller and cannot
//! know that its own copy is the latest asks all other servers for theirs, and takes the latest. It decides nothing before all have
//! answered: a ledger is never begun anew, nor gone on with where it stood once, only because another server was away.

use super::Commander;
use super::etcd::EtcdError;
use crate::cluster::links::LinkError;
use crate::connection::Pending;
use crate::core::Core;
use isonomia_controller::journal::{self, Record};
use isonomia_controller::{BadKept, Change, Kept, PREFIX, PlanError, Term};
use isonomia_proto::request::ReplyHeader;
use isonomia_store::StoreError;
use isonomia_units::Nanos;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The first byte of the question.
const FORMAT: u8 = 1;
/// Bytes of records in one answer, but for the last record of it.
const PIECE_BYTES: usize = 64 << 10;
/// The longest answer: what fits into a slot of a connection.
const REPLY_LEN_MAX: usize = 256 << 10;
/// How long a server may take to answer.
const PATIENCE: Nanos = Nanos::from_secs(2);

/// Why there is no ledger to decide with, or it cannot be stored.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// That of etcd.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// That of this server.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is none that this program knows.
    #[error(transparent)]
    Read(#[from] BadKept),
    /// It is not in itself right.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Nobody can say whether that server has a later one.
    #[error("server {server} may have a later ledger and does not tell")]
    Untold {
        /// Its name.
        server: String,
        /// Why.
        #[source]
        error: LinkError,
    },
    /// It sends what is no ledger.
    #[error("server {0} answers what is no ledger")]
    Strange(String),
}

impl LedgerError {
    /// Whether it may be otherwise in a moment, and another server would do no better.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Etcd(EtcdError::Away(_) | EtcdError::Lost) | Self::Untold { .. })
    }
}

/// The records of a ledger behind this key are wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LedgerQuestion {
    behind: Vec<u8>,
}

/// Some of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Piece {
    /// Whose ledger it is; nothing if there is none.
    term: Option<Term>,
    records: Vec<Record>,
    /// There are more.
    has_more: bool,
}

impl LedgerQuestion {
    /// Which kind it is, for the header.
    pub const KIND: u32 = 10;

    fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![FORMAT]).unwrap_or_default()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (format, body) = bytes.split_first()?;
        if *format == FORMAT { postcard::from_bytes(body).ok() } else { None }
    }
}

/// Answers a server that has become the controller.
pub fn give_ledger(core: &Core, pending: &Pending, bytes: &[u8]) {
    let seq = pending.header.seq;
    match piece(core, bytes) {
        Ok(payload) => core.answer_late(pending, &ReplyHeader::ok(seq, 0, payload.len()), &payload),
        Err(errno) => core.answer_late(pending, &ReplyHeader::error(seq, errno), &[]),
    }
}

fn piece(core: &Core, bytes: &[u8]) -> Result<Vec<u8>, u32> {
    let errno = |errno: Errno| errno.raw_os_error().unsigned_abs();
    let question = LedgerQuestion::decode(bytes).ok_or(errno(Errno::PROTO))?;
    // As long as this server decides, what it tells would not be the last.
    if core.cluster.get().is_none_or(|cluster| cluster.port.status().is_here) {
        return Err(errno(Errno::AGAIN));
    }
    let records = own_records(core).map_err(|error| error.errno())?;
    let term = term_of(&records).map_err(|_| errno(Errno::PROTO))?;
    let (mut sent, mut bytes, mut rest) =
        (Vec::new(), 0, records.into_iter().filter(|(key, _)| *key > question.behind));
    while bytes < PIECE_BYTES
        && let Some((key, value)) = rest.next()
    {
        bytes += key.len() + value.len();
        sent.push((key, value));
    }
    let piece = Piece { term, records: sent, has_more: rest.next().is_some() };
    Ok(postcard::to_stdvec(&piece).unwrap_or_default())
}

/// The records of this server's copy, by key.
fn own_records(core: &Core) -> Result<Vec<Record>, StoreError> {
    let mut records = core.store.namespace().cluster_records()?;
    records.retain(|(key, _)| key.starts_with(PREFIX));
    records.sort_unstable();
    Ok(records)
}

fn read(records: &[Record]) -> Result<Kept, BadKept> {
    Kept::read(records.iter().map(|(key, value)| (&key[..], &value[..])))
}

/// Of which term a ledger is; nothing if there is none.
fn term_of(records: &[Record]) -> Result<Option<Term>, BadKept> {
    let known = || read(records).map(|kept| Some(kept.term.unwrap_or_default()));
    if records.is_empty() { Ok(None) } else { known() }
}

impl Commander {
    /// The ledger for the controller of `term`, which is this server: where it has to be, and marked as this controller's.
    pub(super) fn take_ledger(&self, term: Term) -> Result<Kept, LedgerError> {
        let own = own_records(&self.core)?;
        let mut in_etcd = None;
        if let Some(coordination) = &self.coordination {
            let (records, finish) = journal::recover(coordination.etcd.records()?)?;
            finish.iter().try_for_each(|transaction| coordination.etcd.write(term.number, transaction))?;
            in_etcd = Some(records).filter(|records| !records.is_empty());
        }
        let is_in_etcd = in_etcd.is_some();
        let records = match in_etcd {
            Some(records) => records,
            None => self.latest(term, &own)?,
        };
        let mut kept = read(&records)?;
        let mark = kept.set_term(term);
        if let Some(coordination) = &self.coordination {
            let changes = if is_in_etcd { vec![mark] } else { kept.records() };
            let mut transactions = journal::transactions(changes).into_iter();
            transactions.try_for_each(|transaction| coordination.etcd.write(term.number, &transaction))?;
        }
        self.keep_here(&difference(own, kept.records()))?;
        Ok(kept)
    }

    /// The latest of this server's own ledger and those of all others.
    fn latest(&self, term: Term, own: &[Record]) -> Result<Vec<Record>, LedgerError> {
        let own_term = term_of(own)?;
        // Without etcd the file names one server, so in its epoch nobody else had the ledger; before the first one nobody had any.
        let is_first = term.epoch <= 1;
        if self.coordination.is_none() && (is_first || own_term.is_some_and(|own| own.epoch == term.epoch)) {
            return Ok(own.to_vec());
        }
        let map = self.config.map();
        let mut latest = (own_term, None);
        for server in map.servers().iter().filter(|server| server.number != self.config.number) {
            let (term, records) = self.ask_for_ledger(server)?;
            if term > latest.0 {
                tracing::info!(from = %server.name, "the ledger comes from the server that had it");
                latest = (term, Some(records));
            }
        }
        Ok(latest.1.unwrap_or_else(|| own.to_vec()))
    }

    fn ask_for_ledger(
        &self,
        server: &isonomia_cluster::map::Server,
    ) -> Result<(Option<Term>, Vec<Record>), LedgerError> {
        let (mut line, mut reply, mut records) = (None, vec![0; REPLY_LEN_MAX], Vec::<Record>::new());
        loop {
            let behind = records.last().map_or_else(Vec::new, |(key, _)| key.clone());
            let question = LedgerQuestion { behind }.encode();
            let sent = self.links.reach().exchange(
                &mut line,
                server.number,
                (LedgerQuestion::KIND, &question),
                &mut reply,
                PATIENCE,
            );
            let strange = || LedgerError::Strange(server.name.to_string());
            let len = sent.map_err(|error| LedgerError::Untold { server: server.name.to_string(), error })?;
            let piece: Piece = postcard::from_bytes(reply.get(..len).unwrap_or_default()).map_err(|_| strange())?;
            if piece.has_more && piece.records.is_empty() {
                return Err(strange());
            }
            records.extend(piece.records);
            if !piece.has_more {
                return Ok((piece.term, records));
            }
        }
    }

    /// Puts changes of the ledger on stable storage, all or none.
    pub(super) fn keep(&self, changes: Vec<Change>) -> Result<(), LedgerError> {
        if let (Some(coordination), Some(controller)) = (&self.coordination, &self.controller) {
            let mut transactions = journal::transactions(changes.clone()).into_iter();
            transactions.try_for_each(|some| coordination.etcd.write(controller.term().number, &some))?;
        }
        self.keep_here(&changes)
    }

    fn keep_here(&self, changes: &[Change]) -> Result<(), LedgerError> {
        let changes = changes.iter().map(|(key, value)| (&key[..], value.as_deref()));
        Ok(self.core.store.namespace().keep_cluster_records(changes)?)
    }
}

/// What makes the records after of those before.
fn difference(before: Vec<Record>, after: Vec<Change>) -> Vec<Change> {
    let mut before: BTreeMap<Vec<u8>, Vec<u8>> = before.into_iter().collect();
    let mut changes: Vec<Change> =
        after.into_iter().filter(|(key, value)| before.remove(key).as_ref() != value.as_ref()).collect();
    changes.extend(before.into_keys().map(|key| (key, None)));
    changes
}
