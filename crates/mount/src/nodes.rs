//! Where requests may begin: for each inode that the kernel knows, the server's proof that this mount's user came there.
//!
//! A server needs none of a mount that it trusts, and gives it none: then nothing is kept. The kernel counts how often an
//! inode was answered, and says how many of these it forgets; with the last goes the proof. Inodes with open files are
//! known all the while.

use fuser::INodeNo;
use isonomia_client::{Capability, Ino};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{PoisonError, RwLock};

/// See the module. As many as the kernel keeps inodes.
#[derive(Default)]
pub struct Nodes {
    known: RwLock<HashMap<u64, Known>>,
}

struct Known {
    capability: Capability,
    answered: u64,
}

impl Nodes {
    /// Where a request about `ino` begins.
    pub fn at(&self, ino: INodeNo) -> Capability {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&ino.0).map_or(Capability::unproven(Ino(ino.0)), |known| known.capability)
    }

    /// The kernel is about to be answered an inode once more. To be called before: it may forget at once.
    pub fn answered(&self, capability: &Capability) {
        if !capability.is_proven() {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let entry = known.entry(capability.ino).or_insert(Known { capability: *capability, answered: 0 });
        entry.answered += 1;
    }

    /// The kernel forgets an inode `count` times.
    pub fn forget(&self, ino: INodeNo, count: u64) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = known.entry(ino.0) {
            let left = entry.get().answered.saturating_sub(count);
            if left == 0 {
                entry.remove();
            } else {
                entry.get_mut().answered = left;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_stays_as_long_as_the_kernel_knows_the_inode() {
        let nodes = Nodes::default();
        let (five, proven) = (INodeNo(5), Capability { mac: 7, ..Capability::unproven(Ino(5)) });
        assert_eq!(nodes.at(INodeNo(1)), Capability::ROOT);
        nodes.answered(&proven);
        nodes.answered(&proven);
        nodes.forget(five, 1);
        assert_eq!(nodes.at(five), proven);
        nodes.forget(five, 1);
        assert_eq!(nodes.at(five), Capability::unproven(Ino(5)));
        nodes.forget(five, 1);
        // A server that trusts the mount gives no proofs.
        nodes.answered(&Capability::unproven(Ino(6)));
        assert!(nodes.known.read().unwrap().is_empty());
    }
}
