//! Proofs of where a user came to and what he opened: SipHash-2-4 (Aumasson and Bernstein, 2012) under a key that never leaves
//! the server, or, for objects, under one that the servers of a cluster have in common.
//!
//! Capabilities for objects have codes of 128 bits, the others of 64. A code of 64 bits is guessed once in 2^63 requests,
//! which one server would notice; but those for objects can be tried at every server of a cluster at once. It costs 8 bytes in a
//! request, and no time.
//!
//! There is a code for each object of a file, over its index and its target: a request has one, and its size and the time to
//! verify it are the same for all files. They are made out together ([`ObjectSigner::sign`]), which takes a tenth of a
//! microsecond at most for each object.

use crate::checksum::ObjectId;
use crate::{ObjectPlace, StoreError};
use isonomia_proto::fs::Capability;
use isonomia_proto::object::{ObjectCapability, ObjectCode};
use isonomia_units::TargetId;
use siphasher::sip::SipHasher24;
use siphasher::sip128::{self, Hasher128 as _};
use std::hash::Hasher as _;

/// How long a capability for objects is valid at most, in seconds. So long after a file was removed a late write can have a
/// valid one at most: see [`crate::ObjectStore::remove_detached`].
pub const OBJECT_CAPABILITY_SECS_MAX: u64 = 900;

pub(crate) struct CapabilitySigner(SipHasher24);

impl CapabilitySigner {
    pub fn new(key: &[u8; 16]) -> Self {
        Self(SipHasher24::new_with_key(key))
    }

    /// A capability of user `holder` for the inode `ino` of `generation` with these bits of
    /// [`isonomia_proto::fs::access`].
    pub fn sign(&self, ino: u64, generation: u32, access: u32, holder: u32) -> Capability {
        let capability = Capability { ino, access, generation, mac: 0, holder, reserved: 0 };
        Capability { mac: self.mac(&capability), ..capability }
    }

    pub fn verify(&self, capability: &Capability) -> Result<(), StoreError> {
        if capability.mac == self.mac(capability) { Ok(()) } else { Err(StoreError::Stale) }
    }

    /// Shows that this server wrote the number of a sync ([`crate::witness`]). No capability has so few bytes.
    pub fn seal_number(&self, number: u64) -> u64 {
        self.0.hash(&number.to_le_bytes())
    }

    /// A number that tells this store from others, for as long as it is there. Not 0. Nothing else that is signed has as many bytes.
    pub fn number_of_store(&self) -> u64 {
        self.0.hash(b"store").max(1)
    }

    /// Of everything else in `capability`. Never 0: on the wire that means that there is no capability.
    fn mac(&self, capability: &Capability) -> u64 {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&capability.ino.to_le_bytes());
        bytes[8..12].copy_from_slice(&capability.access.to_le_bytes());
        bytes[12..16].copy_from_slice(&capability.generation.to_le_bytes());
        bytes[16..].copy_from_slice(&capability.holder.to_le_bytes());
        self.0.hash(&bytes).max(1)
    }
}

/// Makes out capabilities for objects, and verifies those of others who have the same secret. Two secrets are valid at a
/// time: that of the present epoch, with which it signs, and that of the one before it, so that what is in use when an epoch
/// begins stays so until it expires.
pub struct ObjectSigner {
    epoch: u64,
    key: [u8; 16],
    previous: Option<(u64, [u8; 16])>,
}

impl ObjectSigner {
    /// Signs and verifies with the secret of one epoch.
    pub fn new(epoch: u64, key: [u8; 16]) -> Self {
        Self { epoch, key, previous: None }
    }

    /// Goes on with the secret of `epoch`; capabilities of the one before it stay valid. [`StoreError::Invalid`], and no
    /// change, if `epoch` is not above the present one.
    pub fn rotate(&mut self, epoch: u64, key: [u8; 16]) -> Result<(), StoreError> {
        if epoch <= self.epoch {
            return Err(StoreError::Invalid);
        }
        self.previous = Some((self.epoch, self.key));
        (self.epoch, self.key) = (epoch, key);
        Ok(())
    }

    /// Capabilities of user `holder` for the objects of this `number` and `generation`, which are on `targets` in this order, with
    /// these bits of [`isonomia_proto::fs::access`], until `lifetime_secs` after `now_secs`, or
    /// [`OBJECT_CAPABILITY_SECS_MAX`] if that is less: the one for the first object, and the codes for all.
    pub fn sign(
        &self,
        ((number, generation), targets): ((u64, u32), &[TargetId]),
        access: u32,
        holder: u32,
        now_secs: u64,
        lifetime_secs: u64,
    ) -> (ObjectCapability, Vec<ObjectCode>) {
        let expires_secs = now_secs.saturating_add(lifetime_secs.min(OBJECT_CAPABILITY_SECS_MAX));
        let unsigned = ObjectCapability {
            number,
            expires_secs,
            epoch: self.epoch,
            generation,
            access,
            holder,
            index: 0,
            target: targets.first().map_or(0, |target| target.0),
            mac: [0; 2],
        };
        let of = |(index, target): (u16, &TargetId)| {
            object_mac(&self.key, &ObjectCapability { index, target: target.0, ..unsigned })
        };
        let codes: Vec<ObjectCode> = (0..).zip(targets).map(of).collect();
        (ObjectCapability { mac: codes.first().copied().unwrap_or_default(), ..unsigned }, codes)
    }

    /// Checks that `capability` was made out by somebody with the secret, for just this object on this target, allows all of `needed`
    /// (bits of [`isonomia_proto::fs::access`]), and is valid at `now_secs`, where the clock of whoever made it out may be
    /// `skew_secs` apart. [`StoreError::BadAccess`] if only the access is not allowed; else [`StoreError::Stale`], after which the
    /// holder is to ask the file's server for another one. The user is the caller's to compare.
    pub fn verify(
        &self,
        capability: &ObjectCapability,
        needed: u32,
        now_secs: u64,
        skew_secs: u64,
    ) -> Result<(), StoreError> {
        let is_forged = self.is_forged(capability);
        let is_over = capability.expires_secs.saturating_add(skew_secs) <= now_secs;
        // Whose clock is so far ahead would be heard long after the objects are gone.
        let is_early =
            capability.expires_secs > now_secs.saturating_add(OBJECT_CAPABILITY_SECS_MAX).saturating_add(skew_secs);
        if is_forged || is_over || is_early {
            return Err(StoreError::Stale);
        }
        if capability.access & needed == needed { Ok(()) } else { Err(StoreError::BadAccess) }
    }

    /// Whether nobody who has the secret of its epoch, or that epoch is not known here, made it out. How long this takes tells nothing of
    /// the code.
    pub fn is_forged(&self, capability: &ObjectCapability) -> bool {
        let key = match self.previous {
            _ if capability.epoch == self.epoch => self.key,
            Some((epoch, key)) if capability.epoch == epoch => key,
            _ => return true,
        };
        let [high, low] = object_mac(&key, capability);
        (high ^ capability.mac[0]) | (low ^ capability.mac[1]) != 0
    }
}

impl ObjectPlace {
    /// Of the object that a capability is for.
    pub fn of(capability: &ObjectCapability) -> Self {
        let ObjectCapability { number, generation, index, target, .. } = *capability;
        Self { object: ObjectId { number, generation, index: u32::from(index) }, target: TargetId(target) }
    }
}

/// Of everything else in `capability`.
fn object_mac(key: &[u8; 16], capability: &ObjectCapability) -> ObjectCode {
    let mut hasher = sip128::SipHasher24::new_with_key(key);
    hasher.write(&capability.to_bytes()[..ObjectCapability::SIGNED_LEN]);
    let code = hasher.finish128();
    [code.h1, code.h2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_bit_is_noticed() {
        let signer = CapabilitySigner::new(&[7; 16]);
        let good = signer.sign(42, 9, 3, 1000);
        assert!(signer.verify(&good).is_ok());
        for bit in 0..64 {
            let forged = [
                Capability { ino: good.ino ^ 1 << bit, ..good },
                Capability { mac: good.mac ^ 1 << bit, ..good },
                Capability { access: good.access ^ 1 << (bit % 32), ..good },
                Capability { generation: good.generation ^ 1 << (bit % 32), ..good },
                Capability { holder: good.holder ^ 1 << (bit % 32), ..good },
            ];
            assert!(forged.iter().all(|f| signer.verify(f).is_err()), "bit {bit}");
        }
        assert!(CapabilitySigner::new(&[8; 16]).verify(&good).is_err());
    }

    proptest::proptest! {
        #[test]
        fn what_was_not_sealed_is_refused(bytes in proptest::prelude::any::<[u8; Capability::LEN]>()) {
            let capability = Capability::from_bytes(bytes);
            // With a chance of 2^-64 for each.
            proptest::prop_assert!(CapabilitySigner::new(&[7; 16]).verify(&capability).is_err());
        }
    }

    const OBJECTS: (u64, u32) = (0x5_0000_0000_002a, 9);
    const TARGETS: [TargetId; 4] = [TargetId(7), TargetId(16), TargetId(8), TargetId(300)];
    const NOW: u64 = 1_000_000;

    fn object_capability(signer: &ObjectSigner) -> ObjectCapability {
        signer.sign((OBJECTS, &TARGETS), 3, 1000, NOW, 600).0
    }

    #[test]
    fn any_changed_bit_of_an_object_capability_is_noticed() {
        let signer = ObjectSigner::new(4, [7; 16]);
        let good = object_capability(&signer);
        signer.verify(&good, 3, NOW, 0).unwrap();
        for bit in 0..ObjectCapability::LEN * 8 {
            let mut bytes = good.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let forged = ObjectCapability::from_bytes(bytes);
            assert!(matches!(signer.verify(&forged, 1, NOW, 0), Err(StoreError::Stale)), "bit {bit}");
        }
        assert!(ObjectSigner::new(4, [8; 16]).verify(&good, 1, NOW, 0).is_err());
    }

    #[test]
    fn each_object_has_a_code_of_its_own_which_is_for_its_target() {
        let signer = ObjectSigner::new(4, [7; 16]);
        let (first, codes) = signer.sign((OBJECTS, &TARGETS), 3, 1000, NOW, 600);
        assert_eq!((first.index, first.target, first.mac, codes.len()), (0, 7, codes[0], TARGETS.len()));
        for (index, code) in (0..).zip(&codes) {
            for (other, target) in (0..).zip(TARGETS) {
                let shown = ObjectCapability { index, target: target.0, mac: *code, ..first };
                let verified = signer.verify(&shown, 3, NOW, 0);
                assert_eq!(verified.is_ok(), index == other, "object {index} on target {target:?}");
                assert!(verified.is_ok() || matches!(verified, Err(StoreError::Stale)));
                // Nor is it one for the object that is there.
                let shown = ObjectCapability { index: other, ..shown };
                assert_eq!(signer.verify(&shown, 3, NOW, 0).is_ok(), index == other);
            }
        }
    }

    #[test]
    fn an_object_capability_allows_what_it_says() {
        let signer = ObjectSigner::new(4, [7; 16]);
        let reading = signer.sign((OBJECTS, &TARGETS), 1, 1000, NOW, 600).0;
        signer.verify(&reading, 1, NOW, 0).unwrap();
        assert!(matches!(signer.verify(&reading, 2, NOW, 0), Err(StoreError::BadAccess)));
    }

    #[test]
    fn an_object_capability_has_an_end_and_none_is_made_out_for_long() {
        let signer = ObjectSigner::new(4, [7; 16]);
        let good = object_capability(&signer);
        let verify = |capability: &ObjectCapability, now, skew| signer.verify(capability, 3, now, skew);
        verify(&good, NOW + 599, 0).unwrap();
        assert!(verify(&good, NOW + 600, 0).is_err());
        verify(&good, NOW + 629, 30).unwrap();
        assert!(verify(&good, NOW + 630, 30).is_err());
        let long = signer.sign((OBJECTS, &TARGETS), 3, 1000, NOW, u64::MAX).0;
        assert_eq!(long.expires_secs, NOW + OBJECT_CAPABILITY_SECS_MAX);
        // Made out by a clock that is an hour ahead.
        let early = signer.sign((OBJECTS, &TARGETS), 3, 1000, NOW + 3600, 900).0;
        assert!(verify(&early, NOW, 30).is_err());
    }

    #[test]
    fn two_epochs_are_valid_while_they_rotate() {
        let mut signer = ObjectSigner::new(4, [4; 16]);
        let first = object_capability(&signer);
        assert!(matches!(signer.rotate(4, [5; 16]), Err(StoreError::Invalid)));
        signer.rotate(5, [5; 16]).unwrap();
        let second = object_capability(&signer);
        for capability in [&first, &second] {
            signer.verify(capability, 3, NOW, 0).unwrap();
        }
        // Nobody can say of one epoch's that it is another's.
        assert!(signer.verify(&ObjectCapability { epoch: 5, ..first }, 3, NOW, 0).is_err());
        signer.rotate(7, [7; 16]).unwrap();
        assert!(signer.verify(&first, 3, NOW, 0).is_err(), "two epochs ago");
        signer.verify(&second, 3, NOW, 0).unwrap();
        // Who has the older file only does not know the newer secret.
        assert!(ObjectSigner::new(4, [4; 16]).verify(&second, 3, NOW, 0).is_err());
    }

    #[test]
    fn the_long_hash_is_siphash_2_4_of_128_bits() {
        // Of the reference implementation (`vectors.h`, the output of 16 bytes): key 00..0f, message 00..0e.
        let key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let message: [u8; 15] = std::array::from_fn(|i| i as u8);
        let mut hasher = sip128::SipHasher24::new_with_key(&key);
        hasher.write(&message);
        let expected = [0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9];
        assert_eq!(hasher.finish128().as_bytes(), expected);
    }

    #[test]
    fn the_hash_is_siphash_2_4() {
        // Appendix A of the SipHash paper: key 00..0f, message 00..0e.
        let key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let message: [u8; 15] = std::array::from_fn(|i| i as u8);
        assert_eq!(CapabilitySigner::new(&key).0.hash(&message), 0xa129_ca61_49be_45e5);
    }
}
