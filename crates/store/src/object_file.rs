//! An open object: its descriptor, and a second one that goes past the page cache of the host (`O_DIRECT`) where the target
//! is to be used so, or the object was written so. Then either everything goes past it, or only what asks for that
//! ([`WriteMode::Direct`]).
//!
//! The host takes whole sectors only past its page cache, to and from memory that lies as evenly: here that is
//! [`ALIGN`], which does for all devices there are. So whole blocks go past it, by way of memory of this thread's own where
//! the caller's is not even, and what is written of a part of a block goes through it: nothing has to be read and put
//! together, an object is never longer than what was written to it, and the host keeps both ways in agreement. (A block is
//! not written by two at once where it has a checksum; where it has none, the host sees to it as for any two writers.)
//! Reads take whole blocks, and give the part that was asked for.

use crate::FILE_SIZE_MAX;
use crate::fence::Fence;
use crate::host_file_system::is_in_user_space;
use crate::sums::{read_at, read_cached_at, write_until};
use isonomia_memory::{Sink, Source};
use rustix::fs::{Advice, AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

/// Offsets, lengths, and memory are multiples of this.
const ALIGN: usize = 4096;
/// Bytes that go by way of this thread's own memory at once.
const BOUNCE_BYTES: usize = 256 << 10;
/// The file by which it is tried whether a file system can be used past the page cache.
pub(crate) const PROBE: &str = "target.probe";

/// How a write goes to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// As everything does on its target.
    Usual,
    /// Past the page cache, as far as it is whole blocks and the target can do that.
    Direct,
}

pub(crate) struct ObjectFile {
    pages: Arc<OwnedFd>,
    direct: OnceLock<OwnedFd>,
    /// Everything goes past the page cache, by `direct`, and not just what asks for that.
    is_past: bool,
    fence: Arc<Fence>,
    /// Of descriptors of all objects, these included.
    count: Arc<AtomicUsize>,
}

impl From<OwnedFd> for ObjectFile {
    fn from(pages: OwnedFd) -> Self {
        Self::new(pages, None, false, Arc::default(), &Arc::default())
    }
}

impl Drop for ObjectFile {
    fn drop(&mut self) {
        self.count.fetch_sub(1 + usize::from(self.direct.get().is_some()), Relaxed);
    }
}

impl AsFd for ObjectFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pages.as_fd()
    }
}

impl ObjectFile {
    /// The object that `pages` and `direct` are open descriptors of, which are added to `count`; `fence` says whether it may be
    /// changed. The host reads nothing ahead of what it is asked for if `reads_as_asked`.
    pub fn new(
        pages: OwnedFd,
        direct: Option<OwnedFd>,
        reads_as_asked: bool,
        fence: Arc<Fence>,
        count: &Arc<AtomicUsize>,
    ) -> Self {
        if reads_as_asked {
            // It is no more than advice: a host that refuses it reads ahead.
            let _ = rustix::fs::fadvise(&pages, 0, None, Advice::Random);
        }
        let is_past = direct.is_some();
        count.fetch_add(1 + usize::from(is_past), Relaxed);
        let direct = direct.map_or_else(OnceLock::new, OnceLock::from);
        Self { pages: Arc::new(pages), direct, is_past, fence, count: count.clone() }
    }

    /// Whether there is a descriptor past the page cache.
    pub fn has_direct(&self) -> bool {
        self.direct.get().is_some()
    }

    /// Writes that ask for it go past the page cache from now on, by `direct`; false if that is no descriptor of this object, or
    /// somebody else was first.
    pub fn add_direct(&self, direct: OwnedFd) -> bool {
        let number = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        let is_same = number(&direct).is_ok_and(|found| number(&self.pages) == Ok(found));
        let is_added = is_same && self.direct.set(direct).is_ok();
        if is_added {
            self.count.fetch_add(1, Relaxed);
        }
        is_added
    }

    /// By what everything goes past the page cache, if it does.
    fn past(&self) -> Option<&OwnedFd> {
        self.direct.get().filter(|_| self.is_past)
    }

    /// What is to change it, and may. To be asked for right before it is changed.
    pub fn to_change(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.fence.check().map(|()| self.pages.as_fd())
    }

    /// By what the host can be told to bring pages to its memory, unless they go past that.
    pub fn pages(&self) -> Option<&Arc<OwnedFd>> {
        (!self.is_past).then_some(&self.pages)
    }

    /// Its descriptor, for who does not keep the object from being closed meanwhile. A copy of it would do as well, but to close one is
    /// a request of its own on a network file system, which has to be waited for.
    pub fn shared(&self) -> Arc<OwnedFd> {
        self.pages.clone()
    }

    /// Reads until `sink` is full or the object ends. With `may_wait` false as [`Sink::pread_cached`].
    pub fn read(&self, offset: u64, mut sink: Sink<'_>, may_wait: bool) -> Result<usize, Errno> {
        // The last block of the longest file ends behind what a host takes for an offset.
        let len = usize::try_from(FILE_SIZE_MAX.saturating_sub(offset)).unwrap_or(usize::MAX).min(sink.len());
        let sink = sink.part(0..len);
        match self.past() {
            None if may_wait => read_at(&self.pages, offset, sink),
            None => read_cached_at(&self.pages, offset, sink),
            // It is in nobody's memory.
            Some(_) if !may_wait => Err(Errno::AGAIN),
            Some(direct) => self.read_direct(direct, offset, sink),
        }
    }

    /// Has the host bring `len` bytes from `offset` on to memory, without waiting for them, unless they go past that.
    pub fn fetch(&self, offset: u64, len: NonZeroU64) {
        if !self.is_past {
            // Where it cannot, the read does.
            let _ = rustix::fs::fadvise(&self.pages, offset, Some(len), Advice::WillNeed);
        }
    }

    /// Writes until all is written or the host refuses; both can be.
    pub fn write(&self, offset: u64, source: Source<'_>, mode: WriteMode) -> (usize, Option<Errno>) {
        if let Err(errno) = self.fence.check() {
            return (0, Some(errno));
        }
        match self.direct.get().filter(|_| self.goes_past(mode)) {
            None => write_until(&self.pages, offset, source),
            Some(direct) => self.write_direct(direct, offset, source),
        }
    }

    /// Whether whole blocks that are written in this mode go past the page cache.
    pub fn goes_past(&self, mode: WriteMode) -> bool {
        self.is_past || mode == WriteMode::Direct && self.has_direct()
    }

    /// Reads what the device has of a range to which a write has failed: the host may have pages of before that.
    pub fn read_again(&self, offset: u64, sink: Sink<'_>) -> Result<usize, Errno> {
        match self.direct.get() {
            None => read_at(&self.pages, offset, sink),
            Some(direct) => {
                // Where it cannot, they are known to be wrong by their checksums.
                let len = NonZeroU64::new(sink.len() as u64);
                let _ = rustix::fs::fadvise(&self.pages, offset, len, Advice::DontNeed);
                self.read_direct(direct, offset, sink)
            }
        }
    }

    fn read_direct(&self, direct: &OwnedFd, offset: u64, mut sink: Sink<'_>) -> Result<usize, Errno> {
        let len = sink.len();
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let skipped = (at % ALIGN as u64) as usize;
            let rest = len - done;
            let whole = rest - rest % ALIGN;
            let is_even = skipped == 0 && whole > 0 && sink.part(done..len).is_aligned_to(ALIGN);
            // How much was asked for, and how much of it came.
            let (asked, got) = if is_even {
                (whole, again(|| sink.part(done..done + whole).pread(direct, at)))
            } else {
                let asked = (skipped + rest).next_multiple_of(ALIGN).min(BOUNCE_BYTES);
                let read = with_bounce(|bounce| {
                    let got = again(|| Sink::from(&mut bounce[..asked]).pread(direct, at - skipped as u64))?;
                    let wanted = bounce[..got].get(skipped..).unwrap_or_default();
                    let wanted = &wanted[..wanted.len().min(rest)];
                    sink.part(done..done + wanted.len()).copy_from(wanted);
                    Ok((got, wanted.len()))
                });
                match read {
                    Ok((got, wanted)) if got == asked || got > 0 && got % ALIGN == 0 => (wanted, Ok(wanted)),
                    // The object ends there.
                    Ok((_, wanted)) => return Ok(done + wanted),
                    Err(errno) => (asked, Err(errno)),
                }
            };
            match got {
                Ok(0) => break,
                Ok(got) if got == asked || got % ALIGN == 0 => done += got,
                Ok(got) => return Ok(done + got),
                // Possible here, and yet not here: at the end of an object on some file systems.
                Err(Errno::INVAL) => return Ok(done + read_at(&self.pages, at, sink.part(done..len))?),
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    fn write_direct(&self, direct: &OwnedFd, offset: u64, source: Source<'_>) -> (usize, Option<Errno>) {
        let mut done = 0;
        while done < source.len() {
            let at = offset + done as u64;
            let rest = source.len() - done;
            let to_even = (at.next_multiple_of(ALIGN as u64) - at) as usize;
            let whole = rest - rest % ALIGN;
            let (part, written) = if to_even > 0 || whole == 0 {
                let part = if to_even > 0 { to_even.min(rest) } else { rest };
                (part, write_until(&self.pages, at, source.part(done..done + part)))
            } else if source.part(done..done + whole).is_aligned_to(ALIGN) {
                (whole, self.write_whole(direct, at, source.part(done..done + whole)))
            } else {
                let part = whole.min(BOUNCE_BYTES);
                let written = with_bounce(|bounce| {
                    source.part(done..done + part).copy_to(&mut bounce[..part]);
                    self.write_whole(direct, at, Source::from(&bounce[..part]))
                });
                (part, written)
            };
            done += written.0;
            if written.1.is_some() || written.0 < part {
                return (done, written.1);
            }
        }
        (done, None)
    }

    /// Whole blocks from even memory.
    fn write_whole(&self, direct: &OwnedFd, offset: u64, source: Source<'_>) -> (usize, Option<Errno>) {
        match again(|| source.pwrite(direct, offset)) {
            Ok(written) if written == source.len() => (written, None),
            // Some of it, or none although that is possible here: the rest goes the way that is always possible.
            Ok(written) => {
                let (rest, errno) =
                    write_until(&self.pages, offset + written as u64, source.part(written..source.len()));
                (written + rest, errno)
            }
            Err(Errno::INVAL) => write_until(&self.pages, offset, source),
            Err(errno) => (0, Some(errno)),
        }
    }
}

/// Repeats what a signal interrupted.
fn again<T>(call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    rustix::io::retry_on_intr(call)
}

/// Lends [`BOUNCE_BYTES`] of this thread's own even memory.
fn with_bounce<T>(act: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static BOUNCE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BOUNCE.with_borrow_mut(|bytes| {
        bytes.resize(BOUNCE_BYTES + ALIGN, 0);
        let start = bytes.as_ptr().align_offset(ALIGN);
        act(&mut bytes[start..start + BOUNCE_BYTES])
    })
}

/// Whether files in `dir` can be read and written past the page cache; why not, if not. Some file systems take what is to go past
/// it, and put it there all the same. So it is true only of two kinds: those that say how it is to be done (`STATX_DIOALIGN`), in a
/// way that is this module's, which kernels before 6.1 do not tell; and those in user space, for which the kernel sees to it.
pub(crate) fn probe(dir: &Path) -> Result<bool, Errno> {
    let path = dir.join(PROBE);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::DIRECT;
    let opened = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600));
    // A refused open may have created it all the same.
    let _ = rustix::fs::unlink(&path);
    let file = opened?;
    with_bounce(|bounce| {
        bounce[..ALIGN].fill(1);
        let written = again(|| Source::from(&bounce[..ALIGN]).pwrite(&file, 0))?;
        let read = again(|| Sink::from(&mut bounce[..ALIGN]).pread(&file, 0))?;
        if (written, read) == (ALIGN, ALIGN) { Ok(()) } else { Err(Errno::IO) }
    })?;
    // Asked of a file that has bytes: where short ones lie beside their names these cannot go past anything.
    let told = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let is_told = told.is_ok_and(|told| {
        let fits = |align: u32| (1..=ALIGN as u32).contains(&align);
        let is_told = told.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        is_told && fits(told.stx_dio_offset_align) && fits(told.stx_dio_mem_align)
    });
    // Not asked of the file, which has no name any more: some file systems know nothing of it then.
    Ok(is_told || is_in_user_space(dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file of this test's that is used past the page cache, where that is possible.
    fn scratch() -> Option<(tempfile::TempDir, ObjectFile)> {
        let dir = tempfile::tempdir().unwrap();
        if let Err(errno) = probe(dir.path()) {
            isonomia_testbed::skip(&format!("nothing goes past the page cache here: {errno}"));
            return None;
        }
        let open = |more| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | more;
            rustix::fs::open(dir.path().join("object"), flags, Mode::from_raw_mode(0o600)).unwrap()
        };
        let file =
            ObjectFile::new(open(OFlags::empty()), Some(open(OFlags::DIRECT)), true, Arc::default(), &Arc::default());
        Some((dir, file))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_range_is_written_and_read_as_through_the_page_cache(
            ranges in prop::collection::vec((0..40_000_u64, 1..600_000_usize, 0..64_usize, any::<bool>()), 1..6),
        ) {
            let Some((_dir, file)) = scratch() else { return Ok(()) };
            let mut model = Vec::new();
            for (number, (offset, len, shift, is_even)) in ranges.into_iter().enumerate() {
                let (offset, len) =
                    if is_even { (offset / 4096 * 4096, len.div_ceil(4096) * 4096) } else { (offset, len) };
                let bytes: Vec<u8> = (0..len + shift).map(|i| (i * 7 + number) as u8).collect();
                prop_assert_eq!(file.write(offset, Source::from(&bytes[shift..]), WriteMode::Usual), (len, None));
                let end = offset as usize + len;
                if model.len() < end {
                    model.resize(end, 0);
                }
                model[offset as usize..][..len].copy_from_slice(&bytes[shift..]);
                prop_assert_eq!(rustix::fs::fstat(&file).unwrap().st_size as usize, model.len());
                let mut back = vec![0xee; len + 9000];
                let from = (offset as usize / 2).min(model.len());
                let expected = &model[from..model.len().min(from + back.len() - shift)];
                let got = file.read(from as u64, Sink::from(&mut back[shift..]), true).unwrap();
                prop_assert_eq!(&back[shift..shift + got], expected);
            }
            prop_assert_eq!(file.read(0, Sink::from(&mut [0; 1]), false), Err(Errno::AGAIN));
        }
    }

    #[test]
    fn blocks_that_went_past_the_page_cache_are_not_in_it() {
        let Some((_dir, file)) = scratch() else { return };
        let bytes = vec![5; 1 << 20];
        assert_eq!(file.write(0, Source::from(&bytes), WriteMode::Usual), (1 << 20, None));
        let mut back = [0; 4096];
        let is_cached = |back: &mut [u8]| read_cached_at(&file.pages, 8192, Sink::from(back));
        match is_cached(&mut back) {
            Err(Errno::AGAIN) => {}
            // A host that does not tell.
            Err(Errno::OPNOTSUPP) => return,
            other => panic!("{other:?}"),
        }
        read_at(&file.pages, 8192, &mut back).unwrap();
        assert_eq!(is_cached(&mut back), Ok(4096));
    }

    #[test]
    fn the_host_reads_nothing_ahead_of_a_stream() {
        let Some((_dir, mut file)) = scratch() else { return };
        assert_eq!(file.write(0, Source::from(&vec![5; 1 << 20]), WriteMode::Usual), (1 << 20, None));
        file.is_past = false;
        let mut block = [0; ALIGN];
        for at in 0..8 {
            assert_eq!(file.read(at * ALIGN as u64, Sink::from(&mut block), true), Ok(ALIGN));
        }
        let ahead = file.read(8 * ALIGN as u64, Sink::from(&mut block), false);
        // Or the host does not tell.
        assert!(matches!(ahead, Err(Errno::AGAIN | Errno::OPNOTSUPP)), "{ahead:?}");
    }

    #[test]
    fn a_place_that_is_no_directory_is_refused() {
        assert!(probe(Path::new("/proc/self")).is_err());
    }
}
