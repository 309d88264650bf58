//! Frames that nobody can change, repeat, swap or leave out on their way and, if they are encrypted, read.
//!
//! A frame goes in *parts*, each followed by a tag: its header, then its names or its payload, cut into parts of
//! [`PART_LEN_MAX`] bytes. So what is read from a header is proven before anything else is believed, and one side makes tags
//! while the other one checks those before. Both sides count the parts of each direction, and the count is what a tag is made
//! with, so a part that comes at another position than it was sent is refused like one that was changed.
//!
//! It is AES-256-GCM with a key for each direction (NIST SP 800-38D). Where frames are not encrypted, they are what that
//! authenticates besides an empty message (GMAC). No I/O.

use crate::noise::Keys;
use aes_gcm::{AeadInOut, Aes256Gcm, KeyInit, Nonce, Tag};
use isonomia_proto::setup::Integrity;
use isonomia_proto::{PATH_LEN_MAX, XATTR_NAME_LEN_MAX, XATTR_VALUE_LEN_MAX};

/// Bytes of a tag.
pub const TAG_LEN: usize = 16;

/// The longest part; whatever is longer is cut into parts of this length, and a last one. Names are never longer.
pub const PART_LEN_MAX: usize = 128 << 10;
const _: () = assert!(PART_LEN_MAX > 2 * PATH_LEN_MAX + XATTR_NAME_LEN_MAX + XATTR_VALUE_LEN_MAX);

/// A part is not what was sent, or not where it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame was changed, repeated or left out on its way")]
pub struct Forged;

/// Both directions of a connection, as one side has them.
#[derive(Debug)]
pub struct Seals {
    /// For what it sends.
    pub sealer: Direction,
    /// For what it receives.
    pub opener: Direction,
}

/// One direction.
pub struct Direction {
    cipher: Box<Aes256Gcm>,
    encrypts: bool,
    parts: u64,
}

impl std::fmt::Debug for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direction")
            .field("encrypts", &self.encrypts)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

impl Seals {
    /// With the keys of a handshake; nothing if frames go as they are.
    pub fn new(keys: &Keys, integrity: Integrity) -> Option<Self> {
        let direction = |key: &[u8; 32]| Direction {
            cipher: Box::new(Aes256Gcm::new(key.into())),
            encrypts: integrity == Integrity::Encrypted,
            parts: 0,
        };
        let seals = || Self { sealer: direction(&keys.send), opener: direction(&keys.receive) };
        (integrity != Integrity::None).then(seals)
    }
}

impl Direction {
    /// The number of the next part, which no other part of this direction ever has.
    fn next(&mut self) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.parts.to_be_bytes());
        // One part a nanosecond makes 584 years of it.
        self.parts += 1;
        nonce
    }

    /// Gives a frame of `header`, and of what follows it in pieces, to `send`, some at a time. It is put together in
    /// `room`. Nothing is sent after an error.
    pub fn seal_frame<E>(
        &mut self,
        room: &mut Vec<u8>,
        header: &[u8],
        pieces: &[&[u8]],
        mut send: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        room.clear();
        self.seal(room, header);
        let mut begin = room.len();
        for piece in pieces {
            let mut piece = *piece;
            while !piece.is_empty() {
                let (fits, more) = piece.split_at(piece.len().min(PART_LEN_MAX - (room.len() - begin)));
                room.extend_from_slice(fits);
                piece = more;
                if room.len() - begin == PART_LEN_MAX {
                    self.seal_tail(room, begin);
                    send(room)?;
                    room.clear();
                    begin = 0;
                }
            }
        }
        if room.len() > begin {
            self.seal_tail(room, begin);
        }
        if room.is_empty() { Ok(()) } else { send(room) }
    }

    /// Adds a part and its tag to `out`.
    pub fn seal(&mut self, out: &mut Vec<u8>, part: &[u8]) {
        let begin = out.len();
        out.extend_from_slice(part);
        self.seal_tail(out, begin);
    }

    /// Makes a part of what `out` has from `begin` on, and adds its tag.
    fn seal_tail(&mut self, out: &mut Vec<u8>, begin: usize) {
        let nonce = Nonce::from(self.next());
        let part = &mut out[begin..];
        let sealed = if self.encrypts {
            self.cipher.encrypt_inout_detached(&nonce, &[], part.into())
        } else {
            self.cipher.encrypt_inout_detached(&nonce, part, (&mut [][..]).into())
        };
        // It fails beyond 64 GiB only. Then a tag of zeros has the peer end the connection.
        out.extend_from_slice(&sealed.unwrap_or_default());
    }

    /// Checks a part that came with `tag`, and decrypts it in place.
    pub fn open(&mut self, part: &mut [u8], tag: &[u8; TAG_LEN]) -> Result<(), Forged> {
        let nonce = Nonce::from(self.next());
        let tag = Tag::from(*tag);
        let opened = if self.encrypts {
            self.cipher.decrypt_inout_detached(&nonce, &[], part.into(), &tag)
        } else {
            self.cipher.decrypt_inout_detached(&nonce, part, (&mut [][..]).into(), &tag)
        };
        opened.map_err(|_| Forged)
    }

    /// As [`Self::open`], of bytes that end with the tag; gives the part without it.
    pub fn open_whole<'a>(&mut self, bytes: &'a mut [u8]) -> Result<&'a mut [u8], Forged> {
        let (part, tag) = bytes.split_last_chunk_mut::<TAG_LEN>().ok_or(Forged)?;
        self.open(part, tag)?;
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(integrity: Integrity) -> (Seals, Seals) {
        let keys = Keys { send: [1; 32], receive: [2; 32] };
        let mirrored = Keys { send: keys.receive, receive: keys.send };
        (Seals::new(&keys, integrity).unwrap(), Seals::new(&mirrored, integrity).unwrap())
    }

    fn seal(direction: &mut Direction, part: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        direction.seal(&mut out, part);
        out
    }

    #[test]
    fn parts_arrive_as_they_were_sent_in_both_directions() {
        for integrity in [Integrity::Mac, Integrity::Encrypted] {
            let (mut client, mut server) = pair(integrity);
            for part in [&b"header"[..], b"payload", b"p"] {
                let mut sealed = seal(&mut client.sealer, part);
                assert_eq!(sealed.starts_with(part), integrity == Integrity::Mac);
                assert_eq!(server.opener.open_whole(&mut sealed).map(|part| part.to_vec()), Ok(part.to_vec()));
                let mut sealed = seal(&mut server.sealer, part);
                assert_eq!(client.opener.open_whole(&mut sealed).map(|part| part.to_vec()), Ok(part.to_vec()));
            }
        }
        assert!(Seals::new(&Keys { send: [1; 32], receive: [2; 32] }, Integrity::None).is_none());
    }

    #[test]
    fn whatever_is_changed_repeated_swapped_or_left_out_is_refused() {
        for integrity in [Integrity::Mac, Integrity::Encrypted] {
            let sent: Vec<Vec<u8>> = {
                let (mut client, _) = pair(integrity);
                [&b"first"[..], b"second", b"third"].map(|part| seal(&mut client.sealer, part)).to_vec()
            };
            // The order in which they arrive, and how many are good.
            let arrivals: [(&[usize], usize); 4] = [(&[0, 0], 1), (&[1], 0), (&[0, 2], 1), (&[0, 1, 2], 3)];
            for (order, good) in arrivals {
                let (_, mut server) = pair(integrity);
                let mut open = |index: &usize| server.opener.open_whole(&mut sent[*index].clone()).is_ok();
                assert_eq!(order.iter().take_while(|index| open(index)).count(), good, "{order:?}");
            }
            for at in 0..sent[0].len() {
                let (_, mut server) = pair(integrity);
                let mut changed = sent[0].clone();
                changed[at] ^= 0x80;
                assert_eq!(server.opener.open_whole(&mut changed).err(), Some(Forged));
            }
            for cut in 0..sent[0].len() {
                let (_, mut server) = pair(integrity);
                assert_eq!(server.opener.open_whole(&mut sent[0].clone()[..cut]).err(), Some(Forged));
            }
            // What a side sent does not come back to it as if the other had sent it.
            let (mut client, _) = pair(integrity);
            assert_eq!(client.opener.open_whole(&mut sent[0].clone()).err(), Some(Forged));
        }
    }

    #[test]
    fn a_frame_is_cut_into_parts_wherever_its_pieces_end() {
        for (first, second) in [(0, 0), (3, 2), (PART_LEN_MAX, 0), (PART_LEN_MAX - 1, 2), (2 * PART_LEN_MAX, 1)] {
            let (mut client, mut server) = pair(Integrity::Encrypted);
            let pieces = [vec![1; first], vec![2; second]];
            let mut sent = Vec::new();
            let send = |bytes: &[u8]| {
                sent.extend_from_slice(bytes);
                Ok::<(), ()>(())
            };
            client.sealer.seal_frame(&mut Vec::new(), b"header", &[&pieces[0], &pieces[1]], send).unwrap();
            let (header, mut rest) = sent.split_at_mut(b"header".len() + TAG_LEN);
            assert_eq!(server.opener.open_whole(header).unwrap(), b"header");
            let mut got = Vec::new();
            while !rest.is_empty() {
                let (part, more) = rest.split_at_mut(rest.len().min(PART_LEN_MAX + TAG_LEN));
                got.extend_from_slice(server.opener.open_whole(part).unwrap());
                rest = more;
            }
            assert_eq!(got, pieces.concat(), "{first} {second}");
        }
        let mut left = 1;
        let mut send = |_: &[u8]| {
            if left > 0 {
                left -= 1;
                Ok(())
            } else {
                Err("full")
            }
        };
        let long = vec![7; 5 * PART_LEN_MAX];
        let sealed = pair(Integrity::Mac).0.sealer.seal_frame(&mut Vec::new(), b"header", &[&long], &mut send);
        assert_eq!(sealed, Err("full"));
    }

    #[test]
    fn a_code_is_not_taken_for_a_cipher_text() {
        let mut mac = seal(&mut pair(Integrity::Mac).0.sealer, b"text");
        assert_eq!(pair(Integrity::Encrypted).1.opener.open_whole(&mut mac).err(), Some(Forged));
    }
}
