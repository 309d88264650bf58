//! What a server keeps on stable storage for the cluster: keys and values.
//!
//! A key is a letter and, where there are several, a number of 2 bytes, big-endian. A value is one byte of format ([`FORMAT`])
//! and then, as `postcard` writes it:
//!
//! | key | who has it | value |
//! |---|---|---|
//! | `e` | every server | epoch of the newest cluster file that it ever had (`u64`) |
//! | `i` server | every server | the process of that server that it heard last ([`Instance`]) |
//! | `t` volume | the root server | the slot of the table ([`Slot`]) |
//! | `l` | the root server | the number of a volume that was given out last (`u16`) |
//! | `c` volume | the others | the slot in the copy of the table ([`Slot`]) |
//! | `p` | every server | the policy that it had last ([`Policy`]) |
//! | `h` volume | every server | what the server did about that number last ([`Host`]) |
//!
//! Changes that are stored together become durable together, and none before those that were stored earlier: a stop may lose
//! some from the end that were not reported as stored, and nothing else.

use crate::lineage::Instance;
use crate::policy::Policy;
use crate::volumes::hosted::Host;
use crate::volumes::{Slot, Table};
use isonomia_units::{ServerId, VolumeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The first byte of every value.
pub const FORMAT: u8 = 2;

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which record.
    pub key: Vec<u8>,
    /// Its new value, or `None` if it is to go.
    pub value: Option<Vec<u8>>,
}

/// A record that cannot be read: damage, or a newer program's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {} of the cluster cannot be read: {what}", key.escape_ascii())]
pub struct BadRecord {
    /// Its key.
    pub key: Vec<u8>,
    /// What is wrong.
    pub what: &'static str,
}

/// A record as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Epoch(u64),
    Instance(ServerId, Instance),
    Table(Slot),
    LastNumber(VolumeId),
    Copy(Slot),
    Host(Host),
    Policy(Policy),
}

/// All that was stored.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub epoch: u64,
    pub instances: BTreeMap<ServerId, Instance>,
    pub table: Table,
    pub last_number: VolumeId,
    pub copy: Table,
    pub hosts: Vec<Host>,
    pub policy: Option<Policy>,
}

impl Record {
    /// The change that puts this record.
    pub fn put(&self) -> Change {
        let (key, value) = match self {
            Self::Epoch(epoch) => (vec![b'e'], value(epoch)),
            Self::Instance(server, instance) => (numbered(b'i', server.0), value(instance)),
            Self::Table(slot) => (numbered(b't', slot.key.number.0), value(slot)),
            Self::LastNumber(number) => (vec![b'l'], value(&number.0)),
            Self::Copy(slot) => (numbered(b'c', slot.key.number.0), value(slot)),
            Self::Policy(policy) => (vec![b'p'], value(policy)),
            Self::Host(host) => (numbered(b'h', host.key.number.0), value(host)),
        };
        Change { key, value: Some(value) }
    }

    fn read(key: &[u8], bytes: &[u8]) -> Result<Self, &'static str> {
        Ok(match *key {
            [b'e'] => Self::Epoch(content(bytes)?),
            [b'p'] => Self::Policy(content(bytes)?),
            [b'l'] => Self::LastNumber(VolumeId(content(bytes)?)),
            [kind, high, low] => {
                let number = u16::from_be_bytes([high, low]);
                let slot = |slot: Slot| if slot.key.number.0 == number { Ok(slot) } else { Err(OTHER_NUMBER) };
                match kind {
                    b'i' => Self::Instance(ServerId(number), content(bytes)?),
                    b't' => Self::Table(slot(content(bytes)?)?),
                    b'c' => Self::Copy(slot(content(bytes)?)?),
                    b'h' => {
                        let host: Host = content(bytes)?;
                        if host.key.number.0 != number {
                            return Err(OTHER_NUMBER);
                        }
                        Self::Host(host)
                    }
                    _ => return Err(UNKNOWN),
                }
            }
            _ => return Err(UNKNOWN),
        })
    }
}

const OTHER_NUMBER: &str = "it holds another number than its key says";
const UNKNOWN: &str = "there is no such kind of record";

/// The change that takes the copy's slot of `number` away.
pub(crate) fn forget_copy(number: VolumeId) -> Change {
    Change { key: numbered(b'c', number.0), value: None }
}

impl Stored {
    /// What is in `records`.
    pub fn read(records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<Self, BadRecord> {
        let mut stored = Self::default();
        for (key, bytes) in records {
            match Record::read(&key, &bytes).map_err(|what| BadRecord { key, what })? {
                Record::Epoch(epoch) => stored.epoch = epoch,
                Record::Instance(server, instance) => _ = stored.instances.insert(server, instance),
                Record::Table(slot) => _ = stored.table.put(slot),
                Record::LastNumber(number) => stored.last_number = number,
                Record::Copy(slot) => _ = stored.copy.put(slot),
                Record::Policy(policy) => stored.policy = Some(policy),
                Record::Host(host) => stored.hosts.push(host),
            }
        }
        Ok(stored)
    }
}

fn numbered(kind: u8, number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    vec![kind, high, low]
}

fn value(content: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(content, vec![FORMAT]).unwrap_or_default()
}

fn content<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, &'static str> {
    let body = match bytes.split_first() {
        Some((&FORMAT, body)) => body,
        _ => return Err("its format is another one"),
    };
    match postcard::take_from_bytes(body) {
        Ok((content, [])) => Ok(content),
        _ => Err("it breaks its format"),
    }
}
