//! What one server sends to another in a request ([`isonomia_proto::request::Op::Peer`]): a message of the protocol, or a
//! change of a volume that a user may make and the root server decides.

use isonomia_cluster::peer::Envelope;
use isonomia_cluster::request::{Answer, Refusal};
use isonomia_cluster::volumes::{Attributes, VolumeName};
use isonomia_units::VolumeId;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// What is sent.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToPeer {
    /// As the protocol says: whoever gets it confirms that and nothing else.
    Message(Envelope),
    /// It is answered by a [`Verdict`].
    Change(Forwarded),
}

/// A change of a volume.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Forwarded {
    /// A new one, with a directory like that.
    Make {
        /// Its name.
        name: VolumeName,
        /// Its directory's attributes.
        attributes: Attributes,
    },
    /// An empty one goes.
    Remove {
        /// Its name.
        name: VolumeName,
        /// The volume that was found by that name.
        found: VolumeId,
    },
    /// One gets another name.
    Rename {
        /// Its name.
        from: VolumeName,
        /// The volume that was found by that name.
        found: VolumeId,
        /// The new one.
        to: VolumeName,
        /// What becomes of a volume that has it already.
        how: How,
    },
}

/// See [`isonomia_cluster::request::RenameHow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// It goes if it is empty.
    Replace,
    /// The change fails.
    NoReplace,
    /// It gets the old name.
    Exchange,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It is made.
    Done,
    /// So is this volume.
    Volume(VolumeId),
    /// It is not, or not yet: an errno.
    Failed(u32),
}

/// The bytes of a message.
pub fn encode(what: &ToPeer) -> Vec<u8> {
    postcard::to_stdvec(what).unwrap_or_default()
}

/// What was sent.
pub fn decode(bytes: &[u8]) -> Result<ToPeer, postcard::Error> {
    postcard::from_bytes(bytes)
}

impl Verdict {
    /// That of the root server's node.
    pub fn of(result: Result<Answer, Refusal>) -> Self {
        let errno = match result {
            Ok(Answer::Volume { key, .. }) => return Self::Volume(key.number),
            Ok(Answer::Done | Answer::Listed(_)) => return Self::Done,
            Err(Refusal::NotFound) => Errno::NOENT,
            Err(Refusal::Exists) => Errno::EXIST,
            Err(Refusal::NoNumbers) => Errno::NOSPC,
            Err(Refusal::UnknownServer) => Errno::NODEV,
            Err(Refusal::FileSystem(errno)) => return Self::Failed(errno.unsigned_abs()),
            Err(Refusal::TimedOut) => Errno::TIMEDOUT,
            // Whoever asked is not the root server, or this one is not any more.
            Err(Refusal::Refer(_) | Refusal::Busy | Refusal::EpochBehind | Refusal::NotOwner | Refusal::Starting) => {
                Errno::AGAIN
            }
            Err(Refusal::PolicyTooLong(_)) => Errno::INVAL,
        };
        Self::failed(errno)
    }

    /// Failure with this errno.
    pub fn failed(errno: Errno) -> Self {
        Self::Failed(errno.raw_os_error().unsigned_abs())
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Of these bytes; failure if they are none.
    pub fn decode(bytes: &[u8]) -> Self {
        postcard::from_bytes(bytes).unwrap_or(Self::failed(Errno::PROTO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_sent_is_received() {
        let name = |text: &[u8]| VolumeName::try_from(text).unwrap();
        for change in [
            Forwarded::Make { name: name(b"a"), attributes: Attributes { mode: 0o755, uid: 1, gid: 2 } },
            Forwarded::Remove { name: name(b"b"), found: VolumeId(7) },
            Forwarded::Rename { from: name(b"c"), found: VolumeId(8), to: name(b"d"), how: How::Exchange },
        ] {
            let sent = ToPeer::Change(change);
            assert_eq!(decode(&encode(&sent)).unwrap(), sent);
        }
        for verdict in [Verdict::Done, Verdict::Volume(VolumeId(7)), Verdict::failed(Errno::NOTEMPTY)] {
            assert_eq!(Verdict::decode(&verdict.encode()), verdict);
        }
    }

    proptest! {
        #[test]
        fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (decode(&bytes), Verdict::decode(&bytes));
        }
    }
}
