//! Objects of files that several servers have parts of, as clients ask for them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Proof that its holder may use the objects of one file: a server that has some of them asks nobody else.
///
/// The server of the file's volume makes it out, and any server of the cluster verifies it: `mac` is keyed with a secret that
/// they have in common, over all other fields. It ends by itself, and holders get a new one in time; so who lost a permission
/// loses the objects that long afterwards at the latest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ObjectCapability {
    /// In the names of the objects.
    pub number: u64,
    /// The first second, since 1970, in which it is valid no more.
    pub expires_secs: u64,
    /// Which of the secrets it is made with.
    pub epoch: u64,
    /// In the names of the objects.
    pub generation: u32,
    /// What the holder may do: bits of [`crate::fs::access`].
    pub access: u32,
    /// The user that it is made out to.
    pub holder: u32,
    /// Zero.
    pub reserved: u32,
    /// The authentication code over the other fields.
    pub mac: [u64; 2],
}

impl ObjectCapability {
    /// Its bytes on the wire.
    pub const LEN: usize = size_of::<Self>();

    /// Its bytes, as on the wire.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        zerocopy::transmute!(self)
    }

    /// What [`Self::to_bytes`] gave.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        zerocopy::transmute!(bytes)
    }
}
