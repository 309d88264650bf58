//! Worked examples of the model: what POSIX and the manual pages say of one call after the other.

use isonomia_conformance::model::{Contents, Model, Person};
use isonomia_conformance::{Actor, Attr, OpenHow, Operation, Outcome, RenameHow, XattrHow};
use nix::errno::Errno;
use proptest::prelude::*;

const READ_WRITE: OpenHow = OpenHow {
    read: true,
    write: true,
    append: false,
    create: false,
    exclusive: false,
    truncate: false,
    no_follow: false,
    directory: false,
    mode: 0o666,
};
const CREATE: OpenHow = OpenHow { create: true, ..READ_WRITE };

/// Root, and two others with a group in common, on a file system whose root directory is everybody's.
fn people() -> [Model; 3] {
    let person = |id| Person { uid: id, gid: id, groups: if id == 0 { &[] } else { &[7] } };
    let processes = Model::processes(&[person(0), person(1), person(2)], 0o022);
    let mut people: [Model; 3] = processes.try_into().expect("three");
    does(&mut people[0], chmod("", 0o777), Outcome::Done);
    people
}

fn does(who: &mut Model, operation: Operation, outcome: Outcome) {
    assert_eq!(who.act(&operation), outcome, "{operation:?}");
}

fn fails(who: &mut Model, operation: Operation, errno: Errno) {
    does(who, operation, Outcome::Failed(errno as i32));
}

fn attr(who: &mut Model, path: &str) -> Attr {
    match who.act(&Operation::Stat { path: path.into(), follow: false }) {
        Outcome::Attr(attr) => attr,
        other => panic!("{path}: {other:?}"),
    }
}

fn open(slot: usize, path: &str, how: OpenHow) -> Operation {
    Operation::Open { slot, path: path.into(), how }
}

fn write(slot: usize, len: usize, fill: u8) -> Operation {
    Operation::Write { slot, len, fill }
}

fn mkdir(path: &str) -> Operation {
    Operation::Mkdir { path: path.into(), mode: 0o777 }
}

fn chmod(path: &str, mode: u32) -> Operation {
    Operation::Chmod { path: path.into(), mode }
}

fn symlink(text: &str, path: &str) -> Operation {
    Operation::Symlink { text: text.into(), path: path.into() }
}

fn rename(path: &str, to: &str, how: RenameHow) -> Operation {
    Operation::Rename { path: path.into(), to: to.into(), how }
}

#[test]
fn duplicates_share_the_position_and_appending_ignores_it() {
    let [who, ..] = &mut people();
    does(who, open(0, "f", OpenHow { append: true, ..CREATE }), Outcome::Done);
    does(who, Operation::Duplicate { slot: 0, to: 1 }, Outcome::Done);
    does(who, write(0, 3, b'a'), Outcome::Count(3));
    does(who, Operation::WriteAt { slot: 1, offset: 0, len: 2, fill: b'b' }, Outcome::Count(2));
    does(who, Operation::Read { slot: 1, len: 9 }, Outcome::Bytes(vec![(b'b', 2)]));
    does(who, Operation::Close { slot: 0 }, Outcome::Done);
    does(who, Operation::ReadAt { slot: 1, offset: 0, len: 9 }, Outcome::Bytes(vec![(b'a', 3), (b'b', 2)]));
    fails(who, Operation::Read { slot: 0, len: 1 }, Errno::EBADF);
}

#[test]
fn holes_are_zeros_also_after_a_cut() {
    let [who, ..] = &mut people();
    does(who, open(0, "f", CREATE), Outcome::Done);
    does(who, write(0, 5, b'x'), Outcome::Count(5));
    does(who, Operation::Resize { slot: 0, size: 2 }, Outcome::Done);
    does(who, Operation::Truncate { path: "f".into(), size: 4 }, Outcome::Done);
    does(who, Operation::MapRead { slot: 0, page: 0, len: 100 }, Outcome::Bytes(vec![(b'x', 2), (0, 2)]));
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let [who, ..] = &mut people();
    does(who, open(0, "f", CREATE), Outcome::Done);
    does(who, Operation::Link { path: "f".into(), to: "g".into() }, Outcome::Done);
    assert_eq!(attr(who, "g").nlink, 2);
    for name in ["f", "g"] {
        does(who, Operation::Unlink { path: name.into() }, Outcome::Done);
    }
    does(who, write(0, 1, 1), Outcome::Count(1));
    let gone = Attr { mode: 0o100_644, uid: 0, gid: 0, nlink: 0, size: 1, mtime: None };
    does(who, Operation::StatSlot { slot: 0 }, Outcome::Attr(gone));
}

#[test]
fn links_are_followed_where_they_are() {
    let [who, ..] = &mut people();
    does(who, mkdir("d"), Outcome::Done);
    does(who, symlink("../f", "d/up"), Outcome::Done);
    does(who, symlink("loop", "loop"), Outcome::Done);
    does(who, open(0, "d/up", CREATE), Outcome::Done);
    assert_eq!(attr(who, "f").mode, 0o100_644);
    fails(who, open(0, "d/up", OpenHow { exclusive: true, ..CREATE }), Errno::EEXIST);
    fails(who, open(0, "d/up", OpenHow { no_follow: true, ..READ_WRITE }), Errno::ELOOP);
    fails(who, open(0, "loop", READ_WRITE), Errno::ELOOP);
    fails(who, Operation::Stat { path: "d/up/".into(), follow: false }, Errno::ENOTDIR);
    fails(who, open(0, "new/", CREATE), Errno::EISDIR);
    fails(who, Operation::Unlink { path: "d/up/".into() }, Errno::ENOTDIR);
    does(who, symlink("d", "to-d"), Outcome::Done);
    assert_eq!(attr(who, "to-d").mode, 0o120_777);
    assert_eq!(attr(who, "to-d/").nlink, 2);
    fails(who, Operation::Rmdir { path: "to-d/".into() }, Errno::ENOTDIR);
}

#[test]
fn renaming_replaces_what_is_alike_and_never_goes_below_itself() {
    let [who, ..] = &mut people();
    for dir in ["a", "a/b", "c"] {
        does(who, mkdir(dir), Outcome::Done);
    }
    does(who, open(0, "f", CREATE), Outcome::Done);
    fails(who, rename("a", "a/b/c", RenameHow::Replace), Errno::EINVAL);
    fails(who, rename("a/b", "a", RenameHow::Replace), Errno::ENOTEMPTY);
    fails(who, rename("a/b", "a", RenameHow::Exchange), Errno::EINVAL);
    fails(who, rename("c", "a", RenameHow::Replace), Errno::ENOTEMPTY);
    fails(who, rename("f", "c", RenameHow::Replace), Errno::EISDIR);
    fails(who, rename("c", "f", RenameHow::Replace), Errno::ENOTDIR);
    fails(who, rename("f", "c", RenameHow::NoReplace), Errno::EEXIST);
    fails(who, rename("f", "none", RenameHow::Exchange), Errno::ENOENT);
    does(who, rename("f", "a", RenameHow::Exchange), Outcome::Done);
    assert_eq!(attr(who, "f").nlink, 3, "it is the directory now");
    does(who, rename("f/b", "c", RenameHow::Replace), Outcome::Done);
    assert_eq!(attr(who, "f").nlink, 2);
    does(who, Operation::List { path: "".into() }, Outcome::Names(vec!["a".into(), "c".into(), "f".into()]));
}

#[test]
fn the_first_class_of_permissions_that_fits_counts() {
    let [root, ann, ben] = &mut people();
    does(ann, open(0, "f", CREATE), Outcome::Done);
    does(ann, chmod("f", 0o066), Outcome::Done);
    fails(ann, open(0, "f", READ_WRITE), Errno::EACCES);
    does(ben, open(0, "f", READ_WRITE), Outcome::Done);
    does(root, open(0, "f", READ_WRITE), Outcome::Done);
    fails(root, Operation::Access { path: "f".into(), mask: 1 }, Errno::EACCES);
    fails(ben, chmod("f", 0o777), Errno::EPERM);
    fails(ben, Operation::Chown { path: "f".into(), uid: Some(2), gid: None }, Errno::EPERM);
    fails(ann, Operation::Chown { path: "f".into(), uid: None, gid: Some(2) }, Errno::EPERM);
    does(ann, Operation::Chown { path: "f".into(), uid: None, gid: Some(7) }, Outcome::Done);
    assert_eq!((attr(root, "f").uid, attr(root, "f").gid), (1, 7));
}

#[test]
fn sticky_directories_protect_names_and_set_group_ones_give_their_group() {
    let [root, ann, ben] = &mut people();
    does(root, mkdir("d"), Outcome::Done);
    does(root, Operation::Chown { path: "d".into(), uid: None, gid: Some(7) }, Outcome::Done);
    does(root, chmod("d", 0o3777), Outcome::Done);
    does(ann, open(0, "d/f", CREATE), Outcome::Done);
    does(ann, mkdir("d/e"), Outcome::Done);
    assert_eq!((attr(ann, "d/f").gid, attr(ann, "d/e").mode), (7, 0o042_755));
    fails(ben, Operation::Unlink { path: "d/f".into() }, Errno::EPERM);
    fails(ben, rename("d/f", "f", RenameHow::Replace), Errno::EPERM);
    does(ann, rename("d/f", "f", RenameHow::Replace), Outcome::Done);
}

#[test]
fn attributes_of_users_are_for_files_and_directories() {
    let [root, ann, ben] = &mut people();
    let set = |path: &str, how| Operation::SetXattr { path: path.into(), name: "user.a".into(), len: 2, fill: 9, how };
    let get = |path: &str| Operation::GetXattr { path: path.into(), name: "user.a".into() };
    does(ann, open(0, "f", CREATE), Outcome::Done);
    fails(ann, set("f", XattrHow::Replace), Errno::ENODATA);
    does(ann, set("f", XattrHow::Create), Outcome::Done);
    fails(ann, set("f", XattrHow::Create), Errno::EEXIST);
    fails(ben, set("f", XattrHow::Either), Errno::EACCES);
    does(ben, get("f"), Outcome::Bytes(vec![(9, 2)]));
    does(root, Operation::Socket { path: "s".into(), mode: 0o666 }, Outcome::Done);
    fails(root, set("s", XattrHow::Either), Errno::EPERM);
    fails(root, get("s"), Errno::ENODATA);
    fails(root, open(0, "s", READ_WRITE), Errno::ENXIO);
    does(ann, Operation::ListXattrs { path: "f".into() }, Outcome::Names(vec!["user.a".into()]));
}

#[test]
fn a_time_stays_until_something_is_modified() {
    let [who, ..] = &mut people();
    let set = |path: &str| Operation::Times { path: path.into(), secs: 5 };
    does(who, mkdir("d"), Outcome::Done);
    does(who, open(0, "d/f", CREATE), Outcome::Done);
    does(who, set("d"), Outcome::Done);
    does(who, set("d/f"), Outcome::Done);
    does(who, write(0, 0, 1), Outcome::Count(0));
    does(who, Operation::Truncate { path: "d/f".into(), size: 0 }, Outcome::Done);
    assert_eq!((attr(who, "d").mtime, attr(who, "d/f").mtime), (Some(5), Some(5)));
    does(who, Operation::Resize { slot: 0, size: 0 }, Outcome::Done);
    assert_eq!((attr(who, "d").mtime, attr(who, "d/f").mtime), (Some(5), None));
    does(who, rename("d/f", "d/g", RenameHow::Replace), Outcome::Done);
    assert_eq!(attr(who, "d").mtime, None);
}

proptest! {
    /// A file is a row of bytes.
    #[test]
    fn contents_are_bytes(steps in prop::collection::vec((any::<bool>(), 0usize..100, 0usize..50, any::<u8>()), 1..40)) {
        let (mut contents, mut bytes) = (Contents::default(), Vec::new());
        for (is_write, at, len, fill) in steps {
            if !is_write {
                contents.resize(at as u64);
                bytes.resize(at, 0);
            } else if len > 0 {
                contents.write(at as u64, len as u64, fill);
                bytes.resize(bytes.len().max(at + len), 0);
                bytes[at..at + len].fill(fill);
            }
            prop_assert_eq!(contents.size(), bytes.len() as u64);
            prop_assert_eq!(contents.read(0, 1000), bytes.clone());
            let from = at.min(bytes.len());
            prop_assert_eq!(contents.read(at as u64, len as u64), bytes[from..bytes.len().min(from + len)].to_vec());
        }
    }
}
