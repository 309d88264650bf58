//! Which server was the right one to ask: hints, each in an entry of its own that others may take.

use isonomia_units::{ServerId, VolumeId};
use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Hints of each kind.
const HINTS: usize = 256;
/// Bits of a hint that are the server's number; the others say what it is a hint for.
const SERVER_BITS: u32 = 16;

/// Hints by volume, and by the first name of a path from the root. One that is overwritten half-way cannot be seen: each is
/// one word.
pub(crate) struct Routes {
    /// Whether there was ever a referral: with one server there is none, and nothing is looked for.
    has_any: AtomicBool,
    by_volume: Box<[AtomicU64]>,
    by_name: Box<[AtomicU64]>,
}

impl Default for Routes {
    fn default() -> Self {
        let hints = || (0..HINTS).map(|_| AtomicU64::new(0)).collect();
        Self { has_any: AtomicBool::new(false), by_volume: hints(), by_name: hints() }
    }
}

impl Routes {
    pub fn of_volume(&self, volume: VolumeId) -> Option<ServerId> {
        self.has_any.load(Ordering::Relaxed).then(|| find(&self.by_volume, u64::from(volume.0)))?
    }

    pub fn learn_volume(&self, volume: VolumeId, server: ServerId) {
        learn(&self.by_volume, u64::from(volume.0), server);
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// The server of the volume that a path from the root leads into.
    pub fn of_path(&self, path: &[u8]) -> Option<ServerId> {
        self.has_any.load(Ordering::Relaxed).then(|| find(&self.by_name, key(path)?))?
    }

    /// A path that stays at the root is that of the root volume.
    pub fn learn_path(&self, path: &[u8], server: ServerId) {
        match key(path) {
            None => self.learn_volume(VolumeId::ROOT, server),
            Some(key) => {
                learn(&self.by_name, key, server);
                self.has_any.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Of the first name of a path; none of a path that stays at the root.
fn key(path: &[u8]) -> Option<u64> {
    let name = path.split(|byte| *byte == b'/').find(|name| !name.is_empty() && *name != b".")?;
    if name == b".." {
        return None;
    }
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(name);
    Some(hasher.finish() >> SERVER_BITS)
}

/// What is kept for `key`: never 0, which is an empty entry.
fn tag(key: u64) -> u64 {
    (key.wrapping_add(1) << SERVER_BITS).max(1 << SERVER_BITS)
}

fn find(hints: &[AtomicU64], key: u64) -> Option<ServerId> {
    let hint = hints[key as usize % HINTS].load(Ordering::Relaxed);
    let is_for_key = hint >> SERVER_BITS << SERVER_BITS == tag(key);
    is_for_key.then_some(ServerId(hint as u16))
}

fn learn(hints: &[AtomicU64], key: u64, server: ServerId) {
    hints[key as usize % HINTS].store(tag(key) | u64::from(server.0), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_for_what_they_were_learnt_for() {
        let routes = Routes::default();
        assert_eq!((routes.of_volume(VolumeId(0)), routes.of_path(b"a")), (None, None));
        routes.learn_volume(VolumeId(3), ServerId(7));
        routes.learn_path(b"/./users/x", ServerId(9));
        assert_eq!(routes.of_volume(VolumeId(3)), Some(ServerId(7)));
        assert_eq!(routes.of_volume(VolumeId(3 + HINTS as u16)), None);
        assert_eq!(routes.of_volume(VolumeId(0)), None);
        assert_eq!(routes.of_path(b"users"), Some(ServerId(9)));
        assert_eq!(routes.of_path(b"//users/y/.."), Some(ServerId(9)));
        assert_eq!((routes.of_path(b"userss"), routes.of_path(b".."), routes.of_path(b"")), (None, None, None));
        routes.learn_path(b"./..", ServerId(1));
        assert_eq!(routes.of_volume(VolumeId::ROOT), Some(ServerId(1)));
        routes.learn_volume(VolumeId(u16::MAX), ServerId(u16::MAX));
        assert_eq!(routes.of_volume(VolumeId(u16::MAX)), Some(ServerId(u16::MAX)));
        routes.learn_volume(VolumeId(3), ServerId(8));
        assert_eq!(routes.of_volume(VolumeId(3)), Some(ServerId(8)));
    }
}
