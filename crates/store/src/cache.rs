//! A bounded map from small keys, sharded so that threads that only look seldom meet.
//!
//! Replacement is the clock algorithm (second chance): a look-up sets a bit, the hand clears it and takes the first
//! entry whose bit is clear and that `evictable` lets go. When nothing can go within [`PROBES_MAX`] steps the shard
//! grows: what is in use is never thrown out.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

/// As many as the upper five bits of a mixed key choose from.
const SHARDS: usize = 32;
const PROBES_MAX: usize = 64;

pub(crate) struct Cache<K, V> {
    shards: Box<[RwLock<Shard<K, V>>]>,
    per_shard_max: usize,
    evictable: fn(&V) -> bool,
}

struct Shard<K, V> {
    index: HashMap<K, usize, BuildHasherDefault<Mixer>>,
    slots: Vec<Option<Slot<K, V>>>,
    free: Vec<usize>,
    hand: usize,
}

struct Slot<K, V> {
    key: K,
    value: V,
    used: AtomicBool,
}

impl<K: Copy + Eq + Hash, V: Clone> Cache<K, V> {
    /// Keeps `max` entries, rounded up to a multiple of the shards.
    pub fn new(max: usize, evictable: fn(&V) -> bool) -> Self {
        let shard = || Shard { index: HashMap::default(), slots: Vec::new(), free: Vec::new(), hand: 0 };
        let shards = (0..SHARDS).map(|_| RwLock::new(shard())).collect();
        Self { shards, per_shard_max: max.div_ceil(SHARDS).max(1), evictable }
    }

    /// What `read` finds of interest in the entry; without anything, the entry does not count as used.
    pub fn read<T>(&self, key: K, read: impl FnOnce(&V) -> Option<T>) -> Option<T> {
        let shard = self.shard(key).read().unwrap_or_else(PoisonError::into_inner);
        let slot = shard.slots[*shard.index.get(&key)?].as_ref()?;
        let found = read(&slot.value)?;
        if !slot.used.load(Relaxed) {
            slot.used.store(true, Relaxed);
        }
        Some(found)
    }

    /// A copy of the entry.
    pub fn get(&self, key: K) -> Option<V> {
        self.read(key, |value| Some(value.clone()))
    }

    /// Keeps `value`, instead of an older one.
    pub fn put(&self, key: K, value: V) {
        let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        match shard.find(key) {
            Some(slot) => slot.value = value,
            None => shard.insert(key, value, self.per_shard_max, self.evictable),
        }
    }

    /// The entry that is there, or `value`, which is then kept.
    pub fn get_or_put(&self, key: K, value: V) -> V {
        let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = shard.find(key) {
            return slot.value.clone();
        }
        shard.insert(key, value.clone(), self.per_shard_max, self.evictable);
        value
    }

    /// Removes the entry, unless it may not be evicted; whether there is none any more.
    pub fn evict(&self, key: K) -> bool {
        let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        if shard.find(key).is_some_and(|slot| !(self.evictable)(&slot.value)) {
            return false;
        }
        drop(shard);
        self.remove(key);
        true
    }

    /// Calls `each` with every entry that is there throughout; others may be left out.
    pub fn each(&self, mut each: impl FnMut(&K, &V)) {
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.slots.iter().flatten().for_each(|slot| each(&slot.key, &slot.value));
        }
    }

    pub fn remove(&self, key: K) {
        let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = shard.index.remove(&key) {
            shard.slots[at] = None;
            shard.free.push(at);
        }
    }

    fn shard(&self, key: K) -> &RwLock<Shard<K, V>> {
        // Bits that the map does not take for the index.
        let hash = BuildHasherDefault::<Mixer>::default().hash_one(key);
        &self.shards[(hash.rotate_right(32) >> 59) as usize % SHARDS]
    }
}

impl<K: Copy + Eq + Hash, V> Shard<K, V> {
    fn find(&mut self, key: K) -> Option<&mut Slot<K, V>> {
        self.slots[*self.index.get(&key)?].as_mut()
    }

    fn insert(&mut self, key: K, value: V, max: usize, evictable: fn(&V) -> bool) {
        if self.index.len() >= max {
            self.evict(evictable);
        }
        let slot = Some(Slot { key, value, used: AtomicBool::new(true) });
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.index.insert(key, at);
    }

    fn evict(&mut self, evictable: fn(&V) -> bool) {
        for _ in 0..PROBES_MAX {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let Some(slot) = &self.slots[at] else { continue };
            if slot.used.swap(false, Relaxed) || !evictable(&slot.value) {
                continue;
            }
            self.index.remove(&slot.key);
            self.slots[at] = None;
            self.free.push(at);
            return;
        }
    }
}

/// Keys are inode numbers in sequence, hashes, or places of objects: one multiplication a number spreads them.
#[derive(Default)]
struct Mixer(u64);

fn mix(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        // The map takes the low bits for the index: give it those that every bit of the key reaches.
        self.0 = mix(key).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len<V>(cache: &Cache<u64, V>) -> usize {
        cache.shards.iter().map(|s| s.read().unwrap().index.len()).sum()
    }

    #[test]
    fn stays_within_its_bound_and_answers_only_what_was_put() {
        let cache = Cache::new(320, |_| true);
        for key in 0..10_000u64 {
            cache.put(key, key * 3);
            assert!(len(&cache) <= 320);
            assert_eq!(cache.get(key), Some(key * 3), "the newest is always there");
        }
        let kept = (0..10_000).filter(|k| cache.get(*k) == Some(k * 3)).count();
        assert_eq!(kept, len(&cache), "an entry with a wrong value");
    }

    #[test]
    fn what_is_in_use_is_never_thrown_out() {
        let cache = Cache::new(32, |v| v % 2 == 0);
        for key in 0..1_000u64 {
            cache.put(key, key);
        }
        assert!((0..1_000).filter(|k| k % 2 == 1).all(|k| cache.get(k).is_some()));
    }

    #[test]
    fn the_first_of_two_loaders_wins() {
        let cache = Cache::new(32, |_| true);
        assert_eq!(cache.get_or_put(5, 'a'), 'a');
        assert_eq!(cache.get_or_put(5, 'b'), 'a');
        cache.remove(5);
        assert_eq!(cache.get(5), None);
        assert_eq!(cache.get_or_put(5, 'b'), 'b');
    }
}
