//! What a volume server does: it sees to it that its file system is as the table says, and tells the root server what came of it.
//!
//! An *instruction* is a slot in another phase than [`Phase::Active`], named by its volume of all times and the version in
//! which it came into the table. The server keeps of each number of a volume the last instruction that it carried out and what
//! came of it ([`Host`]), on stable storage before it says so, also of volumes that are gone (65,535 at most).
//!
//! | what is known of the number | an instruction comes | what is done |
//! |---|---|---|
//! | nothing, an earlier generation, or an earlier instruction | to create or remove | the file system is asked; what it says is recorded, and then told |
//! | nothing, an earlier generation, or an earlier instruction | to prepare or rename | recorded, and then told |
//! | the same | to let a volume leave | the file system is asked, as above: to freeze it |
//! | the same | to get a volume | recorded as *fetching*, so that a part of it is not forgotten; then the file system is asked, also after a stop |
//! | frozen, fetching, fetched or not fetched | a later slot, by which another server has the volume and does not get it from here, or nobody has it | the file system drops what is here; nobody is told |
//! | fetched | a later slot, by which it is here | recorded as made |
//! | this instruction | the same again | what came of it is told again |
//! | a later instruction or generation | one from before | nothing: it was under way for long |
//!
//! So each instruction is carried out once, however often it comes and whenever: one that was answered never acts again. In
//! between, after a stop between the act and its record, it is carried out a second time, and both are such that this does no
//! harm: to make the volume of all times that is there, and to remove the one that is gone, succeed at once.
//!
//! This server also *answers for the names* of its volumes: who was sent here because some copy of the table said so, and
//! finds that the volume has another name now, is sent on to the root server. Of a volume that is being removed
//! nothing is said here, nor for the name of one that is prepared: the root server has it answered when it is known what came of it.
//!
//! A volume that *moves* is frozen on the one server, fetched by the other one, and dropped by the first ([`super::root`] says
//! when). Frozen or fetched, nobody is served in it ([`Hosted::is_closed`]): who fetched it serves it when the
//! table says that it has it. What could not be fetched may have left a part of it, or what lay here of it before: that is
//! dropped like what moved away, once the table has gone on.

use super::{Attributes, Outcome, Phase, Slot, Version, VolumeKey, VolumeName};
use isonomia_units::{ServerId, VolumeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Operations of the file system that are under way at once; more wait for the next look at the table.
pub const UNDER_WAY_MAX: usize = 256;

/// What a server keeps of a number of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The volume of all times.
    pub key: VolumeKey,
    /// The last instruction that was carried out.
    pub instruction: Version,
    /// What came of it.
    pub outcome: Outcome,
    /// The name that it has as long as it is there.
    pub name: VolumeName,
}

/// What a server's file system is asked to do. It answers when the change is on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Make the volume's directory. If this very volume of all times is there, all is well.
    Make {
        /// Which.
        key: VolumeKey,
        /// With what.
        attributes: Attributes,
    },
    /// Remove the directory if it is empty, and let nothing be made in it from that moment on. If this volume of all times
    /// is not there, all is well. ENOTEMPTY if it is not empty.
    Remove {
        /// Which.
        key: VolumeKey,
    },
    /// Let nothing begin in the volume any more, and wait for what has begun. EBUSY if it is in use.
    Freeze {
        /// Which.
        key: VolumeKey,
    },
    /// Get the volume from the server that has frozen it, all of it: with an errno what is here of it is of no use, and
    /// [dropped](Self::Drop) later. What another instruction than this one has left of it goes first. If that server does not
    /// answer it is asked again.
    Fetch {
        /// Which.
        key: VolumeKey,
        /// Who has it.
        from: ServerId,
        /// The version of the table in which this was wanted.
        instruction: Version,
    },
    /// Remove all of the volume that is here, which may be nothing: another server has it, or nobody.
    Drop {
        /// Which.
        key: VolumeKey,
    },
}

impl Work {
    /// The volume that it is about.
    pub fn key(&self) -> VolumeKey {
        match self {
            Self::Make { key, .. } | Self::Remove { key } | Self::Freeze { key } => *key,
            Self::Fetch { key, .. } | Self::Drop { key } => *key,
        }
    }
}

/// What is to be done about a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Todo {
    /// Nothing.
    Nothing,
    /// The file system has to work; [`Hosted::done`] when it has.
    Work(Work),
    /// To be stored; then the file system has to work.
    Begun(Host, Work),
    /// To be stored, then told: the slot's instruction was carried out.
    Carried(Host),
    /// To be stored, and told to nobody.
    Kept(Host),
    /// What came of the slot's instruction is told again.
    Tell(Outcome),
}

/// The volumes that this server has, and those that it had.
#[derive(Debug, Default)]
pub struct Hosted {
    hosts: BTreeMap<VolumeId, Host>,
    names: BTreeMap<VolumeName, VolumeId>,
    /// What the file system is doing, by number: one thing at a time for each.
    under_way: BTreeMap<VolumeId, (Slot, Work)>,
}

impl Hosted {
    /// What is in the store.
    pub fn new(hosts: impl IntoIterator<Item = Host>) -> Self {
        let mut hosted = Self::default();
        for host in hosts {
            hosted.put(host);
        }
        hosted
    }

    /// The volume of this number, if this server has it and may say so.
    pub fn get(&self, number: VolumeId) -> Option<&Host> {
        let is_leaving = matches!(self.under_way.get(&number), Some((_, work)) if !matches!(work, Work::Make { .. }));
        let is_here = |host: &&Host| host.outcome.is_there() && host.outcome != Outcome::Frozen;
        self.hosts.get(&number).filter(is_here).filter(|_| !is_leaving)
    }

    /// Whether the volume of this number is here, or is coming, and nobody is served in it for now.
    pub fn is_closed(&self, own: ServerId, slot: &Slot) -> bool {
        let number = slot.key.number;
        if let Some((_, Work::Freeze { .. } | Work::Fetch { .. })) = self.under_way.get(&number) {
            return true;
        }
        match self.hosts.get(&number).filter(|host| host.key == slot.key).map(|host| host.outcome) {
            Some(Outcome::Frozen) => !self.is_left_over(own, slot),
            Some(Outcome::Fetched) => !slot.is_at(slot.key, own),
            _ => false,
        }
    }

    /// Whether nobody may be served in what is here of the volume of `slot`: closed, or left over.
    pub fn is_shut(&self, own: ServerId, slot: &Slot) -> bool {
        let number = slot.key.number;
        let is_begun = matches!(
            self.under_way.get(&number),
            Some((_, Work::Freeze { .. } | Work::Fetch { .. } | Work::Drop { .. }))
        );
        is_begun
            || match self.hosts.get(&number).map(|host| (host.key, host.outcome)) {
                Some((_, Outcome::Frozen | Outcome::Fetching | Outcome::NotFetched(_))) => true,
                Some((key, Outcome::Fetched)) => !slot.is_at(key, own),
                _ => false,
            }
    }

    /// Who is to be asked for the volume of `slot` if nobody may be served in what is here of it: the server that has it by now,
    /// or this one again in a moment.
    pub fn refers_to(&self, own: ServerId, slot: &Slot) -> Option<ServerId> {
        // While it is on its way the other one has not got it either.
        let there = slot.volume.as_ref().filter(|volume| volume.phase == Phase::Active);
        self.is_shut(own, slot).then(|| there.map_or(own, |volume| volume.server))
    }

    /// Whether there is something to do about `slot` besides what it wants of `own`.
    pub fn is_unsettled(&self, own: ServerId, slot: &Slot) -> bool {
        self.is_left_over(own, slot) || self.is_settled_by(own, slot)
    }

    /// Whether what is here of a volume that moved is of no use any more.
    fn is_left_over(&self, own: ServerId, slot: &Slot) -> bool {
        let Some(host) = self.hosts.get(&slot.key.number) else { return false };
        let is_wanted = |volume: &super::Volume| {
            host.key == slot.key && (volume.server == own || volume.phase == Phase::Arriving { from: own })
        };
        matches!(host.outcome, Outcome::Frozen | Outcome::Fetching | Outcome::Fetched | Outcome::NotFetched(_))
            && slot.changed > host.instruction
            && !slot.volume.as_ref().is_some_and(is_wanted)
    }

    /// Whether the table says that a volume that was fetched is here.
    fn is_settled_by(&self, own: ServerId, slot: &Slot) -> bool {
        let is_fetched = |host: &Host| host.outcome == Outcome::Fetched && slot.changed > host.instruction;
        self.hosts.get(&slot.key.number).is_some_and(|host| is_fetched(host) && slot.is_at(host.key, own))
    }

    /// The volume of this name, if this server has it and may say so.
    pub fn named(&self, name: &VolumeName) -> Option<&Host> {
        self.names.get(name).and_then(|number| self.get(*number))
    }

    /// The volumes whose names are not answered for, because they are about to get another one's.
    pub fn prepared(&self) -> impl Iterator<Item = &Host> {
        self.hosts.values().filter(|host| host.outcome == Outcome::Prepared)
    }

    /// All volumes that this server has.
    pub fn there(&self) -> impl Iterator<Item = &Host> {
        self.hosts.values().filter(|host| host.outcome.is_there())
    }

    /// What `slot` asks of this server, which is `own`. [`Todo::Work`] counts as begun, [`Todo::Carried`] and
    /// [`Todo::Kept`] as done.
    pub fn look_at(&mut self, own: ServerId, slot: &Slot) -> Todo {
        let number = slot.key.number;
        if self.under_way.contains_key(&number) {
            return Todo::Nothing;
        }
        if self.is_left_over(own, slot)
            && let Some(host) = self.hosts.get(&number)
        {
            let work = Work::Drop { key: host.key };
            return self.begin(slot, work);
        }
        let Some(volume) = slot.intent().filter(|volume| volume.server == own) else {
            return match slot.volume.as_ref() {
                Some(volume) if self.is_settled_by(own, slot) => {
                    Todo::Kept(self.carried(slot, volume.name.clone(), Outcome::Made))
                }
                _ => Todo::Nothing,
            };
        };
        if let Some(host) = self.hosts.get(&number) {
            let (known, said) = ((host.key, host.instruction), (slot.key, slot.changed));
            let goes_on = known == said && host.outcome == Outcome::Fetching;
            if known >= said && !goes_on {
                return if known == said { Todo::Tell(host.outcome) } else { Todo::Nothing };
            }
        }
        let work = match &volume.phase {
            Phase::Creating => Work::Make { key: slot.key, attributes: volume.attributes },
            Phase::Removing { .. } => Work::Remove { key: slot.key },
            Phase::Prepared { .. } => return Todo::Carried(self.carried(slot, volume.name.clone(), Outcome::Prepared)),
            Phase::Renaming { .. } => return Todo::Carried(self.carried(slot, volume.name.clone(), Outcome::Renamed)),
            Phase::Leaving { .. } => Work::Freeze { key: slot.key },
            Phase::Arriving { from } => {
                let work = Work::Fetch { key: slot.key, from: *from, instruction: slot.changed };
                return match self.begin(slot, work) {
                    Todo::Work(work) => Todo::Begun(self.carried(slot, volume.name.clone(), Outcome::Fetching), work),
                    todo => todo,
                };
            }
            Phase::Active => return Todo::Nothing,
        };
        self.begin(slot, work)
    }

    fn begin(&mut self, slot: &Slot, work: Work) -> Todo {
        if self.under_way.len() == UNDER_WAY_MAX {
            return Todo::Nothing;
        }
        self.under_way.insert(slot.key.number, (slot.clone(), work.clone()));
        Todo::Work(work)
    }

    /// The file system has done what it was asked for `number`: `Err` with an errno. The record to store, and whether to tell then.
    pub fn done(&mut self, number: VolumeId, result: Result<(), i32>) -> Option<(Host, bool)> {
        let (slot, work) = self.under_way.remove(&number)?;
        if let Work::Drop { key } = work {
            // What could not be done is tried again at the next look.
            result.ok()?;
            let name = self.hosts.get(&number)?.name.clone();
            let host = Host { key, instruction: slot.changed, outcome: Outcome::Removed, name };
            self.put(host.clone());
            return Some((host, false));
        }
        let outcome = match (work, result) {
            (Work::Make { .. }, Ok(())) => Outcome::Made,
            (Work::Make { .. }, Err(errno)) => Outcome::NotMade(errno),
            (Work::Remove { .. }, Ok(())) => Outcome::Removed,
            (Work::Remove { .. }, Err(errno)) => Outcome::NotRemoved(errno),
            (Work::Freeze { .. }, Ok(())) => Outcome::Frozen,
            (Work::Freeze { .. }, Err(errno)) => Outcome::NotFrozen(errno),
            (Work::Drop { .. }, _) => return None,
            (Work::Fetch { .. }, Ok(())) => Outcome::Fetched,
            (Work::Fetch { .. }, Err(errno)) => Outcome::NotFetched(errno),
        };
        Some((self.carried(&slot, slot.volume.as_ref()?.name.clone(), outcome), true))
    }

    fn carried(&mut self, slot: &Slot, name: VolumeName, outcome: Outcome) -> Host {
        let host = Host { key: slot.key, instruction: slot.changed, outcome, name };
        self.put(host.clone());
        host
    }

    fn put(&mut self, host: Host) {
        let number = host.key.number;
        if let Some(before) = self.hosts.get(&number)
            && self.names.get(&before.name) == Some(&number)
        {
            self.names.remove(&before.name);
        }
        if host.outcome.is_there() && !matches!(host.outcome, Outcome::Prepared | Outcome::Frozen) {
            self.names.insert(host.name.clone(), number);
        }
        self.hosts.insert(number, host);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Volume;
    use super::*;

    const OLD: ServerId = ServerId(1);
    const NEW: ServerId = ServerId(2);
    const KEY: VolumeKey = VolumeKey { number: VolumeId(7), generation: 1 };

    fn slot(changed: u64, server: ServerId, phase: Phase) -> Slot {
        let name = VolumeName::try_from(&b"v"[..]).unwrap();
        let volume = Volume { name, server, attributes: Attributes::default(), phase };
        Slot { key: KEY, changed: Version(changed), volume: Some(volume) }
    }

    fn done(hosted: &mut Hosted, result: Result<(), i32>) -> (Outcome, bool) {
        let (host, is_told) = hosted.done(KEY.number, result).unwrap();
        (host.outcome, is_told)
    }

    #[test]
    fn the_old_server_keeps_what_it_froze_until_the_new_one_has_it() {
        let mut hosted = Hosted::default();
        assert!(matches!(hosted.look_at(OLD, &slot(1, OLD, Phase::Creating)), Todo::Work(Work::Make { .. })));
        assert_eq!(done(&mut hosted, Ok(())), (Outcome::Made, true));
        let leaving = slot(2, OLD, Phase::Leaving { to: NEW });
        assert_eq!(hosted.look_at(OLD, &leaving), Todo::Work(Work::Freeze { key: KEY }));
        assert!(hosted.is_closed(OLD, &leaving) && hosted.get(KEY.number).is_none());
        assert_eq!(done(&mut hosted, Ok(())), (Outcome::Frozen, true));
        let arriving = slot(3, NEW, Phase::Arriving { from: OLD });
        assert_eq!(hosted.look_at(OLD, &arriving), Todo::Nothing);
        assert!(hosted.is_closed(OLD, &arriving) && hosted.is_shut(OLD, &arriving));
        assert_eq!([&leaving, &arriving].map(|slot| hosted.refers_to(OLD, slot)), [Some(OLD); 2]);
        let there = slot(4, NEW, Phase::Active);
        assert!(hosted.is_unsettled(OLD, &there) && hosted.is_shut(OLD, &there) && !hosted.is_closed(OLD, &there));
        // What could not be removed is tried again.
        for result in [Err(5), Ok(())] {
            assert_eq!(hosted.refers_to(OLD, &there), Some(NEW), "to remove it takes as long as it takes");
            assert_eq!(hosted.look_at(OLD, &there), Todo::Work(Work::Drop { key: KEY }));
            assert_eq!(hosted.refers_to(OLD, &there), Some(NEW));
            let told = hosted.done(KEY.number, result).map(|(host, is_told)| (host.outcome, is_told));
            assert_eq!(told, result.ok().map(|()| (Outcome::Removed, false)));
        }
        assert!(hosted.refers_to(OLD, &there).is_none() && !hosted.is_unsettled(OLD, &there));
        assert_eq!(hosted.look_at(OLD, &there), Todo::Nothing);
    }

    #[test]
    fn the_old_server_thaws_what_goes_nowhere() {
        let mut hosted = Hosted::default();
        hosted.look_at(OLD, &slot(2, OLD, Phase::Leaving { to: NEW }));
        done(&mut hosted, Ok(()));
        let old = VolumeName::try_from(&b"v"[..]).unwrap();
        let back = slot(4, OLD, Phase::Renaming { old });
        assert!(matches!(hosted.look_at(OLD, &back), Todo::Carried(_)));
        assert!(!hosted.is_closed(OLD, &back) && !hosted.is_shut(OLD, &back) && hosted.get(KEY.number).is_some());
    }

    #[test]
    fn the_new_server_serves_when_the_table_says_so_and_not_before() {
        let mut hosted = Hosted::default();
        let arriving = slot(3, NEW, Phase::Arriving { from: OLD });
        let work = Work::Fetch { key: KEY, from: OLD, instruction: Version(3) };
        let Todo::Begun(host, begun) = hosted.look_at(NEW, &arriving) else { panic!("it does not begin") };
        assert_eq!((host.outcome, begun), (Outcome::Fetching, work.clone()));
        // After a stop it goes on.
        let mut hosted = Hosted::new([host.clone()]);
        assert!(hosted.is_shut(NEW, &arriving));
        assert_eq!(hosted.look_at(NEW, &arriving), Todo::Begun(host, work));
        assert_eq!(done(&mut hosted, Ok(())), (Outcome::Fetched, true));
        assert!(hosted.is_closed(NEW, &arriving) && hosted.is_shut(NEW, &arriving));
        assert_eq!(hosted.look_at(NEW, &arriving), Todo::Tell(Outcome::Fetched));
        let there = slot(4, NEW, Phase::Active);
        assert!(!hosted.is_closed(NEW, &there) && !hosted.is_shut(NEW, &there));
        assert!(matches!(hosted.look_at(NEW, &there), Todo::Kept(host) if host.outcome == Outcome::Made));
        assert_eq!(hosted.look_at(NEW, &there), Todo::Nothing);
    }

    #[test]
    fn the_new_server_drops_what_it_is_not_to_have() {
        for fetched in [Some(Ok(())), Some(Err(28)), None] {
            let mut hosted = Hosted::default();
            let Todo::Begun(host, _) = hosted.look_at(NEW, &slot(3, NEW, Phase::Arriving { from: OLD })) else {
                panic!("it does not begin")
            };
            match fetched {
                Some(result) => _ = done(&mut hosted, result),
                None => hosted = Hosted::new([host]),
            }
            let back = slot(5, OLD, Phase::Active);
            assert!(hosted.is_shut(NEW, &back), "{fetched:?}");
            assert_eq!(hosted.look_at(NEW, &back), Todo::Work(Work::Drop { key: KEY }), "{fetched:?}");
            assert!(hosted.done(KEY.number, Ok(())).is_some_and(|(host, _)| host.outcome == Outcome::Removed));
            assert_eq!(hosted.look_at(NEW, &back), Todo::Nothing, "{fetched:?}");
        }
    }

    #[test]
    fn what_was_here_before_a_move_back_that_failed_goes_too() {
        let mut hosted = Hosted::default();
        hosted.look_at(OLD, &slot(2, OLD, Phase::Leaving { to: NEW }));
        done(&mut hosted, Ok(()));
        // It comes back before this server has heard that the other one had it.
        let Todo::Begun(..) = hosted.look_at(OLD, &slot(5, OLD, Phase::Arriving { from: NEW })) else {
            panic!("it does not begin")
        };
        assert_eq!(done(&mut hosted, Err(28)), (Outcome::NotFetched(28), true));
        let gone = Slot { key: KEY, changed: Version(7), volume: None };
        for later in [slot(6, NEW, Phase::Active), gone.clone()] {
            assert!(hosted.is_unsettled(OLD, &later) && hosted.is_shut(OLD, &later));
        }
        assert_eq!(hosted.look_at(OLD, &gone), Todo::Work(Work::Drop { key: KEY }));
        hosted.done(KEY.number, Ok(())).unwrap();
        assert!(!hosted.is_unsettled(OLD, &gone));
        // And if it is tried once more instead, that is a new beginning.
        let mut hosted = Hosted::default();
        hosted.look_at(OLD, &slot(5, OLD, Phase::Arriving { from: NEW }));
        done(&mut hosted, Err(28));
        let again = Work::Fetch { key: KEY, from: NEW, instruction: Version(9) };
        let Todo::Begun(_, work) = hosted.look_at(OLD, &slot(9, OLD, Phase::Arriving { from: NEW })) else {
            panic!("it does not begin")
        };
        assert_eq!(work, again);
    }
}
