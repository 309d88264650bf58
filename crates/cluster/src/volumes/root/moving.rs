//! How a volume moves from one server to another.
//!
//! | event | active | leaving (its server is the old one) | arriving (its server is the new one) |
//! |---|---|---|---|
//! | move it to the server that has it | done | waits | the same move: answered when it has arrived |
//! | move it to the server that it goes to | → leaving; the old server is told | the same move | as above |
//! | move it back to where it comes from | – | waits | → renaming to the name that it has, at the old server; who waits for the move gets ECANCELED |
//! | move it to yet another one | – | waits | waits |
//! | remove, rename, make, look up the name; where is the number | as ever | waits | waits |
//! | *frozen* | – | → arriving; the new server is told | – |
//! | *not frozen* | – | → active; answered with its errno | – |
//! | *fetched* | – | – | → active; answered; both servers are told |
//! | *not fetched* | – | – | → renaming to the name that it has, at the old server; answered with its errno |
//!
//! # Why nothing is lost, and nothing there twice
//! * The old server has frozen the volume on its own word, durable, before the new one hears that it is to come: what the new
//!   one reads does not change any more.
//! * The old one thaws or drops what it has only when it hears of a later version of the slot: "renaming, at the old server" or
//!   anything at another server. The one comes only after *not fetched*, or for an operator who gives the move up, and then
//!   *fetched*, which is of an earlier version, counts no more; the other only after *fetched*, which is said when all
//!   of it is on stable storage at the new server.
//! * The new one serves nobody before it hears of a later version by which it has the volume. So at no moment do both.

use super::{Decisions, INTENTS_MAX, Phase, Root, Verdict, Volume, VolumeKey, VolumeName};
use crate::request::{Answer, Refusal};
use crate::volumes::Outcome;
use isonomia_units::{ServerId, VolumeId};
use std::collections::BTreeSet;

/// errno of a move that was given up.
pub const ECANCELED: i32 = 125;

impl Root {
    /// What becomes of the wish that `to` have the volume `name`.
    pub(super) fn move_to(
        &mut self,
        name: &VolumeName,
        found: Option<VolumeId>,
        to: ServerId,
        decisions: &mut Decisions,
    ) -> Verdict {
        let slot = self.table.named(name).filter(|slot| found.is_none_or(|found| found == slot.key.number));
        let moving = slot.and_then(|slot| Some((slot.key, slot.intent()?.clone())));
        match moving {
            Some((key, Volume { phase: Phase::Leaving { to: going }, .. })) if going == to => {
                return Verdict::Begun(BTreeSet::from([key.number]));
            }
            Some((key, Volume { phase: Phase::Arriving { .. }, server, .. })) if server == to => {
                return Verdict::Begun(BTreeSet::from([key.number]));
            }
            Some((key, volume)) if volume.phase == (Phase::Arriving { from: to }) => {
                self.tell_askers(key, &Err(Refusal::FileSystem(ECANCELED)), decisions);
                self.give_back(key, volume, to, decisions);
                return Verdict::Begun(BTreeSet::from([key.number]));
            }
            _ => {}
        }
        match self.free_to_change(name, found) {
            Err(verdict) => verdict,
            Ok((_, volume)) if volume.server == to => Verdict::Answer(Ok(Answer::Done)),
            Ok(_) if self.intents.len() >= INTENTS_MAX => Verdict::Answer(Err(Refusal::Busy)),
            Ok((key, volume)) => {
                self.intend(key, Volume { phase: Phase::Leaving { to }, ..volume }, decisions);
                Verdict::Begun(BTreeSet::from([key.number]))
            }
        }
    }

    /// The server that `volume` leaves, or the one that it comes to, says what came of its part.
    pub(super) fn has_moved(&mut self, key: VolumeKey, volume: Volume, outcome: Outcome, decisions: &mut Decisions) {
        let (result, server) = match (&volume.phase, outcome) {
            (Phase::Leaving { to }, Outcome::Frozen) => {
                let (server, phase) = (*to, Phase::Arriving { from: volume.server });
                return self.intend(key, Volume { server, phase, ..volume }, decisions);
            }
            (Phase::Leaving { .. }, Outcome::NotFrozen(errno)) => (Err(Refusal::FileSystem(errno)), volume.server),
            (Phase::Arriving { from }, Outcome::Fetched) => {
                decisions.concerned.extend([*from, volume.server]);
                (Ok(Answer::Done), volume.server)
            }
            (Phase::Arriving { from }, Outcome::NotFetched(errno)) => {
                let from = *from;
                self.tell_askers(key, &Err(Refusal::FileSystem(errno)), decisions);
                return self.give_back(key, volume, from, decisions);
            }
            _ => return,
        };
        self.intents.remove(&key.number);
        self.set(key, Some(Volume { phase: Phase::Active, server, ..volume }), decisions);
        self.tell_askers(key, &result, decisions);
        self.try_waiting(decisions);
    }

    /// `from` has the volume as before.
    fn give_back(&mut self, key: VolumeKey, volume: Volume, from: ServerId, decisions: &mut Decisions) {
        decisions.concerned.push(volume.server);
        let name = volume.name.clone();
        self.rename_to(key, Volume { server: from, ..volume }, name, decisions);
    }

    fn tell_askers(&mut self, key: VolumeKey, result: &Result<Answer, Refusal>, decisions: &mut Decisions) {
        let (done, asking) =
            std::mem::take(&mut self.asking).into_iter().partition(|asking| asking.of.contains(&key.number));
        self.asking = asking;
        let done: Vec<super::Asking> = done;
        decisions.answers.extend(done.into_iter().map(|asking| (asking.id, result.clone())));
    }
}
