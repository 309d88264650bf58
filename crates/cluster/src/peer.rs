//! What servers say to each other, and its bytes.
//!
//! The network may lose, repeat, delay, and reorder messages; whoever sends one sends it again as long as it matters, and
//! whoever receives it a second time does no harm. Each is in an [`Envelope`] that says who speaks: a server that hears one of an older
//! epoch, or of a process that has not shown that it has its server's own directory ([`crate::lineage`]), does not act on it, and tells the sender.
//!
//! The bytes are one of format ([`FORMAT`]) and then the envelope as `postcard` writes it: integers as varints (signed ones in
//! zigzag), sequences with their length before them, one varint for which variant of an `enum` follows. A change of any
//! type in here raises the format.

use crate::counting::Said;
use crate::lineage::Instance;
use crate::load::Load;
use crate::objects::{ASKED_MAX, ObjectsId, Order, PARTS_MAX, What};
use crate::policy::{Policy, TEXT_BYTES_MAX};
use crate::volumes::copy::{Ask, Page};
use crate::volumes::root::PAGE_SLOTS_MAX;
use crate::volumes::{Outcome, Slot, Version, VolumeKey};
use isonomia_units::{ServerId, VolumeId};
use serde::{Deserialize, Serialize};

/// The first byte of every message.
pub const FORMAT: u8 = 6;
/// A longer message is none.
pub const MESSAGE_BYTES_MAX: usize = 1 << 16;

/// A message with its sender and receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Who speaks. Whoever brings the message has made sure of it.
    pub from: ServerId,
    /// Who is meant.
    pub to: ServerId,
    /// Which process of that server speaks.
    pub instance: Instance,
    /// The token of the one after which it comes, as far as the receiver knows; 0 if it is the first.
    pub after: u64,
    /// The process of the receiver that the sender heard last.
    pub knows: Option<Instance>,
    /// The epoch of the cluster file that the sender has.
    pub epoch: u64,
    /// What is said.
    pub message: Message,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// To the root server: what changed in the table after `known`?
    Pull {
        /// Which question this is.
        ask: Ask,
        /// The last version that the sender knows.
        known: Version,
        /// The version of the policy that it has.
        policy: u64,
        /// How full and how busy it is, if it knows.
        load: Option<Load>,
    },
    /// From the root server: news of the table.
    News {
        /// The news.
        page: Page,
        /// The version of the policy that the root server has.
        policy: u64,
    },
    /// From the root server: the policy.
    Policy(Policy),
    /// From a volume server to the root server: what came of an instruction.
    Outcome {
        /// The volume.
        key: VolumeKey,
        /// The version in which the instruction came into the table.
        instruction: Version,
        /// What came of it.
        outcome: Outcome,
        /// The last version that the sender knows.
        known: Version,
    },
    /// From a volume server to a data server: do this with objects.
    Order(Order),
    /// From a data server to a volume server: what came of an order.
    Did {
        /// The objects.
        objects: ObjectsId,
        /// What was done with them.
        what: What,
        /// The highest number of a last cut that they have now, or an errno.
        result: Result<u64, i32>,
    },
    /// From a data server: does anybody want these objects?
    AskWanted {
        /// The objects, [`ASKED_MAX`] at most.
        objects: Vec<ObjectsId>,
    },
    /// The answer, for those that nobody wants.
    NotWanted {
        /// The objects, [`ASKED_MAX`] at most.
        objects: Vec<ObjectsId>,
    },
    /// What files take.
    Counting(Said),
    /// From the root server, which starts: what does the receiver know of it?
    Begins,
    /// The envelope that came was of an epoch older than this one's: it was not acted upon.
    Outdated,
    /// The envelope that came was of a process that has not shown that it comes after the one that this server knows.
    Unproven,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// Longer than [`MESSAGE_BYTES_MAX`].
    #[error("a message of {0} bytes: {MESSAGE_BYTES_MAX} at most")]
    TooLong(usize),
    /// Another format, that is another version of the program.
    #[error("a message of format {0:?}: this program knows {FORMAT}")]
    Format(Option<u8>),
    /// Not what the format says.
    #[error("a message that breaks its format")]
    Malformed,
}

impl Envelope {
    /// Whether nothing is said but that the receiver was not listened to.
    pub fn is_refusal(&self) -> bool {
        matches!(self.message, Message::Outdated | Message::Unproven)
    }

    /// The bytes, [`MESSAGE_BYTES_MAX`] at most.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = postcard::to_extend(self, vec![FORMAT]).unwrap_or_default();
        debug_assert!((1..=MESSAGE_BYTES_MAX).contains(&bytes.len()));
        bytes
    }

    /// The message in `bytes`, all of them.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(BadMessage::TooLong(bytes.len()));
        }
        let body = match bytes.split_first() {
            Some((&FORMAT, body)) => body,
            other => return Err(BadMessage::Format(other.map(|(format, _)| *format))),
        };
        match postcard::take_from_bytes::<Self>(body) {
            Ok((envelope, [])) if envelope.message.is_sound() => Ok(envelope),
            _ => Err(BadMessage::Malformed),
        }
    }
}

impl Message {
    /// Whether what the types alone do not say holds.
    fn is_sound(&self) -> bool {
        let is_key = |key: &VolumeKey| key.number != VolumeId::ROOT && key.generation > 0;
        match self {
            Self::News { page, .. } => {
                let is_within =
                    |slot: &Slot| slot.changed > page.since && slot.changed <= page.upto && is_key(&slot.key);
                page.slots.len() <= PAGE_SLOTS_MAX
                    && page.upto >= page.since
                    && page.slots.iter().all(is_within)
                    && page.slots.is_sorted_by_key(|slot| slot.changed)
            }
            Self::Outcome { key, .. } => is_key(key),
            Self::Policy(policy) => policy.version > 0 && policy.text.len() <= TEXT_BYTES_MAX,
            Self::Order(order) => order.parts.len() <= PARTS_MAX,
            Self::AskWanted { objects } | Self::NotWanted { objects } => objects.len() <= ASKED_MAX,
            Self::Counting(said) => said.is_sound(),
            Self::Did { .. } | Self::Pull { .. } | Self::Begins | Self::Outdated | Self::Unproven => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting::Places;
    use crate::objects::Part;
    use crate::volumes::{Attributes, NAME_LEN_MAX, Phase, Volume};
    use isonomia_units::TargetId;
    use proptest::prelude::*;

    fn envelope(message: Message) -> Envelope {
        let instance = Instance { number: u64::MAX, token: u64::MAX };
        let (from, to, knows) = (ServerId(u16::MAX), ServerId(1), Some(instance));
        Envelope { from, to, instance, after: u64::MAX, knows, epoch: u64::MAX, message }
    }

    /// The longest page that there can be.
    fn long_page() -> Page {
        let volume = Volume {
            name: vec![b'n'; NAME_LEN_MAX].try_into().unwrap(),
            server: ServerId(u16::MAX),
            attributes: Attributes::new(u32::MAX, u32::MAX, u32::MAX),
            phase: Phase::Renaming { old: vec![b'o'; NAME_LEN_MAX].try_into().unwrap() },
        };
        let slot = |changed| Slot {
            key: VolumeKey { number: VolumeId(u16::MAX), generation: u32::MAX },
            changed: Version(changed),
            volume: Some(volume.clone()),
        };
        let slots = (u64::MAX - PAGE_SLOTS_MAX as u64..u64::MAX).map(slot).collect();
        let (since, upto) = (Version(u64::MAX - PAGE_SLOTS_MAX as u64 - 1), Version(u64::MAX - 1));
        let ask = Some(Ask { token: u64::MAX, number: u64::MAX });
        Page { ask, since, upto, complete: false, slots }
    }

    #[test]
    fn the_longest_message_fits() {
        let objects = ObjectsId { number: u64::MAX, generation: u32::MAX };
        let part = Part { index: u32::MAX, target: TargetId(u16::MAX), size_bytes: u64::MAX };
        let order = Order { objects, what: What::Cut { number: u64::MAX }, parts: vec![part; PARTS_MAX] };
        let asked = Message::AskWanted { objects: vec![objects; ASKED_MAX] };
        let ask = Ask { token: u64::MAX, number: u64::MAX };
        let places = Places { objects, places: vec![(u32::MAX, TargetId(u16::MAX))] };
        let counting = Message::Counting(Said::Ask { ask, files: vec![places; PARTS_MAX] });
        let counted = Message::Counting(Said::Counted { ask, counted: vec![(objects, u64::MAX); ASKED_MAX] });
        let news = Message::News { page: long_page(), policy: u64::MAX };
        for long in [news, Message::Order(order), asked, counting, counted].map(envelope) {
            let bytes = long.encode();
            assert!(bytes.len() <= MESSAGE_BYTES_MAX, "{}", bytes.len());
            assert_eq!(Envelope::decode(&bytes), Ok(long));
        }
    }

    #[test]
    fn what_is_no_message_is_refused_by_name() {
        let bytes = envelope(Message::Outdated).encode();
        assert_eq!(Envelope::decode(&[]), Err(BadMessage::Format(None)));
        assert_eq!(Envelope::decode(&[FORMAT + 1, 0]), Err(BadMessage::Format(Some(FORMAT + 1))));
        assert_eq!(Envelope::decode(&bytes[..bytes.len() - 1]), Err(BadMessage::Malformed));
        assert_eq!(Envelope::decode(&[&bytes[..], &[0]].concat()), Err(BadMessage::Malformed));
        assert_eq!(
            Envelope::decode(&vec![FORMAT; MESSAGE_BYTES_MAX + 1]),
            Err(BadMessage::TooLong(MESSAGE_BYTES_MAX + 1))
        );
        let root = VolumeKey { number: VolumeId::ROOT, generation: 1 };
        let outcome =
            Message::Outcome { key: root, instruction: Version(1), outcome: Outcome::Made, known: Version(1) };
        assert_eq!(Envelope::decode(&envelope(outcome).encode()), Err(BadMessage::Malformed));
        let backwards = Page { slots: long_page().slots.into_iter().rev().collect(), ..long_page() };
        assert_eq!(
            Envelope::decode(&envelope(Message::News { page: backwards, policy: 0 }).encode()),
            Err(BadMessage::Malformed)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_what_encodes_to_a_message(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(first) = bytes.first_mut() {
                *first = FORMAT;
            }
            if let Ok(envelope) = Envelope::decode(&bytes) {
                prop_assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
            }
        }
    }
}
