//! Whether what was synced of a file is there after hosts lost power.
//!
//! What was acknowledged and not synced may be gone then, so the answers need not be those of one file any more. But a read
//! after an `fsync` finds what was written before that, or what was done to the block since: another value
//! that somebody wrote, or nothing where the file may have been cut, removed or made anew.
//!
//! A client that syncs is told nothing of a power failure between its write and its `fsync`. So what was written before one counts only if
//! it was synced before that as well.

use crate::file_model::{Block, FileAsked, FileGot};
use crate::linear::Operation;
use isonomia_units::Nanos;

type Done = Operation<FileAsked, FileGot>;

fn writes(operation: &Done) -> Option<(Block, u8)> {
    match operation.asked {
        FileAsked::Write(block, value) | FileAsked::Fill(block, value) => Some((block, value)),
        _ => None,
    }
}

/// When it returned that it is done.
fn done_at(operation: &Done) -> Option<Nanos> {
    operation.returned.filter(|(_, got)| *got == FileGot::Done).map(|(at, _)| at)
}

/// What is wrong with `history`, which is one file's, where hosts lost power at these times.
pub fn check(history: &[Done], power_losses: &[Nanos]) -> Option<String> {
    for read in history {
        let (FileAsked::Read(block), Some((read_at, got))) = (&read.asked, read.returned) else { continue };
        let found = if let FileGot::Value(value) = got { value } else { 0 };
        let before = |operation: &&Done| operation.called < read_at;
        let of_block = |operation: &&Done| writes(operation).is_some_and(|(of, _)| of == *block);
        let is_it = |operation: &&Done| writes(operation) == Some((*block, found));
        let takes_away = |operation: &&Done| {
            matches!(operation.asked, FileAsked::Truncate(_) | FileAsked::Unlink | FileAsked::Create)
        };
        if found != 0 && !history.iter().filter(before).any(|operation| is_it(&operation)) {
            return Some(format!("{read:?} found what nobody wrote"));
        }
        for write in history.iter().filter(of_block) {
            let Some(written_at) = done_at(write) else { continue };
            let is_synced = history.iter().any(|sync| {
                let synced_at = done_at(sync).filter(|at| sync.asked == FileAsked::Sync && *at < read.called);
                let is_after = synced_at.filter(|_| sync.called > written_at);
                is_after.is_some_and(|at| !power_losses.iter().any(|loss| (write.called..=at).contains(loss)))
            });
            let is_older = |operation: &&Done| operation.returned.is_some_and(|(at, _)| at < write.called);
            let mut since = history.iter().filter(before).filter(|operation| !is_older(operation));
            let is_explained =
                since.any(|operation| if found == 0 { takes_away(&operation) } else { is_it(&operation) });
            if is_synced && !is_explained {
                return Some(format!("{write:?} was synced, and {read:?} did not find it"));
            }
        }
    }
    None
}
