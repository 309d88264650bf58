//! What-if questions: one decision of an allocation scheme, a schedule of I/O phases, a plan of packs.
//!
//! What `isonomia allocate`, `isonomia plan` and the Python package have in common: input as text, with complaints
//! that name file, line and field, and reports whose fields are those of the JSON that scripts rely on. How text got
//! here and who reads the report is up to the caller.
//!
//! An error's text is the whole line; there is no further source behind it that a program would print once more.

pub mod allocate;
mod input;
pub mod plan;

pub use input::{FILE_LEN_MAX, ReadError, read, read_text};
