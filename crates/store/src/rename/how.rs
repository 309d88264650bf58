//! What becomes of what has the new name.

/// What a rename does when the new name exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameHow {
    /// Takes its place, atomically.
    #[default]
    Replace,
    /// Fails.
    NoReplace,
    /// It must exist; both change places, atomically.
    Exchange,
}
