//! What a start could not remove.

use crate::error::StoreError;

/// Objects that cannot be removed at a start at most.
const LEFT_MAX: usize = 1024;

/// Objects that nobody needs and that cannot be removed: they take room, and nothing else. So the store opens with them, and the next
/// start tries again. More of them than [`LEFT_MAX`] are a sign of storage that had better not be used.
#[derive(Default)]
pub(crate) struct Left {
    count: usize,
    first: Option<StoreError>,
}

impl Left {
    /// Whether it was removed; the error if that is one too many, or of another kind.
    pub fn goes_on(&mut self, removed: Result<(), StoreError>) -> Result<bool, StoreError> {
        match removed {
            Ok(()) => Ok(true),
            Err(error @ StoreError::Io { .. }) if self.count < LEFT_MAX => {
                self.count += 1;
                self.first.get_or_insert(error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub fn tell(self) {
        if let Some(error) = self.first {
            tracing::error!(objects = self.count, %error, "objects of no file cannot be removed, and take room");
        }
    }
}
