//! What the database keeps of an inode.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | mode |
//! | 4 | 4 | links |
//! | 8 | 4 | uid |
//! | 12 | 4 | gid |
//! | 16 | 8 | size |
//! | 24 | 8 | device number |
//! | 32 | 24 | seconds of atime, mtime, ctime |
//! | 56 | 12 | nanoseconds of atime, mtime, ctime |
//! | 68 | 4 | flags: 1 = object files may exist, 2 = it has extended attributes, 4 = blocks of objects have checksums, 8 = a spread file ([`crate::spread`]), 16 = the blocks of a spread file were counted |
//! | 72 | 4 | generation of the inode |
//! | 76 | 4 | generation of the objects of a regular file |
//! | 80 | 8 | number of the objects of a regular file |
//! | 88 | 8 | blocks of 512 bytes that the objects of a regular file take, or all ones if that is not known; of a spread file that was not counted nothing is meant by it |
//! | 96 | … | regular file: layout ([`Layout::encode`]), then, if object files may exist, a bit for each that was created, and of a spread file the number of its last cut (8); directory: parent inode (8), own name; symbolic link: text |
//!
//! Integers are little-endian.

use crate::object::ObjectsId;
use isonomia_proto::fs::{Attr, FileKind, Layout, Timestamp};
use std::sync::Arc;

const FIXED_LEN: usize = 96;
/// In [`Record::blocks`]: nobody has counted since the file was written to.
pub(crate) const BLOCKS_UNKNOWN: u64 = u64::MAX;
const FLAG_OBJECTS: u32 = 1;
const FLAG_XATTRS: u32 = 2;
const FLAG_SUMS: u32 = 4;
const FLAG_SPREAD: u32 = 8;
/// Records of spread files had other blocks before there was this flag.
const FLAG_COUNTED: u32 = 16;
/// Where the number of targets stands in a layout, and what each adds to its length.
const LAYOUT_COUNT: std::ops::Range<usize> = 8..10;
const LAYOUT_TARGET_LEN: usize = 2;
/// What a directory says its size is; its entries live in the database.
const DIRECTORY_SIZE_BYTES: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub rdev: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Drawn when the store was opened for the run that created the inode.
    pub generation: u32,
    /// Which objects are the file's; of no meaning for other inodes.
    pub objects: ObjectsId,
    /// Blocks of 512 bytes that the objects take, or [`BLOCKS_UNKNOWN`]; of no meaning for other inodes.
    pub blocks: u64,
    /// Object files may exist; while this is false removing the inode touches no target.
    pub has_objects: bool,
    /// Which of them were created, a bit each; one of these that is missing is lost. Empty without objects.
    pub created: Box<[u8]>,
    /// Every block of the objects has a checksum.
    pub has_sums: bool,
    /// Of a spread file, which has no objects in here, the number of its last cut.
    pub spread: Option<u64>,
    /// It has extended attributes; while this is false nothing looks for any.
    pub has_xattrs: bool,
    pub body: Body,
}

impl Record {
    /// Of an inode that is created, with its first name, and without size or objects.
    pub fn new(
        (ino, generation): (u64, u32),
        (kind, bits): (FileKind, u32),
        (uid, gid): (u32, u32),
        body: Body,
        now: Timestamp,
    ) -> Self {
        Self {
            mode: kind.mode_bits() | bits,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            uid,
            gid,
            size: 0,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            generation,
            objects: ObjectsId { number: ino, generation },
            blocks: 0,
            has_objects: false,
            created: [].into(),
            has_sums: false,
            spread: None,
            has_xattrs: false,
            body,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Regular(Arc<Layout>),
    /// The directory above and the name there; the root is its own parent without a name.
    Directory {
        parent: u64,
        name: Arc<[u8]>,
    },
    Symlink(Arc<[u8]>),
    Node,
}

impl Record {
    pub fn kind(&self) -> FileKind {
        match &self.body {
            Body::Regular(_) => FileKind::Regular,
            Body::Directory { .. } => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Node => FileKind::from_mode(self.mode).unwrap_or(FileKind::Fifo),
        }
    }

    /// Whether it is a directory that says that it has this name there.
    pub fn is_named(&self, dir: u64, called: &[u8]) -> bool {
        matches!(&self.body, Body::Directory { parent, name } if *parent == dir && **name == *called)
    }

    pub fn is_dir(&self) -> bool {
        matches!(self.body, Body::Directory { .. })
    }

    /// With the blocks of a regular file only if they are known.
    pub fn attr(&self, ino: u64) -> Attr {
        let size_bytes = if self.is_dir() { DIRECTORY_SIZE_BYTES } else { self.size };
        let blocks = match &self.body {
            Body::Regular(_) if self.blocks != BLOCKS_UNKNOWN => self.blocks,
            Body::Directory { .. } => size_bytes.div_ceil(512),
            _ => 0,
        };
        Attr {
            ino,
            size_bytes,
            blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED_LEN + 32);
        for field in [self.mode, self.nlink, self.uid, self.gid] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.rdev.to_le_bytes());
        let times = [self.atime, self.mtime, self.ctime];
        times.iter().for_each(|t| out.extend_from_slice(&t.secs.to_le_bytes()));
        times.iter().for_each(|t| out.extend_from_slice(&t.nanos.to_le_bytes()));
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.has_objects, FLAG_OBJECTS)
            | flag(self.has_xattrs, FLAG_XATTRS)
            | flag(self.has_sums, FLAG_SUMS)
            | flag(self.spread.is_some(), FLAG_SPREAD)
            | flag(self.spread.is_some() && self.blocks != BLOCKS_UNKNOWN, FLAG_COUNTED);
        for field in [flags, self.generation, self.objects.generation] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.objects.number.to_le_bytes());
        out.extend_from_slice(&self.blocks.to_le_bytes());
        match &self.body {
            Body::Regular(layout) => {
                layout.encode(&mut out);
                if self.has_objects {
                    out.extend_from_slice(&self.created);
                }
                if let Some(cuts) = self.spread {
                    out.extend_from_slice(&cuts.to_le_bytes());
                }
            }
            Body::Directory { parent, name } => {
                out.extend_from_slice(&parent.to_le_bytes());
                out.extend_from_slice(name);
            }
            Body::Symlink(text) => out.extend_from_slice(text),
            Body::Node => {}
        }
        out
    }

    /// `None` for bytes that [`Record::encode`] does not make.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (fixed, tail) = bytes.split_first_chunk::<FIXED_LEN>()?;
        let u32_at = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let time = |i: usize| Timestamp::new(u64_at(32 + 8 * i) as i64, u32_at(56 + 4 * i));
        let mode = u32_at(0);
        let has_objects = u32_at(68) & FLAG_OBJECTS != 0;
        let is_spread = u32_at(68) & FLAG_SPREAD != 0;
        let is_counted = !is_spread || u32_at(68) & FLAG_COUNTED != 0;
        let (mut created, mut spread) = (&[][..], None);
        let body = match FileKind::from_mode(mode)? {
            FileKind::Regular => {
                let count = usize::from(u16::from_le_bytes(tail.get(LAYOUT_COUNT)?.try_into().ok()?));
                let (layout, rest) = tail.split_at_checked(LAYOUT_COUNT.end + LAYOUT_TARGET_LEN * count)?;
                let (bits, rest) = rest.split_at_checked(if has_objects { count.div_ceil(8) } else { 0 })?;
                if rest.len() != if is_spread { 8 } else { 0 } {
                    return None;
                }
                (created, spread) = (bits, rest.first_chunk().map(|cuts| u64::from_le_bytes(*cuts)));
                Body::Regular(Arc::new(Layout::decode(layout).ok()?))
            }
            FileKind::Directory => {
                let (parent, name) = tail.split_first_chunk::<8>()?;
                Body::Directory { parent: u64::from_le_bytes(*parent), name: name.into() }
            }
            FileKind::Symlink => Body::Symlink(tail.into()),
            FileKind::Fifo | FileKind::CharDevice | FileKind::BlockDevice | FileKind::Socket => Body::Node,
        };
        Some(Self {
            mode,
            nlink: u32_at(4),
            uid: u32_at(8),
            gid: u32_at(12),
            size: u64_at(16),
            rdev: u64_at(24),
            atime: time(0)?,
            mtime: time(1)?,
            ctime: time(2)?,
            generation: u32_at(72),
            objects: ObjectsId { number: u64_at(80), generation: u32_at(76) },
            blocks: if is_counted { u64_at(88) } else { BLOCKS_UNKNOWN },
            has_objects,
            created: created.into(),
            has_sums: u32_at(68) & FLAG_SUMS != 0,
            spread,
            has_xattrs: u32_at(68) & FLAG_XATTRS != 0,
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::TargetId;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = Record> {
        let body = prop_oneof![
            (1u64..99, proptest::collection::vec(any::<u16>(), 1..9)).prop_map(|(pages, targets)| (
                FileKind::Regular,
                Body::Regular(Arc::new(Layout {
                    stripe_bytes: pages * 4096,
                    targets: targets.into_iter().map(TargetId).collect(),
                    grows: false
                }))
            )),
            (any::<u64>(), any::<Vec<u8>>())
                .prop_map(|(parent, name)| (FileKind::Directory, Body::Directory { parent, name: name.into() })),
            any::<Vec<u8>>().prop_map(|text| (FileKind::Symlink, Body::Symlink(text.into()))),
            Just((FileKind::Socket, Body::Node)),
        ];
        let time = (any::<i64>(), 0u32..1_000_000_000).prop_map(|(s, n)| Timestamp::new(s, n).unwrap());
        let words = (any::<[u32; 5]>(), any::<[u64; 5]>(), any::<[bool; 4]>(), 0u32..0o10000);
        (words, [time.clone(), time.clone(), time], body).prop_map(
            |(
                (ids, wide, [has_objects, has_xattrs, has_sums, is_spread], bits),
                [atime, mtime, ctime],
                (kind, body),
            )| {
                let count = match &body {
                    Body::Regular(layout) if has_objects => layout.targets.len().div_ceil(8),
                    _ => 0,
                };
                Record {
                    mode: kind.mode_bits() | bits,
                    nlink: ids[0],
                    uid: ids[1],
                    gid: ids[2],
                    size: wide[0],
                    rdev: wide[1],
                    atime,
                    mtime,
                    ctime,
                    generation: ids[3],
                    objects: ObjectsId { number: wide[2], generation: ids[4] },
                    blocks: wide[3],
                    has_objects,
                    created: vec![0x5a; count].into(),
                    has_sums,
                    spread: (is_spread && kind == FileKind::Regular).then_some(wide[4]),
                    has_xattrs,
                    body,
                }
            },
        )
    }

    #[test]
    fn what_older_records_of_spread_files_say_of_blocks_is_not_believed() {
        let layout = Layout { stripe_bytes: 4096, targets: vec![TargetId(3)], grows: false };
        let body = Body::Regular(Arc::new(layout));
        let record = Record::new((7, 1), (FileKind::Regular, 0o644), (0, 0), body, Timestamp::default());
        let mut bytes = Record { spread: Some(2), blocks: 8, ..record }.encode();
        assert_eq!(Record::decode(&bytes).unwrap().blocks, 8);
        bytes[68] &= !(FLAG_COUNTED as u8);
        assert_eq!(Record::decode(&bytes).unwrap().blocks, BLOCKS_UNKNOWN);
    }

    proptest! {
        #[test]
        fn records_survive_the_database(record in record()) {
            prop_assert_eq!(Record::decode(&record.encode()), Some(record));
        }

        #[test]
        fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::decode(&bytes);
        }
    }
}
