//! The file model that both sides share.

use crate::NAME_LEN_MAX;
use isonomia_units::{Ino, TargetId};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A point in time since the Unix epoch, as in `struct timespec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Timestamp {
    /// Seconds, negative before 1970.
    pub secs: i64,
    /// Nanoseconds past `secs`, below 10^9.
    pub nanos: u32,
    reserved: u32,
}

/// What `stat` reports of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Size in bytes; for a symbolic link the length of its target.
    pub size_bytes: u64,
    /// Space in use, in units of 512 bytes.
    pub blocks: u64,
    /// Last access. Kept like `noatime`: changed by `utimes` only.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the attributes or the content.
    pub ctime: Timestamp,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, else 0.
    pub rdev: u64,
}

/// The kind of an inode: the `S_IFMT` part of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// A named pipe.
    Fifo = 1,
    /// A character device node.
    CharDevice = 2,
    /// A directory.
    Directory = 4,
    /// A block device node.
    BlockDevice = 6,
    /// A regular file.
    Regular = 8,
    /// A symbolic link.
    Symlink = 10,
    /// A socket's name.
    Socket = 12,
}

/// `S_IFMT`: the bits of a mode that hold the [`FileKind`].
pub const MODE_KIND_MASK: u32 = 0o170_000;
/// The bits of a mode that `chmod` sets.
pub const MODE_PERMISSION_MASK: u32 = 0o7_777;

/// How a file's bytes are spread over targets: stripe `i` of `stripe_bytes` lies on `targets[i % n]`, unless the layout grows.
///
/// Of one that grows the file is in *components*, one after the other, like Lustre's progressive layouts: the first is on one target,
/// each further one on [`Layout::GROWTH`] times as many of the same list, as far as there are; each has
/// [`Layout::COMPONENT_STRIPES`] stripes on each of its targets, and the last one, on all of them, has no end. So a small file is
/// on one target, a large one on all, and no byte moves while it grows: an object that is not reached yet is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes on one target before the next takes over; a positive multiple of 4096.
    pub stripe_bytes: u64,
    /// The targets in order, 1 to [`Layout::TARGETS_MAX`].
    pub targets: Vec<TargetId>,
    /// There are more stripes beside each other as the file grows.
    pub grows: bool,
}

/// A part of a file that lies on the first `width` of its targets, counted in stripes.
struct Component {
    /// Where it begins in the file.
    first: u64,
    /// Where it begins in each of its objects.
    in_object: u64,
    /// Targets beside each other.
    width: u64,
    /// Stripes in it; of the last one as many as there can be.
    stripes: u64,
}

/// Where a byte of a file is. Object `i` of a file is on the `i`th target of its layout; stripe `s` of `n` targets is at
/// `(s / n) · stripe_bytes` of object `s mod n`, or, if the layout grows, the same within its component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Index of the object.
    pub index: usize,
    /// Offset in the object.
    pub offset: u64,
    /// Bytes from here on that lie in the object without a break.
    pub run: u64,
}

/// What a rename does when the new name exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameHow {
    /// What is renamed replaces it, atomically, as in `rename(2)`.
    #[default]
    Replace,
    /// It fails.
    NoReplace,
    /// It must exist; both are exchanged, atomically.
    Exchange,
}

/// Proof that its holder came to the inode, and what of it was opened: data requests carry it, and all that begin at an
/// inode other than the root. So servers keep no table of open files, and a descriptor survives `fork`, `exec`, and a
/// restart of the server.
///
/// `mac` is keyed with a secret of the server over the other fields. It is valid for one user: another one's session may not
/// use it, unless it is trusted ([`crate::request::Op::Delegate`] makes it out to another user). It has no end, so it
/// proves what its holder was allowed once, like a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Capability {
    /// The inode.
    pub ino: u64,
    /// What the holder may do: see [`access`].
    pub access: u32,
    /// Which of the inodes that ever had this number it is.
    pub generation: u32,
    /// The server's authentication code over the other fields; 0 if nothing is proven.
    pub mac: u64,
    /// The user that it is made out to.
    pub holder: u32,
    /// Zero.
    pub reserved: u32,
}

/// An inode that a request found or made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Node {
    /// Its attributes.
    pub attr: Attr,
    /// Where later requests of this user may begin; with nothing proven for a session that needs no proof, or did not ask for
    /// one.
    pub capability: Capability,
}

impl Capability {
    /// The root, where everybody may begin.
    pub const ROOT: Self = Self::unproven(Ino::ROOT);

    /// An inode named without a proof: where trusted sessions may begin, and everybody if it is the root.
    pub const fn unproven(ino: Ino) -> Self {
        Self { ino: ino.0, access: 0, generation: 0, mac: 0, holder: 0, reserved: 0 }
    }

    /// Bytes of a capability, in requests that carry one as payload and where programs keep one.
    pub const LEN: usize = size_of::<Self>();

    /// Its bytes, as on the wire.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        zerocopy::transmute!(self)
    }

    /// What [`Self::to_bytes`] gave.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// Whether there is a proof, right or wrong.
    pub const fn is_proven(&self) -> bool {
        self.mac != 0
    }
}

/// See [`Capability::unproven`].
impl From<Ino> for Capability {
    fn from(ino: Ino) -> Self {
        Self::unproven(ino)
    }
}

impl From<&Self> for Capability {
    fn from(capability: &Self) -> Self {
        *capability
    }
}

/// Bits of [`Capability::access`], and of what an open asks for. Without any, a capability proves where requests may begin
/// and nothing else.
pub mod access {
    /// Reading is allowed.
    pub const READ: u32 = 1;
    /// Writing and truncating are allowed.
    pub const WRITE: u32 = 2;
    /// Asked for with [`READ`], and never in a capability: it is a kernel that will read, to execute the file for its caller.
    /// So the caller needs no permission to read, but the one to execute.
    pub const EXECUTE: u32 = 4;
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Inode number.
    pub ino: Ino,
    /// Where a listing goes on after this entry.
    pub cookie: u64,
    /// Kind of the inode.
    pub kind: FileKind,
    /// The name: 1 to 255 bytes without `/` and NUL.
    pub name: Vec<u8>,
}

/// Capacity of the storage behind the file system, in bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FsStat {
    /// All bytes.
    pub total_bytes: u64,
    /// Unused bytes.
    pub free_bytes: u64,
    /// Unused bytes that an ordinary user may take.
    pub available_bytes: u64,
    /// All inodes.
    pub inodes_total: u64,
    /// Unused inodes.
    pub inodes_free: u64,
}

/// A variable-length part that does not contain what its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed {0}")]
pub struct Malformed(pub &'static str);

impl Timestamp {
    /// So many seconds since the epoch.
    pub const fn from_secs(secs: i64) -> Self {
        Self { secs, nanos: 0, reserved: 0 }
    }

    /// `secs` and `nanos` since the epoch; `nanos` of 10^9 or more are refused.
    pub const fn new(secs: i64, nanos: u32) -> Option<Self> {
        if nanos < 1_000_000_000 { Some(Self { secs, nanos, reserved: 0 }) } else { None }
    }
}

impl FileKind {
    /// The kind in a mode, if it is one.
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Self::from_code(((mode & MODE_KIND_MASK) >> 12) as u8)
    }

    /// The kind as a directory entry's `d_type` gives it.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Fifo,
            2 => Self::CharDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::Regular,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => return None,
        })
    }

    /// The `d_type` of this kind.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The `S_IFMT` bits of this kind.
    pub const fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

impl Attr {
    /// The kind of the inode; a mode that no kind has (a damaged peer) reads as a regular file.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).unwrap_or(FileKind::Regular)
    }
}

impl Layout {
    /// The most targets of one file.
    pub const TARGETS_MAX: usize = 1024;
    /// Stripe sizes are multiples of this.
    pub const STRIPE_ALIGN_BYTES: u64 = 4096;
    /// Each component of a layout that grows is on so many times as many targets as the one before.
    pub const GROWTH: u64 = 4;
    /// Stripes on each target of a component that is not the last.
    pub const COMPONENT_STRIPES: u64 = 4;
    /// In the wire form, where the stripe size has no other bit of its own.
    const GROWS: u64 = 1;

    /// The target of the byte at `offset`, and how many bytes from there on lie on it without a break.
    ///
    /// The layout must be valid: [`Layout::decode`] and servers guarantee it.
    pub fn locate(&self, offset: u64) -> (TargetId, u64) {
        let Spot { index, run, .. } = self.spot(offset);
        (self.targets[index], run)
    }

    /// The components in order. They begin in their objects where those before them end: an object that is in one is in all
    /// later ones.
    fn components(&self) -> impl Iterator<Item = Component> {
        let count = self.targets.len() as u64;
        let width_max = if self.grows { 1 } else { count };
        let first = Component { first: 0, in_object: 0, width: width_max.min(count), stripes: 0 };
        let ended = move |component: Component| Component {
            stripes: if component.width == count { u64::MAX } else { component.width * Self::COMPONENT_STRIPES },
            ..component
        };
        std::iter::successors(Some(ended(first)), move |before| {
            (before.width < count).then(|| {
                let (first, width) = (before.first + before.stripes, (before.width * Self::GROWTH).min(count));
                ended(Component { first, in_object: before.in_object + Self::COMPONENT_STRIPES, width, stripes: 0 })
            })
        })
    }

    /// Where object `index` begins in a component that it is in, in stripes: it was in none of the narrower ones.
    fn begin_in(&self, component: &Component, index: u64) -> u64 {
        let narrower = self.components().take_while(|other| other.width <= index && other.width < component.width);
        component.in_object - narrower.count() as u64 * Self::COMPONENT_STRIPES
    }

    /// Where the byte at `offset` of a file is.
    pub fn spot(&self, offset: u64) -> Spot {
        if self.targets.len() == 1 {
            return Spot { index: 0, offset, run: u64::MAX - offset };
        }
        let (stripe, within) = (offset / self.stripe_bytes, offset % self.stripe_bytes);
        // The last one has no end.
        let mut components = self.components().skip_while(|component| stripe - component.first >= component.stripes);
        let Some(component) = components.next() else {
            return Spot { index: 0, offset, run: self.stripe_bytes - within };
        };
        let stripe = stripe - component.first;
        let index = stripe % component.width;
        let in_object = self.begin_in(&component, index) + stripe / component.width;
        Spot { index: index as usize, offset: in_object * self.stripe_bytes + within, run: self.stripe_bytes - within }
    }

    /// Bytes of object `index` of a file of `size_bytes` without holes.
    pub fn object_size(&self, index: usize, size_bytes: u64) -> u64 {
        let (stripes, rest) = (size_bytes / self.stripe_bytes, size_bytes % self.stripe_bytes);
        let index = index as u64;
        let reached = self.components().take_while(|component| stripes >= component.first);
        let of_component = |component: Component| {
            let full = (stripes - component.first).min(component.stripes);
            let (rounds, last) = (full / component.width, full % component.width);
            let is_in_last = full < component.stripes && index == last;
            match index {
                _ if index >= component.width => 0,
                _ if index < last => (rounds + 1) * self.stripe_bytes,
                _ => rounds * self.stripe_bytes + if is_in_last { rest } else { 0 },
            }
        };
        reached.map(of_component).sum()
    }

    /// Where the byte at `offset` of object `index` is in the file.
    pub fn file_offset(&self, index: usize, offset: u64) -> u64 {
        let (round, within) = (offset / self.stripe_bytes, offset % self.stripe_bytes);
        let index = index as u64;
        let mut rounds_before = 0;
        for component in self.components().filter(|component| index < component.width) {
            let rounds = component.stripes / component.width;
            if round - rounds_before < rounds || component.stripes == u64::MAX {
                let stripe = (round - rounds_before).saturating_mul(component.width).saturating_add(index);
                let stripe = stripe.saturating_add(component.first);
                return stripe.saturating_mul(self.stripe_bytes).saturating_add(within);
            }
            rounds_before += rounds;
        }
        // No such object.
        u64::MAX
    }

    /// Bytes of the wire form with so many targets.
    pub const fn encoded_len(targets: usize) -> usize {
        size_of::<u64>() + size_of::<u16>() + targets * size_of::<u16>()
    }

    /// Appends the wire form: stripe size, with its lowest bit set if the layout grows, count, targets.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let grows = if self.grows { Self::GROWS } else { 0 };
        out.extend_from_slice(&(self.stripe_bytes | grows).to_le_bytes());
        out.extend_from_slice(&(self.targets.len() as u16).to_le_bytes());
        for target in &self.targets {
            out.extend_from_slice(&target.0.to_le_bytes());
        }
    }

    /// Reads the wire form, refusing what [`Layout::locate`] could not serve.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let bad = Malformed("layout");
        let (stripe, rest) = bytes.split_first_chunk::<8>().ok_or(bad)?;
        let (count, rest) = rest.split_first_chunk::<2>().ok_or(bad)?;
        let stripe = u64::from_le_bytes(*stripe);
        let (stripe_bytes, grows) = (stripe & !Self::GROWS, stripe & Self::GROWS != 0);
        let count = usize::from(u16::from_le_bytes(*count));
        let valid_stripe = stripe_bytes > 0 && stripe_bytes % Self::STRIPE_ALIGN_BYTES == 0;
        if !valid_stripe || count == 0 || count > Self::TARGETS_MAX || rest.len() != 2 * count {
            return Err(bad);
        }
        let targets = rest.chunks_exact(2).map(|c| TargetId(u16::from_le_bytes([c[0], c[1]]))).collect();
        Ok(Self { stripe_bytes, targets, grows })
    }
}

impl DirEntry {
    /// Bytes of an encoded entry before its name.
    pub const FIXED_LEN: usize = 18;

    /// The encoded length.
    pub fn encoded_len(&self) -> usize {
        Self::FIXED_LEN + self.name.len()
    }

    /// Appends the wire form: inode, cookie, kind, length of the name, name.
    pub fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(!self.name.is_empty() && self.name.len() <= NAME_LEN_MAX);
        out.extend_from_slice(&self.ino.0.to_le_bytes());
        out.extend_from_slice(&self.cookie.to_le_bytes());
        out.push(self.kind.code());
        out.push(self.name.len() as u8);
        out.extend_from_slice(&self.name);
    }

    /// Reads entries until `bytes` end.
    pub fn decode_all(mut bytes: &[u8]) -> Result<Vec<Self>, Malformed> {
        let bad = Malformed("directory entry");
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            let (fixed, rest) = bytes.split_first_chunk::<{ Self::FIXED_LEN }>().ok_or(bad)?;
            let name_len = usize::from(fixed[17]);
            let kind = FileKind::from_code(fixed[16]).ok_or(bad)?;
            if name_len == 0 || rest.len() < name_len {
                return Err(bad);
            }
            let (name, rest) = rest.split_at(name_len);
            if name.iter().any(|b| matches!(b, 0 | b'/')) {
                return Err(bad);
            }
            let (ino, cookie) = (read_u64(&fixed[..8]), read_u64(&fixed[8..16]));
            entries.push(Self { ino: Ino(ino), cookie, kind, name: name.to_vec() });
            bytes = rest;
        }
        Ok(entries)
    }
}

fn read_u64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout() -> impl Strategy<Value = Layout> {
        let targets = proptest::collection::vec(any::<u16>(), 1..40);
        (1u64..1 << 20, targets, any::<bool>()).prop_map(|(pages, targets, grows)| Layout {
            stripe_bytes: pages * Layout::STRIPE_ALIGN_BYTES,
            targets: targets.into_iter().map(TargetId).collect(),
            grows,
        })
    }

    fn entry() -> impl Strategy<Value = DirEntry> {
        let kind = (0u8..7).prop_map(|k| FileKind::from_code([1, 2, 4, 6, 8, 10, 12][usize::from(k)]).unwrap());
        let name = proptest::collection::vec((1u8..=255).prop_filter("slash", |b| *b != b'/'), 1..=NAME_LEN_MAX);
        (any::<u64>(), any::<u64>(), kind, name).prop_map(|(ino, cookie, kind, name)| DirEntry {
            ino: Ino(ino),
            cookie,
            kind,
            name,
        })
    }

    proptest! {
        #[test]
        fn layouts_survive_the_wire(layout in layout()) {
            let mut bytes = Vec::new();
            layout.encode(&mut bytes);
            prop_assert_eq!(Layout::decode(&bytes), Ok(layout));
            prop_assert!(Layout::decode(&bytes[..bytes.len() - 1]).is_err());
        }

        #[test]
        fn consecutive_runs_tile_a_file(layout in layout(), start in 0u64..1 << 40) {
            let mut offset = start;
            for _ in 0..50 {
                let (target, run) = layout.locate(offset);
                prop_assert!(run > 0);
                prop_assert_eq!(layout.locate(offset + run - 1).0, target);
                let Some(next) = offset.checked_add(run).filter(|_| layout.targets.len() > 1) else { break };
                prop_assert_eq!(next % layout.stripe_bytes, 0);
                offset = next;
            }
        }

        /// Whatever the layout, objects have each byte of a file once, in the file's order, and nothing between them.
        #[test]
        fn objects_are_filled_in_order(count in 1u16..30, grows: bool, len in 0u64..300) {
            const STRIPE: u64 = Layout::STRIPE_ALIGN_BYTES;
            let layout = Layout { stripe_bytes: STRIPE, targets: (0..count).map(TargetId).collect(), grows };
            let mut ends = vec![0; usize::from(count)];
            for stripe in 0..len {
                let spot = layout.spot(stripe * STRIPE);
                prop_assert_eq!(spot.offset, ends[spot.index], "stripe {}", stripe);
                prop_assert_eq!(layout.file_offset(spot.index, spot.offset + 7), stripe * STRIPE + 7);
                ends[spot.index] += STRIPE;
                for (index, end) in ends.iter().enumerate() {
                    prop_assert_eq!(layout.object_size(index, (stripe + 1) * STRIPE), *end);
                    let part = if index == spot.index { *end - STRIPE + 9 } else { *end };
                    prop_assert_eq!(layout.object_size(index, stripe * STRIPE + 9), part);
                }
            }
        }

        #[test]
        fn entries_survive_the_wire(entries in proptest::collection::vec(entry(), 0..20)) {
            let mut bytes = Vec::new();
            entries.iter().for_each(|e| e.encode(&mut bytes));
            prop_assert_eq!(bytes.len(), entries.iter().map(DirEntry::encoded_len).sum::<usize>());
            prop_assert_eq!(DirEntry::decode_all(&bytes), Ok(entries));
        }

        #[test]
        fn decoders_are_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Layout::decode(&bytes), DirEntry::decode_all(&bytes));
        }
    }

    #[test]
    fn a_file_grows_over_more_and_more_targets() {
        let layout = Layout { stripe_bytes: 4096, targets: (0..6).map(TargetId).collect(), grows: true };
        let at: Vec<usize> = (0..24).map(|stripe| layout.spot(stripe * 4096).index).collect();
        // One target, four of them, and all six.
        assert_eq!(at[..4], [0; 4]);
        assert_eq!(at[4..20], [0, 1, 2, 3].repeat(4));
        assert_eq!(at[20..], [0, 1, 2, 3]);
        assert_eq!((layout.spot(24 * 4096).index, layout.spot(25 * 4096).index), (4, 5));
        assert_eq!(layout.spot(24 * 4096).offset, 0, "the first byte of an object that was not there before");
        assert_eq!(layout.object_size(5, 25 * 4096), 0);
        assert_eq!(layout.spot((1 << 40) + 5).run, 4096 - 5);
    }

    #[test]
    fn modes_and_kinds_agree() {
        assert_eq!(FileKind::from_mode(0o100_644), Some(FileKind::Regular));
        assert_eq!(FileKind::from_mode(0o040_755), Some(FileKind::Directory));
        assert_eq!(FileKind::Symlink.mode_bits(), 0o120_000);
        assert_eq!(FileKind::from_mode(0), None);
    }
}
