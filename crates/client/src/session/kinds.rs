//! Kinds of requests: which may be sent twice, which are what locks are for, and which change names or attributes.

use isonomia_proto::object::told;
use isonomia_proto::request::{Op, RequestHeader, flag};

/// Whether the request changes names or attributes, which a sync of any file or directory brings to stable storage. Opening is told
/// by its reply.
pub fn changes(request: &RequestHeader) -> bool {
    matches!(
        Op::from_code(request.op),
        Some(
            Op::SetAttr
                | Op::Mkdir
                | Op::Rmdir
                | Op::Unlink
                | Op::Rename
                | Op::Link
                | Op::Symlink
                | Op::Mknod
                | Op::SetXattr
                | Op::RemoveXattr
        )
    )
}

/// Whether what the request does is what locks are for. To have cut off what was written and not told of harms nobody.
pub fn needs_locks(request: &RequestHeader) -> bool {
    let op = Op::from_code(request.op);
    if op == Some(Op::TellSize) && request.valid & told::BEHIND != 0 {
        return false;
    }
    matches!(op, Some(Op::Read | Op::Write | Op::ReserveAppend | Op::Fallocate | Op::TellSize | Op::FindObjects))
        || op == Some(Op::SetAttr) && request.flags & flag::AS_OPENED != 0
}

/// Whether sending the request a second time, after the first may have been served, does no harm.
pub fn may_repeat(request: &RequestHeader) -> bool {
    match Op::from_code(request.op) {
        Some(
            Op::GetAttr
            | Op::SetAttr
            | Op::Release
            | Op::ReleaseMany
            | Op::Adopt
            | Op::Read
            | Op::Fsync
            | Op::Readlink
            | Op::ReadDir
            | Op::Access
            | Op::StatFs
            | Op::PathOf
            | Op::Delegate
            | Op::MapFile
            | Op::Lock
            | Op::TakeMapping
            | Op::GiveMapping
            | Op::AwaitMappings
            | Op::HandOver
            | Op::GetXattr
            | Op::ListXattrs
            | Op::Fallocate
            | Op::SeekData
            | Op::SeekHole
            | Op::FindObjects
            | Op::TellSize
            | Op::Phase,
        ) => true,
        Some(Op::Write) => request.flags & flag::APPEND == 0,
        // Sent twice, an open that creates a file without a name makes two of them, and the first would stay until this process
        // ends, for nobody knows of it.
        Some(Op::Open) => request.flags & (flag::EXCLUSIVE | flag::UNNAMED) == 0,
        Some(Op::SetXattr) => request.flags & (flag::NO_REPLACE | flag::MUST_REPLACE) == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::Ino;

    #[test]
    fn what_creates_or_removes_names_is_not_repeated() {
        let repeat = |op, flags| may_repeat(&RequestHeader { flags, ..RequestHeader::new(op, Ino::ROOT) });
        assert!(repeat(Op::Read, 0) && repeat(Op::Write, 0) && repeat(Op::Write, flag::WRITE_BACK));
        assert!(!repeat(Op::Write, flag::APPEND));
        assert!(repeat(Op::Open, flag::CREATE) && !repeat(Op::Open, flag::CREATE | flag::EXCLUSIVE));
        assert!(repeat(Op::Fallocate, 0) && !repeat(Op::Open, flag::UNNAMED));
        for op in [Op::Mkdir, Op::Rmdir, Op::Unlink, Op::Rename, Op::Link, Op::Symlink, Op::Mknod, Op::ReserveAppend] {
            assert!(!repeat(op, 0), "{op:?}");
        }
        assert!(repeat(Op::SetXattr, 0) && !repeat(Op::SetXattr, flag::NO_REPLACE) && !repeat(Op::RemoveXattr, 0));
    }
}
