//! What a request does, as far as the rules of `tbf` look at it.

use serde::{Deserialize, Serialize};

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// It reads bytes of a file.
    Read,
    /// It writes bytes of a file.
    Write,
    /// Anything else that a program asks for.
    Metadata,
}

impl Operation {
    /// All, in the order messages list them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Metadata];

    /// The word for it in a rule.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Metadata => "metadata",
        }
    }
}

/// What a request does. Only `tbf` and `exclusive` look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nature {
    /// `None` for what a server does by itself for a job (writing back, reading ahead): the program's own requests were or will
    /// be counted for that, so no rule selects it.
    pub operation: Option<Operation>,
    /// Operations of a program that it counts as: none for a later part of one transfer.
    pub operations: u32,
    /// A bit for each of the policy's [prefixes](crate::PolicySpec::prefixes) that its file lies below, the first one's being the lowest; and for
    /// those of the policy that decides beside it ([`Shadow`](crate::Shadow)) from the highest bit down.
    pub below: u64,
}

impl Nature {
    /// One write of a file that lies below no prefix.
    pub const WRITE: Self = Self { operation: Some(Operation::Write), operations: 1, below: 0 };
    /// A server's own work for a job.
    pub const OWN: Self = Self { operation: None, operations: 0, below: 0 };

    /// Whether it is a server's own work.
    pub fn is_own(&self) -> bool {
        self.operation.is_none()
    }
}
