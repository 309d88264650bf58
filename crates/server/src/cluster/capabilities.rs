//! Capabilities for objects, which any server of the cluster makes out and any other verifies without asking.
//!
//! Their secret comes from the cluster's key file, and is another one in each epoch of the cluster file. A server that starts
//! believes those of the epoch before as well, as one does that takes a newer file while it runs.
//!
//! They end by the time of day, which the servers' clocks need not agree on by minutes ([`CLOCKS_APART_SECS_MAX`]). Those of a server whose
//! clock is further apart are refused, and the log says so.

use crate::clock;
use isonomia_proto::object::{ObjectCapability, ObjectCode};
use isonomia_store::{OBJECT_CAPABILITY_SECS_MAX, ObjectSigner, StoreError};
use isonomia_transport::key::Key;
use isonomia_units::TargetId;
use std::sync::{Mutex, PoisonError, RwLock};

/// How far the clocks of two servers may be apart, in seconds. Further apart they refuse each other's capabilities. A capability is of use
/// to whoever may not have it any more for so much longer, and so much longer it is remembered which objects were removed.
pub const CLOCKS_APART_SECS_MAX: u64 = 600;
/// It is said so often at most that clocks are apart.
const SAID_EVERY_SECS: u64 = 60;

/// What this server makes them out and verifies them with.
pub struct Capabilities {
    key: Key,
    signer: RwLock<ObjectSigner>,
    doubts: Mutex<Doubts>,
    /// How far the clock of this server goes ahead.
    #[cfg(test)]
    pub(super) ahead_secs: std::sync::atomic::AtomicI64,
}

/// What speaks for clocks that are apart.
#[derive(Debug, Default)]
struct Doubts {
    /// Number of the objects and end of the last capability that was over when it came.
    over: Option<(u64, u64)>,
    said_at_secs: Option<u64>,
}

impl Capabilities {
    /// With the secrets of this epoch and the one before it.
    pub fn new(key: Key, epoch: u64) -> Self {
        let before = epoch.saturating_sub(1);
        let mut signer = ObjectSigner::new(before, key.objects_secret(before));
        // Epochs are 1 and more.
        let _ = signer.rotate(epoch, key.objects_secret(epoch));
        Self {
            key,
            signer: RwLock::new(signer),
            doubts: Mutex::default(),
            #[cfg(test)]
            ahead_secs: Default::default(),
        }
    }

    /// The time of day, by this server's clock.
    pub fn now_secs(&self) -> u64 {
        let now = now_secs();
        #[cfg(test)]
        let now = now.saturating_add_signed(self.ahead_secs.load(std::sync::atomic::Ordering::Relaxed));
        now
    }

    /// Goes on with the secret of a newer epoch.
    pub fn rotate(&self, epoch: u64) {
        let mut signer = self.signer.write().unwrap_or_else(PoisonError::into_inner);
        // One that is no newer is the present one.
        let _ = signer.rotate(epoch, self.key.objects_secret(epoch));
    }

    /// Those for the objects of this number and generation on these targets, which allow `access`, for user `holder`: see
    /// [`ObjectSigner::sign`]. `now_secs` is the time of day.
    pub fn sign(
        &self,
        objects: ((u64, u32), &[TargetId]),
        access: u32,
        holder: u32,
        now_secs: u64,
    ) -> (ObjectCapability, Vec<ObjectCode>) {
        let signer = self.signer.read().unwrap_or_else(PoisonError::into_inner);
        signer.sign(objects, access, holder, now_secs, OBJECT_CAPABILITY_SECS_MAX)
    }

    /// See [`ObjectSigner::verify`]. `now_secs` is the time of day.
    pub fn verify(&self, capability: &ObjectCapability, needed: u32, now_secs: u64) -> Result<(), StoreError> {
        let signer = self.signer.read().unwrap_or_else(PoisonError::into_inner);
        let verified = signer.verify(capability, needed, now_secs, CLOCKS_APART_SECS_MAX);
        if matches!(verified, Err(StoreError::Stale))
            && !signer.is_forged(capability)
            && let Some(apart_secs) = self.apart_secs(capability, now_secs)
        {
            let whose = if apart_secs > 0 { "behind" } else { "ahead of" };
            tracing::warn!(
                objects = format_args!("{:#x}", capability.number),
                "the clock of this server is at least {} s {whose} that of the server that allowed a client a file: what \
                 it allows is refused (allowed: {CLOCKS_APART_SECS_MAX} s apart)",
                apart_secs.unsigned_abs()
            );
        }
        verified
    }

    /// By how many seconds at least the clock of whoever made out this capability, which was refused, is ahead of this one, if that is sure
    /// and was not said lately. What is over may only have been kept for long by the client: but not what he got anew thereupon.
    fn apart_secs(&self, capability: &ObjectCapability, now_secs: u64) -> Option<i64> {
        let (end, longest) = (capability.expires_secs, now_secs.saturating_add(OBJECT_CAPABILITY_SECS_MAX));
        let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        let apart_secs = if end > longest {
            i64::try_from(end - longest).ok()
        } else {
            let before = doubts.over.replace((capability.number, end));
            let is_newer = before.is_some_and(|(number, before)| number == capability.number && before < end);
            i64::try_from(now_secs.saturating_sub(end))
                .ok()
                .filter(|_| is_newer && end < now_secs)
                .map(i64::wrapping_neg)
        };
        let is_due = doubts.said_at_secs.is_none_or(|at| now_secs.abs_diff(at) >= SAID_EVERY_SECS);
        let said = apart_secs.filter(|apart| is_due && apart.unsigned_abs() > CLOCKS_APART_SECS_MAX);
        if said.is_some() {
            doubts.said_at_secs = Some(now_secs);
        }
        said
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const NOW: u64 = 1_800_000_000;
    const OBJECTS: ((u64, u32), &[TargetId]) = ((42, 1), &[TargetId(3)]);

    fn capabilities() -> Capabilities {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, [7; 32]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        Capabilities::new(Key::read(path.to_str().unwrap()).unwrap(), 3)
    }

    #[test]
    fn clocks_that_are_minutes_apart_do_no_harm() {
        let (own, other) = (capabilities(), capabilities());
        let told = |apart: i64| {
            let capability = other.sign(OBJECTS, 3, 1000, NOW.saturating_add_signed(apart)).0;
            own.verify(&capability, 1, NOW).is_ok()
        };
        for minutes in [-10, -5, -1, 0, 1, 5, 10] {
            assert!(told(minutes * 60), "{minutes} min");
        }
        // The one that is behind makes out what is over at once only if it is so for longer than that is valid.
        for minutes in [-26, 11, 180] {
            assert!(!told(minutes * 60), "{minutes} min");
        }
        let old = other.sign(OBJECTS, 3, 1000, NOW).0;
        assert!(own.verify(&old, 1, NOW + OBJECT_CAPABILITY_SECS_MAX + CLOCKS_APART_SECS_MAX).is_err());
    }

    #[test]
    fn that_clocks_are_apart_is_said_when_it_is_sure_and_not_too_often() {
        const HOUR: u64 = 3_600;
        let (own, other) = (capabilities(), capabilities());
        let said = |made_at: u64, now: u64| own.apart_secs(&other.sign(OBJECTS, 3, 1000, made_at).0, now);
        assert_eq!(said(NOW + 3 * HOUR, NOW), Some(3 * 3_600));
        assert_eq!(said(NOW + 3 * HOUR, NOW + 59), None);
        assert_eq!(said(NOW + 4 * HOUR, NOW + 60), Some(4 * 3_600 - 60));
        // A client that kept one for hours, and then has a new one.
        assert_eq!(said(NOW, NOW + 5 * HOUR), None);
        // One whose new one is over as well.
        assert_eq!(said(NOW + 1, NOW + 5 * HOUR + 1), Some(900 - 5 * 3_600));
    }
}
