//! Clusters with a fault of construction: what the checkers have to find.
//!
//! The state machines have no such knobs. A double changes what goes in and out of them, as a program around them would that got
//! it wrong.

use isonomia_cluster::lineage::Past;
use isonomia_cluster::node::{Effect, Input, Node};
use isonomia_cluster::peer::{Envelope, Message};
use isonomia_cluster::records::Change;
use isonomia_cluster::volumes::Outcome;
use isonomia_units::Nanos;

/// What is wrong with a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Double {
    /// Nothing.
    #[default]
    Sound,
    /// What is being stored is reported as stored at once: things are said that a stop undoes.
    SpeaksBeforeStoring,
    /// What volume servers did is not stored: after a stop they do it again, whatever came since.
    ForgetsInstructions,
    /// A message that came before counts as a new one: what came of one instruction is taken for what came of another.
    MixesUpOutcomes,
    /// A volume that is not empty is reported as removed.
    RemovesWhatIsFull,
    /// A volume that could not be removed stays in removal.
    LeavesIntents,
    /// Messages of an older epoch count.
    TakesOldEpochs,
    /// A process that was replaced answers clients.
    NeverLosesOwnership,
    /// A process that was replaced goes on writing.
    HasNoFence,
    /// Numbers of volumes that are gone are given out at once, by a root server that starts.
    ForgetsNumbers,
    /// Some requests are never answered.
    LosesAnswers,
    /// A data server does a cut as often as it hears of it.
    CutsTwice,
    /// A writer's word on the end of a file is taken though the file was cut after the write.
    BelievesOldEnds,
    /// Writers tell nobody how far they wrote.
    TellsNobody,
    /// A server that starts does not go on with cuts.
    ForgetsIntents,
    /// The policy reaches nobody by itself.
    LosesPolicies,
    /// Servers answer for names from their copies of the table.
    BelievesCopies,
    /// A volume that moves is written to all the while.
    WritesWhatMoves,
    /// A server that is told to get a volume says that it has it before it does.
    HasNothingFetched,
    /// A server takes any directory for its own.
    HasAnyDirectory,
    /// A writer who hears of a cut writes again, whatever cut it was.
    WritesTwice,
    /// A writer who hears of a cut takes it for a program's, whatever cut it was.
    TakesCutsForDone,
    /// `fsync` of an object does nothing.
    SyncsNothing,
}

impl Double {
    /// All that is wrong somewhere.
    pub const BROKEN: [Self; 22] = [
        Self::SpeaksBeforeStoring,
        Self::ForgetsInstructions,
        Self::MixesUpOutcomes,
        Self::RemovesWhatIsFull,
        Self::LeavesIntents,
        Self::TakesOldEpochs,
        Self::NeverLosesOwnership,
        Self::HasNoFence,
        Self::ForgetsNumbers,
        Self::LosesAnswers,
        Self::BelievesCopies,
        Self::CutsTwice,
        Self::BelievesOldEnds,
        Self::TellsNobody,
        Self::ForgetsIntents,
        Self::LosesPolicies,
        Self::WritesWhatMoves,
        Self::HasNothingFetched,
        Self::HasAnyDirectory,
        Self::WritesTwice,
        Self::TakesCutsForDone,
        Self::SyncsNothing,
    ];

    /// Whether `change` reaches stable storage.
    pub fn keeps(self, change: &Change) -> bool {
        let kind = change.key.first();
        match self {
            Self::ForgetsInstructions => kind != Some(&b'h'),
            Self::ForgetsNumbers => kind != Some(&b'l'),
            _ => true,
        }
    }

    /// What a process says of those that had its directory before.
    pub fn past_of(self, past: &Past) -> Past {
        let all_below = if self == Self::HasAnyDirectory { u64::MAX } else { past.all_below };
        Past { all_below, ..past.clone() }
    }

    /// When a process that owns its directory until `until` stops to answer.
    pub fn owned_until(self, until: Nanos) -> Nanos {
        if self == Self::NeverLosesOwnership { Nanos::MAX } else { until }
    }

    /// Changes what `node` hears.
    pub fn hears(self, node: &Node, input: &mut Input) {
        let Input::Message { envelope, .. } = input else { return };
        match (self, &mut envelope.message) {
            (Self::TakesOldEpochs, _) => envelope.epoch = envelope.epoch.max(node.epoch()),
            (Self::RemovesWhatIsFull, Message::Outcome { outcome, .. }) => {
                if let Outcome::NotRemoved(_) = outcome {
                    *outcome = Outcome::Removed;
                }
            }
            (Self::MixesUpOutcomes, Message::Outcome { key, instruction, .. }) => {
                if let Some(slot) = node.table().slot(key.number) {
                    *instruction = slot.changed;
                }
            }
            _ => {}
        }
    }

    /// How often the network repeats this message in the next seconds, so that what is wrong shows soon.
    pub fn repeats(self, envelope: &Envelope) -> u32 {
        let is_it = self == Self::MixesUpOutcomes && matches!(envelope.message, Message::Outcome { .. });
        if is_it { 8 } else { 0 }
    }

    /// Whether this effect is lost.
    pub fn loses(self, effect: &Effect) -> bool {
        match (self, effect) {
            (Self::LosesAnswers, Effect::Answer { id, .. }) => id.0 % 8 == 7,
            (Self::LosesPolicies, Effect::Send(envelope)) => matches!(envelope.message, Message::Policy(_)),
            (Self::LeavesIntents, Effect::Send(envelope)) => {
                matches!(envelope.message, Message::Outcome { outcome: Outcome::NotRemoved(_), .. })
            }
            _ => false,
        }
    }
}
