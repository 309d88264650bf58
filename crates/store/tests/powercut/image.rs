//! What a disk holds, what was written to it in which order, and what it holds when the power fails in between.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Unit in which images share what is the same.
const PAGE_BYTES: usize = 4096;
/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;
/// Here ext4 has its superblock, which it writes in place and which must be whole: nothing of ours to test.
const WHOLE_UP_TO: u64 = 4096;

type Page = Arc<[u8]>;

/// The bytes of a disk. A copy costs little: pages are shared until they are written.
#[derive(Clone, Serialize, Deserialize)]
pub struct Image {
    /// `None` is a page of zeros.
    pages: Vec<Option<Page>>,
}

impl Image {
    /// An empty disk of `size_bytes`, a multiple of 4096.
    pub fn new(size_bytes: u64) -> Self {
        Self { pages: vec![None; size_bytes as usize / PAGE_BYTES] }
    }

    pub fn size_bytes(&self) -> u64 {
        (self.pages.len() * PAGE_BYTES) as u64
    }

    /// The bytes from `offset` on: `size_bytes`, or as many as there are.
    pub fn read(&self, offset: u64, size_bytes: u64) -> Vec<u8> {
        let end = (offset + size_bytes).min(self.size_bytes());
        let mut bytes = Vec::with_capacity(size_bytes as usize);
        let mut at = offset.min(end) as usize;
        while at < end as usize {
            let within = at % PAGE_BYTES;
            let len = (PAGE_BYTES - within).min(end as usize - at);
            match &self.pages[at / PAGE_BYTES] {
                Some(page) => bytes.extend_from_slice(&page[within..within + len]),
                None => bytes.resize(bytes.len() + len, 0),
            }
            at += len;
        }
        bytes
    }

    /// Writes `bytes` at `offset`. What lies behind the end of the disk is an error of the caller's.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset as usize + done;
            let within = at % PAGE_BYTES;
            let len = (PAGE_BYTES - within).min(bytes.len() - done);
            let page = self.pages[at / PAGE_BYTES].get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[within..within + len].copy_from_slice(&bytes[done..done + len]);
            done += len;
        }
    }
}

/// Something that reached the disk.
#[derive(Clone, Serialize, Deserialize)]
pub enum Event {
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// A flush: everything before it is on stable storage when anything after it is written.
    Flush,
}

/// How the disk treats the writes since the last flush when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// They took effect in the order in which they came.
    Kept,
    /// Any of them took effect, whole, in part, or not at all, as this seed says.
    Shuffled(u64),
}

/// Everything that reached a disk since it held `base`.
#[derive(Clone, Serialize, Deserialize)]
pub struct BlockLog {
    base: Image,
    events: Vec<Event>,
}

impl BlockLog {
    pub fn new(base: Image) -> Self {
        Self { base, events: Vec::new() }
    }

    pub fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    /// How many events there are; a power cut at position `n` comes after the first `n`.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// What the disk holds after a power cut at `position`.
    pub fn image_at(&self, position: usize, order: Order) -> Image {
        let mut image = self.base.clone();
        let events = &self.events[..position.min(self.events.len())];
        let Order::Shuffled(seed) = order else {
            apply(&mut image, events);
            return image;
        };
        let last_flush = events.iter().rposition(|event| matches!(event, Event::Flush)).map_or(0, |at| at + 1);
        let (stable, pending) = events.split_at(last_flush);
        apply(&mut image, stable);
        let mut chance = Pcg64::seed_from_u64(seed);
        // Nearly all, half, or next to none of them: each finds other mistakes.
        let kept = [0.9, 0.5, 0.1][chance.random_range(0..3)];
        for event in pending {
            let Event::Write { offset, bytes } = event else { continue };
            if !chance.random_bool(kept) {
                continue;
            }
            let is_torn = chance.random_bool(0.2) && *offset >= WHOLE_UP_TO;
            for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                if !is_torn || chance.random_bool(0.5) {
                    image.write(offset + (index * SECTOR_BYTES) as u64, sector);
                }
            }
        }
        image
    }
}

fn apply(image: &mut Image, events: &[Event]) {
    for event in events {
        if let Event::Write { offset, bytes } = event {
            image.write(*offset, bytes);
        }
    }
}

#[test]
fn what_was_flushed_is_kept_and_the_rest_may_be() {
    let mut log = BlockLog::new(Image::new(1 << 16));
    let write = |offset, byte| Event::Write { offset, bytes: vec![byte; 1024] };
    log.push(write(4096 - 512, 1));
    log.push(Event::Flush);
    log.push(write(0, 2));
    log.push(write(8192, 3));
    assert_eq!(log.image_at(0, Order::Kept).read(0, 1 << 16), vec![0; 1 << 16]);
    let mut second_without_first = 0;
    for seed in 0..200 {
        let image = log.image_at(4, Order::Shuffled(seed));
        assert_eq!(image.read(4096 - 512, 1024), [1; 1024]);
        let (first, second) = (image.read(0, 1), image.read(8192, 1));
        assert!([0, 2].contains(&first[0]) && [0, 3].contains(&second[0]));
        second_without_first += u32::from(first == [0] && second == [3]);
        assert_eq!(image.read(0, 1 << 16), log.image_at(4, Order::Shuffled(seed)).read(0, 1 << 16));
    }
    assert!(second_without_first > 0);
    let all = log.image_at(4, Order::Kept);
    assert_eq!((all.read(0, 1024), all.read(8192, 1024)), (vec![2; 1024], vec![3; 1024]));
    assert_eq!(all.read((1 << 16) - 4, 100).len(), 4);
}
