//! Proofs of where a user came to and what he opened: SipHash-2-4 (Aumasson and Bernstein, 2012) under a key that never leaves the server.

use crate::StoreError;
use isonomia_proto::fs::Capability;
use siphasher::sip::SipHasher24;

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

    #[test]
    fn the_hash_is_siphash_2_4() {
        // Appendix A of the SipHash paper: key 00..0f, message 00..0e.
        let key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let message: [u8; 15] = std::array::from_fn(|i| i as u8);
        assert_eq!(CapabilitySigner::new(&key).0.hash(&message), 0xa129_ca61_49be_45e5);
    }
}
