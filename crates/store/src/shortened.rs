//! Objects that somebody else made shorter between the stop of a server and its next start.
//!
//! Of a file at rest that is damage as any other. A file that was being written is believed ([`crate::settle`]), as its checksums may be
//! older than its objects; but not everything about it is in doubt when the server was only killed. The host has all that the server
//! did then, so if the sidecar has an entry for a block, and the object ends before that block, the block is lost.
//!
//! # The rule
//! As long as the host goes on, no sidecar has an entry for a block behind the end of its object, at any moment:
//! * an entry is written after its block;
//! * before an object is cut, its sidecar is ([`crate::sums`]), and so is one that does not count any more;
//! * after a start of the host, or where it is not known whether there was one, sidecars of files that were being written are cut to
//!   their objects before the store is used ([`believe_ends`]): a power cut can have left them in any way.
//!
//! # What it finds
//! What was in blocks that had come to rest before the file was written last, about ten seconds at most, or were brought to the
//! sidecar since: these have an entry. What was written after that has none yet, so its loss makes the file shorter, or is zeros.
//! Nor is it found within the last block that is left.
//! What was lost and known to be lost before is found again, as long as nothing was written instead.
//! A target whose file system is mounted anew, and its journal replayed, while the host goes on breaks the premise: what that undid is
//! taken for lost.
//!
//! A file of which a block is found to be lost reaches into that block: if its record does not, to the end of the block, as how
//! much of it was written nobody knows. What is left of it is looked through at once, and then it is at rest
//! ([`Store::settle_shortened`]): what is lost is damage from there on.

use crate::checksum::{BLOCK_BYTES, blocks_in};
use crate::content::Owner;
use crate::database::Database;
use crate::object::{ObjectPlace, Targets, file_offset, file_size};
use crate::record::{BLOCKS_UNKNOWN, Body};
use crate::recovery::legible;
use crate::sums;
use crate::{Store, StoreError};
use rustix::io::Errno;

/// Where the objects of content with checksums are.
fn places_of(db: &Database, owner: Owner) -> Result<Vec<ObjectPlace>, StoreError> {
    let places = match owner {
        Owner::File(ino) => match legible(db, ino)?.flatten() {
            Some(record) if record.has_sums && record.spread.is_none() => match &record.body {
                Body::Regular(layout) => record.objects.places(layout).collect(),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        },
        Owner::Detached(place) => match db.detached(place)? {
            Some(record) if record.has_sums => vec![place],
            _ => Vec::new(),
        },
    };
    Ok(places)
}

/// Cuts the sidecars of what was being written to their objects.
pub(crate) fn believe_ends(db: &Database, targets: &Targets, unsettled: &[Owner]) -> Result<(), StoreError> {
    for owner in unsettled {
        for place in places_of(db, *owner)? {
            let size = targets.stat_object(place)?.map_or(0, |stat| stat.st_size as u64);
            targets.cut_sidecar(place, size)?;
        }
    }
    Ok(())
}

/// After a kill: whose objects, of what was being written, are shorter than they were left. The sizes of such files become what they
/// were.
pub(crate) fn find(db: &Database, targets: &Targets, unsettled: &[Owner]) -> Result<Vec<Owner>, StoreError> {
    let mut found = Vec::new();
    for owner in unsettled {
        let mut ends = Vec::new();
        for (index, place) in places_of(db, *owner)?.into_iter().enumerate() {
            let size = match (targets.stat_object(place)?, owner) {
                (Some(stat), _) => stat.st_size as u64,
                (None, Owner::Detached(_)) => 0,
                // It is missing as a whole, which the record tells.
                (None, Owner::File(_)) => continue,
            };
            let last = sums::last_entry(&targets.sidecar(place)?, blocks_in(size));
            if let Some(last) = last.map_err(|errno: Errno| StoreError::host(&targets.path(place), errno))? {
                let start = last * BLOCK_BYTES as u64;
                let end = start + BLOCK_BYTES as u64;
                let object = targets.path(place);
                tracing::error!(object = %object.display(), size, end, "an object lacks blocks that it had: what is lost is an error");
                ends.push((index, start..end));
            }
        }
        if ends.is_empty() {
            continue;
        }
        found.push(*owner);
        if let Owner::File(ino) = owner
            && let Some(Some(mut record)) = legible(db, *ino)?
            && let Body::Regular(layout) = &record.body
        {
            for (index, block) in ends {
                // A file that ends within the block is as long as its record says.
                if record.size <= file_offset(layout, index, block.start) {
                    record.size = file_size(layout, index, block.end);
                }
            }
            record.blocks = BLOCKS_UNKNOWN;
            let mut change = db.change();
            change.put_record(*ino, &record);
            change.commit()?;
        }
    }
    Ok(found)
}

impl Store {
    /// Looks through what was found to lack blocks, and lets it rest.
    pub(crate) fn settle_shortened(&self, found: &[Owner]) {
        for owner in found {
            if let Err(error) = self.settle_short(*owner) {
                tracing::error!(%error, "what is left of an object that was cut cannot be looked through: what it lacks may become zeros");
            }
        }
    }
}
