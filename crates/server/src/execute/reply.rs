//! The payload of a reply, while an operation puts it together.

use isonomia_store::StoreError;

/// Where an operation puts its reply's payload.
pub struct Reply<'a> {
    /// Where the client finds it.
    pub room: &'a mut [u8],
    /// So much of it is filled.
    pub len: usize,
    /// Of the reply's header.
    pub value: u64,
    /// The same.
    pub cuts: u64,
}

impl<'a> Reply<'a> {
    /// Room for a payload.
    pub fn new(room: &'a mut [u8]) -> Self {
        Self { room, len: 0, value: 0, cuts: 0 }
    }

    /// Puts these bytes after the others.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let room = self.room.get_mut(self.len..self.len + bytes.len()).ok_or(StoreError::Invalid)?;
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Puts what a caller has room for `len_max` bytes for, if that is not 0; `value` tells the length either way.
    pub fn put_if_wanted(&mut self, bytes: &[u8], len_max: u32) -> Result<(), StoreError> {
        self.value = bytes.len() as u64;
        match len_max as usize {
            0 => Ok(()),
            len_max if bytes.len() > len_max => Err(StoreError::Range),
            _ => self.put(bytes),
        }
    }
}
