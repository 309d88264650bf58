//! One file as one process on one host would see it: it comes and goes, and has a size and blocks.

use crate::linear::{Outcome, State};
use std::collections::BTreeMap;

/// A block of a file, by its position.
pub type Block = u8;
/// Blocks of a file to which nothing is appended.
pub const LONGEST: Block = 8;

/// What a client asks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAsked {
    /// `open` with `O_CREAT | O_EXCL`.
    Create,
    /// `unlink`.
    Unlink,
    /// Write this value into this block.
    Write(Block, u8),
    /// What is in this block?
    Read(Block),
    /// `truncate` to so many blocks.
    Truncate(Block),
    /// How many blocks are there?
    Size,
    /// Make room for a block at the end, to append something.
    Grow,
    /// Write this value into the room.
    Fill(Block, u8),
    /// `fsync`.
    Sync,
}

/// What a client got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileGot {
    /// It is done.
    Done,
    /// The value of a block; 0 in a hole.
    Value(u8),
    /// The block is behind the end.
    End,
    /// So many blocks.
    Size(Block),
    /// Room for this block.
    Room(Block),
    /// The room is gone, and nothing happened.
    Lost,
    /// ENOENT.
    NotFound,
    /// EEXIST.
    Exists,
}

/// A file, or that there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct File(Option<(Block, BTreeMap<Block, u8>)>);

impl State for File {
    type Asked = FileAsked;
    type Result = FileGot;

    fn apply(&self, _: usize, asked: &FileAsked, result: Option<&FileGot>) -> Outcome<Self> {
        let mut next = self.clone();
        if result == Some(&FileGot::Lost) {
            return Outcome::Fits(next);
        }
        let got = match (&mut next.0, *asked) {
            (Some(_), FileAsked::Create) => FileGot::Exists,
            (None, FileAsked::Create) => {
                next.0 = Some(Default::default());
                FileGot::Done
            }
            (None, _) => FileGot::NotFound,
            (Some(_), FileAsked::Unlink) => {
                next.0 = None;
                FileGot::Done
            }
            (Some((size, _)), FileAsked::Grow) if *size >= LONGEST => FileGot::End,
            (Some((size, _)), FileAsked::Grow) => {
                *size += 1;
                FileGot::Room(*size - 1)
            }
            (Some(_), FileAsked::Sync) => FileGot::Done,
            (Some((size, blocks)), FileAsked::Write(block, value) | FileAsked::Fill(block, value)) => {
                *size = (*size).max(block + 1);
                blocks.insert(block, value);
                FileGot::Done
            }
            (Some((size, _)), FileAsked::Read(block)) if block >= *size => FileGot::End,
            (Some((_, blocks)), FileAsked::Read(block)) => FileGot::Value(blocks.get(&block).copied().unwrap_or(0)),
            (Some((size, blocks)), FileAsked::Truncate(to)) => {
                *size = to;
                blocks.retain(|block, _| *block < to);
                FileGot::Done
            }
            (Some((size, _)), FileAsked::Size) => FileGot::Size(*size),
        };
        if result.is_none_or(|result| *result == got) { Outcome::Fits(next) } else { Outcome::Differs }
    }
}
