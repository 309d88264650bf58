//! Capabilities for objects, which any server of the cluster makes out and any other verifies without asking.
//!
//! Their secret comes from the cluster's key file, and is another one in each epoch of the cluster file. A server that starts
//! believes those of the epoch before as well, as one does that takes a newer file while it runs.

use super::Cluster;
use crate::clock;
use isonomia_proto::object::ObjectCapability;
use isonomia_store::{OBJECT_CAPABILITY_SECS_MAX, ObjectPlace, ObjectSigner, StoreError};
use isonomia_transport::key::Key;
use std::sync::{PoisonError, RwLock};

/// How far the clocks of two servers may be apart, in seconds. Further apart they refuse each other's capabilities.
pub const CLOCKS_APART_SECS_MAX: u64 = 60;

/// What this server makes them out and verifies them with.
pub struct Capabilities {
    key: Key,
    signer: RwLock<ObjectSigner>,
}

impl Capabilities {
    /// With the secrets of this epoch and the one before it.
    pub fn new(key: Key, epoch: u64) -> Self {
        let before = epoch.saturating_sub(1);
        let mut signer = ObjectSigner::new(before, key.objects_secret(before));
        // Epochs are 1 and more.
        let _ = signer.rotate(epoch, key.objects_secret(epoch));
        Self { key, signer: RwLock::new(signer) }
    }

    /// Goes on with the secret of a newer epoch.
    pub fn rotate(&self, epoch: u64) {
        let mut signer = self.signer.write().unwrap_or_else(PoisonError::into_inner);
        // One that is no newer is the present one.
        let _ = signer.rotate(epoch, self.key.objects_secret(epoch));
    }

    /// One for the objects of this number and generation, and so many of them, which allows `access`, for user `holder`.
    pub fn sign(&self, objects: (u64, u32, u32), access: u32, holder: u32) -> ObjectCapability {
        let signer = self.signer.read().unwrap_or_else(PoisonError::into_inner);
        signer.sign(objects, access, holder, now_secs(), OBJECT_CAPABILITY_SECS_MAX)
    }

    /// See [`ObjectSigner::verify`].
    pub fn verify(&self, capability: &ObjectCapability, place: ObjectPlace, needed: u32) -> Result<(), StoreError> {
        let signer = self.signer.read().unwrap_or_else(PoisonError::into_inner);
        signer.verify(capability, place, needed, now_secs(), CLOCKS_APART_SECS_MAX)
    }
}

impl Cluster {
    /// Makes out a capability: see [`Capabilities::sign`]. [`StoreError::NotSupported`] if the servers have no key in common.
    pub fn sign_objects(
        &self,
        objects: (u64, u32, u32),
        access: u32,
        holder: u32,
    ) -> Result<ObjectCapability, StoreError> {
        let capabilities = self.capabilities.as_ref().ok_or(StoreError::NotSupported)?;
        Ok(capabilities.sign(objects, access, holder))
    }

    /// Verifies one.
    pub fn verify_objects(
        &self,
        capability: &ObjectCapability,
        place: ObjectPlace,
        needed: u32,
    ) -> Result<(), StoreError> {
        self.capabilities.as_ref().ok_or(StoreError::NotSupported)?.verify(capability, place, needed)
    }

    /// Goes on with the secret of a newer epoch.
    pub(super) fn rotate(&self, epoch: u64) {
        if let Some(capabilities) = &self.capabilities {
            capabilities.rotate(epoch);
        }
    }
}

/// The time of day.
pub fn now_secs() -> u64 {
    clock::wall().secs.unsigned_abs()
}

/// Until when a capability that was made out by now can be valid anywhere.
pub fn valid_until_secs() -> u64 {
    now_secs().saturating_add(OBJECT_CAPABILITY_SECS_MAX + 2 * CLOCKS_APART_SECS_MAX)
}
