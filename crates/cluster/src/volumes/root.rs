//! What the root server does: it decides the table of volumes.
//!
//! # States and events
//! A slot of the table is *free* (no volume, or never used), or its volume is *creating*, *active*, *removing*, *prepared*, or
//! *renaming*; or it moves from one server to another ([`moving`]).
//! Each arrow is a new version of the table, and on stable storage before anybody hears of it.
//!
//! | event | free | creating | active | removing | prepared, renaming |
//! |---|---|---|---|---|---|
//! | make this name | → creating; the volume server is told | waits | EEXIST | waits | waits |
//! | remove this name | ENOENT | waits | → removing; the volume server is told | waits | waits |
//! | rename this name | ENOENT | waits | the new name is free: → renaming, the volume server is told; it is a volume's: → prepared, to replace that one | waits | waits |
//! | exchange with this name | ENOENT | waits | both → prepared | waits | waits |
//! | look up this name | ENOENT | ENOENT | this volume | waits | waits |
//! | where is this number | ENOENT | ENOENT | this server | waits | this server |
//! | *made* | – | → active; answered | – | – | – |
//! | *not made* | – | → free; answered with its errno | – | – | – |
//! | *removed* | – | – | – | → free; answered. If there is a successor it gets the name, → renaming, and the answer comes then | – |
//! | *not removed* | – | – | – | → active; answered with its errno. A successor keeps its name, → renaming | – |
//! | *prepared* | – | – | – | – | to replace: the other one → removing; exchange: when both are, both → renaming |
//! | *renamed* | – | – | – | – | → active; answered (an exchange: when both are) |
//! | deadline of who waits | – | ETIMEDOUT, and the intent stays | – | the same | ETIMEDOUT; prepared, and the other one is not in removing: → renaming to the name that it has |
//! | start of the server | – | the volume server is told (it asks for what is new) | – | the same | the same; prepared: as at a deadline |
//!
//! A name that a volume in *renaming* had before counts as that volume's: whoever asks for it waits. A volume
//! that another one is prepared for cannot be changed otherwise meanwhile. Whoever waits is looked at again whenever a volume server
//! has said something, in the order in which they came. Nobody waits for a request, only for volume servers, so no two
//! can wait for each other.
//!
//! # Why a name leads to one volume, and that volume is there
//! * A name is in the table once: all changes of it are made here, one after the other, each from a state in which the name is free.
//! * *Active* follows *made*, which the volume server says when the directory is on stable storage; the directory goes
//!   only by an instruction to remove, and each instruction acts once ([`super::hosted`]). One that was answered with "not
//!   removed" never acts again, so an active volume has no instruction that could still remove it.
//! * The slot becomes free after *removed*, which is said when the directory is gone.
//! * An outcome counts for the instruction that it names only: a late one changes nothing.
//! * A number gets a new volume only after all others had one since, and then the next generation. Whoever still speaks of
//!   the one before is told that it is gone.
//!
//! # Why a copy that is old gives no wrong answer
//! A copy only says whom to ask: the volume server, which answers for the names of its volumes, or the root server. A name that
//! was taken from a volume is answered for by nobody but the root server from the moment at which the volume server knows, and
//! nobody is told that it was renamed or removed before that. Where two servers take part, both know before the first name
//! is another one's: otherwise a client could see that the one has changed and after that that the other one has not.

mod moving;

use super::copy::{Ask, Page, page};
use super::{Outcome, Phase, Slot, Table, Version, Volume, VolumeKey, VolumeName};
use crate::request::{Answer, Refusal, RenameHow, Request, RequestId};
use isonomia_units::{ServerId, VolumeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Volumes that are being created or removed at once; whoever wants more is refused ([`Refusal::Busy`]).
pub const INTENTS_MAX: usize = 1024;
/// Requests that wait because of what is being done with a name; further ones are refused ([`Refusal::Busy`]).
pub const WAITING_MAX: usize = 1024;
/// Slots in one page of news: with the longest names they fit into one message.
pub const PAGE_SLOTS_MAX: usize = 96;

/// A request that has no answer yet.
#[derive(Debug)]
struct Waiting {
    id: RequestId,
    request: Request,
}

/// A request whose answer volume servers have to give.
#[derive(Debug)]
struct Asking {
    id: RequestId,
    /// The volumes whose servers have not said yet what came of it.
    of: BTreeSet<VolumeId>,
}

/// What the root server has decided and not yet passed on.
#[derive(Debug, Default)]
pub struct Decisions {
    /// Slots that changed: to be stored as one, before anything else is done. The last number that was given out goes with them.
    pub changed: Vec<Slot>,
    /// Servers that are to hear of it at once, besides those of intents.
    pub concerned: Vec<ServerId>,
    /// Requests that have their answer.
    pub answers: Vec<(RequestId, Result<Answer, Refusal>)>,
}

/// The table, and who waits for it.
#[derive(Debug)]
pub struct Root {
    table: Table,
    /// The number that was given out last.
    last: VolumeId,
    /// The volumes whose servers have to say something, each with the other one that it is about.
    intents: BTreeMap<VolumeId, Option<VolumeId>>,
    /// Volumes in an exchange whose servers have said that they are prepared.
    prepared: BTreeSet<VolumeId>,
    waiting: VecDeque<Waiting>,
    /// [`INTENTS_MAX`] at most; of a move there may be several.
    asking: Vec<Asking>,
}

/// What becomes of a request.
enum Verdict {
    Answer(Result<Answer, Refusal>),
    /// Not before something that is being done is done.
    Wait,
    /// The answer comes when the servers of these volumes have said what came of it.
    Begun(BTreeSet<VolumeId>),
}

impl Root {
    /// The table that is in the store, and the number that was given out last.
    pub fn new(table: Table, last: VolumeId) -> Self {
        let intents = table.slots().filter_map(|slot| Some((slot.key.number, partner(slot.intent()?)))).collect();
        Self { table, last, intents, prepared: BTreeSet::new(), waiting: VecDeque::new(), asking: Vec::new() }
    }

    /// The table as it will be when everything that was decided is stored.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The number that was given out last.
    pub fn last(&self) -> VolumeId {
        self.last
    }

    /// Whether `name` belongs to a volume, or somebody waits to give it to one.
    pub fn is_taken(&self, name: &VolumeName) -> bool {
        let wanted = |waiting: &Waiting| match &waiting.request {
            Request::Make { name: new, .. } | Request::Rename { to: new, .. } => new == name,
            _ => false,
        };
        let has = self.table.named(name).or_else(|| self.table.formerly_named(name));
        has.is_some() || self.waiting.iter().any(wanted)
    }

    /// The news for whoever knows the table up to `since`.
    pub fn page(&self, ask: Option<Ask>, since: Version) -> Page {
        page_of(&self.table, ask, since)
    }

    /// Takes in a request; `is_member` says which servers there are.
    pub fn request(
        &mut self,
        id: RequestId,
        request: Request,
        is_member: impl Fn(ServerId) -> bool,
        decisions: &mut Decisions,
    ) {
        match &request {
            Request::Make { server, .. } | Request::Move { to: server, .. } if !is_member(*server) => {
                decisions.answers.push((id, Err(Refusal::UnknownServer)));
            }
            _ => self.try_it(Waiting { id, request }, decisions),
        }
    }

    /// The volume server `from` says what came of the instruction of version `instruction` for `key`.
    pub fn outcome(
        &mut self,
        from: ServerId,
        (key, instruction): (VolumeKey, Version),
        outcome: Outcome,
        decisions: &mut Decisions,
    ) {
        let Some(slot) = self.table.slot(key.number) else { return };
        if slot.key != key || slot.changed != instruction {
            return;
        }
        let Some(volume) = slot.intent().filter(|volume| volume.server == from).cloned() else { return };
        if let (Phase::Prepared { with, exchange }, Outcome::Prepared) = (&volume.phase, outcome) {
            return self.is_prepared(key.number, *with, *exchange, decisions);
        }
        if let Phase::Leaving { .. } | Phase::Arriving { .. } = volume.phase {
            return self.has_moved(key, volume, outcome, decisions);
        }
        let active = Some(Volume { phase: Phase::Active, ..volume.clone() });
        let (left, result) = match (&volume.phase, outcome) {
            (Phase::Creating, Outcome::Made) => (active, Ok(Answer::Volume { key, server: from })),
            (Phase::Creating, Outcome::NotMade(errno)) => (None, Err(Refusal::FileSystem(errno))),
            (Phase::Removing { .. }, Outcome::Removed) => (None, Ok(Answer::Done)),
            (Phase::Removing { .. }, Outcome::NotRemoved(errno)) => (active, Err(Refusal::FileSystem(errno))),
            (Phase::Renaming { .. }, Outcome::Renamed) => (active, Ok(Answer::Done)),
            _ => return,
        };
        let is_gone = left.is_none();
        self.intents.remove(&key.number);
        self.set(key, left, decisions);
        let mut next = None;
        if let Phase::Removing { successor: Some(successor) } = volume.phase
            && let Some((heir_key, heir)) = self.of_number(successor)
        {
            let name = if is_gone { volume.name } else { heir.name.clone() };
            self.rename_to(heir_key, heir, name, decisions);
            next = is_gone.then_some(successor);
        }
        if let Some(at) = self.asking.iter().position(|asking| asking.of.contains(&key.number)) {
            let asking = &mut self.asking[at];
            asking.of.remove(&key.number);
            asking.of.extend(next);
            if asking.of.is_empty() {
                decisions.answers.push((self.asking.remove(at).id, result));
            }
        }
        self.try_waiting(decisions);
    }

    fn try_waiting(&mut self, decisions: &mut Decisions) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.try_it(waiting, decisions);
        }
    }

    /// Nobody answers for the name of `number` any more.
    fn is_prepared(&mut self, number: VolumeId, with: VolumeId, exchange: bool, decisions: &mut Decisions) {
        let (Some((key, volume)), Some((other_key, other))) = (self.of_number(number), self.of_number(with)) else {
            return;
        };
        if exchange {
            self.prepared.insert(number);
            if self.prepared.contains(&with) {
                let (name, other_name) = (volume.name.clone(), other.name.clone());
                self.rename_to(key, volume, other_name, decisions);
                self.rename_to(other_key, other, name, decisions);
            }
        } else if other.phase == Phase::Active {
            self.intend(other_key, Volume { phase: Phase::Removing { successor: Some(number) }, ..other }, decisions);
            if let Some(asking) = self.asking.iter_mut().find(|asking| asking.of.contains(&number)) {
                asking.of = BTreeSet::from([with]);
            }
        }
    }

    /// Lets go what a process before this one had prepared, and nobody waits for any more.
    pub fn let_go(&mut self, decisions: &mut Decisions) {
        let is_removing = |number: &VolumeId| {
            self.table
                .slot(*number)
                .is_some_and(|slot| matches!(slot.intent(), Some(Volume { phase: Phase::Removing { .. }, .. })))
        };
        let heirs: BTreeSet<VolumeId> =
            (self.intents.iter()).filter(|(number, _)| is_removing(number)).filter_map(|(_, heir)| *heir).collect();
        let numbers: Vec<VolumeId> = self.intents.keys().copied().filter(|number| !heirs.contains(number)).collect();
        for number in numbers {
            self.release(number, decisions);
        }
    }

    fn release(&mut self, number: VolumeId, decisions: &mut Decisions) {
        if let Some((key, volume)) = self.of_number(number)
            && let Phase::Prepared { .. } = volume.phase
        {
            let name = volume.name.clone();
            self.rename_to(key, volume, name, decisions);
        }
    }

    /// Nobody waits for the answer of `id` any more. What it has begun goes on; what is only prepared is let go.
    pub fn forget(&mut self, id: RequestId, decisions: &mut Decisions) {
        self.waiting.retain(|waiting| waiting.id != id);
        let Some(at) = self.asking.iter().position(|asking| asking.id == id) else { return };
        for number in self.asking.remove(at).of {
            self.release(number, decisions);
        }
    }

    fn try_it(&mut self, waiting: Waiting, decisions: &mut Decisions) {
        match self.verdict(&waiting.request, decisions) {
            Verdict::Answer(answer) => decisions.answers.push((waiting.id, answer)),
            Verdict::Begun(of) if self.asking.len() < INTENTS_MAX => self.asking.push(Asking { id: waiting.id, of }),
            // What was begun goes on.
            Verdict::Begun(_) => decisions.answers.push((waiting.id, Err(Refusal::TimedOut))),
            Verdict::Wait if self.waiting.len() < WAITING_MAX => self.waiting.push_back(waiting),
            Verdict::Wait => decisions.answers.push((waiting.id, Err(Refusal::Busy))),
        }
    }

    fn verdict(&mut self, request: &Request, decisions: &mut Decisions) -> Verdict {
        let refuse = |refusal| Verdict::Answer(Err(refusal));
        match request {
            Request::LookUp { name, .. } if self.table.formerly_named(name).is_some() => Verdict::Wait,
            Request::LookUp { name, .. } => match self.table.named(name).and_then(|slot| Some((slot, slot.visible()?)))
            {
                None => refuse(Refusal::NotFound),
                Some((_, volume)) if volume.phase != Phase::Active => Verdict::Wait,
                Some((slot, volume)) => Verdict::Answer(Ok(Answer::Volume { key: slot.key, server: volume.server })),
            },
            Request::WhereIs { number, .. } => {
                match self.table.slot(*number).and_then(|slot| Some((slot, slot.visible()?))) {
                    None => refuse(Refusal::NotFound),
                    Some((_, Volume { phase: Phase::Removing { .. }, .. })) => Verdict::Wait,
                    Some((_, Volume { phase: Phase::Leaving { .. } | Phase::Arriving { .. }, .. })) => Verdict::Wait,
                    Some((slot, volume)) => {
                        Verdict::Answer(Ok(Answer::Volume { key: slot.key, server: volume.server }))
                    }
                }
            }
            Request::List { since } => Verdict::Answer(Ok(Answer::Listed(self.page(None, *since)))),
            Request::Make { name, server, attributes } => {
                if self.is_in_doubt(name) {
                    return Verdict::Wait;
                }
                if self.table.named(name).is_some() {
                    return refuse(Refusal::Exists);
                }
                if self.intents.len() >= INTENTS_MAX {
                    return refuse(Refusal::Busy);
                }
                let Some(key) = self.next_free() else { return refuse(Refusal::NoNumbers) };
                self.last = key.number;
                let (name, server, attributes) = (name.clone(), *server, *attributes);
                let volume = Volume { name, server, attributes, phase: Phase::Creating };
                self.intend(key, volume, decisions);
                Verdict::Begun(BTreeSet::from([key.number]))
            }
            Request::Remove { name, found } => match self.free_to_change(name, *found) {
                Err(verdict) => verdict,
                Ok(_) if self.intents.len() >= INTENTS_MAX => refuse(Refusal::Busy),
                Ok((key, volume)) => {
                    self.intend(key, Volume { phase: Phase::Removing { successor: None }, ..volume }, decisions);
                    Verdict::Begun(BTreeSet::from([key.number]))
                }
            },
            Request::Move { name, found, to } => self.move_to(name, *found, *to, decisions),
            // The node does.
            Request::SetPolicy { .. } => refuse(Refusal::Busy),
            Request::Rename { from, found, to, how } => match self.free_to_change(from, *found) {
                Ok(volume) => self.rename(volume, to, *how, decisions),
                Err(verdict) => verdict,
            },
        }
    }

    fn rename(
        &mut self,
        (key, volume): (VolumeKey, Volume),
        to: &VolumeName,
        how: RenameHow,
        decisions: &mut Decisions,
    ) -> Verdict {
        let refuse = |refusal| Verdict::Answer(Err(refusal));
        if self.is_in_doubt(to) {
            return Verdict::Wait;
        }
        if self.intents.len() + 1 >= INTENTS_MAX {
            return refuse(Refusal::Busy);
        }
        if self.table.named(to).is_none() {
            if how == RenameHow::Exchange {
                return refuse(Refusal::NotFound);
            }
            self.rename_to(key, volume, to.clone(), decisions);
            return Verdict::Begun(BTreeSet::from([key.number]));
        }
        let (other_key, other) = match self.free_to_change(to, None) {
            Ok(found) => found,
            Err(verdict) => return verdict,
        };
        match how {
            RenameHow::NoReplace => refuse(Refusal::Exists),
            _ if other_key == key => Verdict::Answer(Ok(Answer::Done)),
            RenameHow::Exchange => {
                let prepared = |with: VolumeKey| Phase::Prepared { with: with.number, exchange: true };
                self.intend(key, Volume { phase: prepared(other_key), ..volume }, decisions);
                self.intend(other_key, Volume { phase: prepared(key), ..other }, decisions);
                Verdict::Begun(BTreeSet::from([key.number, other_key.number]))
            }
            RenameHow::Replace => {
                let phase = Phase::Prepared { with: other_key.number, exchange: false };
                self.intend(key, Volume { phase, ..volume }, decisions);
                Verdict::Begun(BTreeSet::from([key.number]))
            }
        }
    }

    /// Whether it is not known yet what `name` will stand for.
    pub fn is_in_doubt(&self, name: &VolumeName) -> bool {
        self.table.formerly_named(name).is_some() || self.table.named(name).is_some_and(|slot| slot.intent().is_some())
    }

    /// The volume called `name`, if nothing is being done with it and nothing waits for it; nothing but number `found` if
    /// that is given.
    fn free_to_change(&self, name: &VolumeName, found: Option<VolumeId>) -> Result<(VolumeKey, Volume), Verdict> {
        if self.is_in_doubt(name) {
            return Err(Verdict::Wait);
        }
        let slot = self.table.named(name).filter(|slot| found.is_none_or(|found| found == slot.key.number));
        let volume = slot.and_then(|slot| Some((slot.key, slot.volume.clone()?)));
        let (key, volume) = volume.ok_or(Verdict::Answer(Err(Refusal::NotFound)))?;
        let is_waited_for = self.intents.values().any(|other| *other == Some(key.number));
        if is_waited_for { Err(Verdict::Wait) } else { Ok((key, volume)) }
    }

    fn of_number(&self, number: VolumeId) -> Option<(VolumeKey, Volume)> {
        self.table.slot(number).and_then(|slot| Some((slot.key, slot.volume.clone()?)))
    }

    /// Has the volume server told that the volume is called `name`, which may be the name that it has.
    fn rename_to(&mut self, key: VolumeKey, volume: Volume, name: VolumeName, decisions: &mut Decisions) {
        let old = volume.name;
        self.intend(key, Volume { name, phase: Phase::Renaming { old }, ..volume }, decisions);
    }

    fn intend(&mut self, key: VolumeKey, volume: Volume, decisions: &mut Decisions) {
        self.prepared.remove(&key.number);
        self.intents.insert(key.number, partner(&volume));
        self.set(key, Some(volume), decisions);
    }

    fn set(&mut self, key: VolumeKey, volume: Option<Volume>, decisions: &mut Decisions) {
        let slot = Slot { key, changed: self.table.version().next(), volume };
        self.table.put(slot.clone());
        decisions.changed.push(slot);
    }

    /// The first number after the last one, around the end, that has no volume.
    fn next_free(&self) -> Option<VolumeKey> {
        let after = (self.last.0..u16::MAX).map(|number| number + 1);
        let key = |number| match self.table.slot(number) {
            None => Some(VolumeKey { number, generation: 1 }),
            Some(Slot { volume: Some(_), .. }) => None,
            Some(slot) => Some(VolumeKey { number, generation: slot.key.generation.checked_add(1)? }),
        };
        after.chain(1..=self.last.0).map(VolumeId).find_map(key)
    }
}

/// The news in `table` for whoever knows it up to `since`.
pub fn page_of(table: &Table, ask: Option<Ask>, since: Version) -> Page {
    page(table, ask, since, PAGE_SLOTS_MAX)
}

/// The other volume that what is being done with this one is about.
fn partner(volume: &Volume) -> Option<VolumeId> {
    match volume.phase {
        Phase::Removing { successor } => successor,
        Phase::Prepared { with, .. } => Some(with),
        Phase::Creating | Phase::Active | Phase::Renaming { .. } | Phase::Leaving { .. } | Phase::Arriving { .. } => {
            None
        }
    }
}

#[cfg(test)]
mod tests;
