//! A node's part in moving volumes: [`crate::volumes::root`] decides, [`crate::volumes::hosted`] does it.

use super::{Node, Role};
use crate::request::Refusal;
use crate::volumes::{Phase, Slot, VolumeKey, VolumeName};
use isonomia_units::ServerId;

impl Node {
    /// The process of `server` that was heard last.
    pub fn known_instance(&self, server: ServerId) -> Option<crate::lineage::Instance> {
        self.lineage.known(server)
    }

    /// Whether `slot` is an instruction for this server, or says what becomes of a volume that moved.
    pub(super) fn concerns(&self, slot: &Slot) -> bool {
        let own = self.process.server;
        slot.intent().is_some_and(|volume| volume.server == own) || self.hosted.is_unsettled(own, slot)
    }

    /// Whether this server may serve what is in the volume `key`; else who is to be asked, or that it is to be asked again
    /// in a moment ([`Refusal::Busy`]) because the volume is on its way, or going. Besides [`Self::may_serve`].
    pub fn serves(&self, key: VolumeKey) -> Result<(), Refusal> {
        let own = self.process.server;
        let slot = self.table().slot(key.number).filter(|slot| slot.key == key);
        if slot.is_some_and(|slot| self.hosted.is_closed(own, slot)) {
            return Err(Refusal::Busy);
        }
        if self.hosted.get(key.number).is_some_and(|host| host.key == key && !self.is_elsewhere(key)) {
            return Ok(());
        }
        let is_doubtful = |slot: &Slot| slot.intent().is_some_and(|volume| volume.server == own);
        match (&self.role, slot.and_then(|slot| Some((slot, slot.visible()?)))) {
            (Role::Root(_), None) => Err(Refusal::NotFound),
            (Role::Root(_), Some((slot, _))) if slot.intent().is_some() => Err(Refusal::Busy),
            (_, Some((slot, _))) if is_doubtful(slot) => Err(Refusal::Busy),
            (_, Some((_, volume))) if volume.server != own => Err(Refusal::Refer(volume.server)),
            _ => Err(Refusal::Refer(self.view.root)),
        }
    }

    /// Whether the table says that another server has `key`, or is about to.
    fn is_elsewhere(&self, key: VolumeKey) -> bool {
        let slot = self.table().slot(key.number).filter(|slot| slot.key == key);
        slot.and_then(|slot| slot.volume.as_ref()).is_some_and(|volume| volume.server != self.process.server)
    }

    /// The names of which nothing is to be said for a moment, not even who knows. Where two servers' volumes change names,
    /// each that is prepared answers for neither name until it has its new one; so whoever saw one half of the change does not
    /// see the state before it at the other server. On the root server also the names of which it waits to hear what became of
    /// them: who is sent to a volume server with those may be sent back at once.
    pub fn names_in_doubt(&self) -> impl Iterator<Item = &VolumeName> {
        let table = self.table();
        let name_of = |number| Some(&table.slot(number)?.volume.as_ref()?.name);
        let prepared = self.hosted.prepared().map(move |host| {
            let slot = table.slot(host.key.number).filter(|slot| slot.key == host.key);
            let with = slot.and_then(|slot| match slot.volume.as_ref()?.phase {
                Phase::Prepared { with, .. } => name_of(with),
                _ => None,
            });
            std::iter::once(&host.name).chain(with)
        });
        let is_root = matches!(self.role, Role::Root(_));
        let intents = table.slots().filter(move |_| is_root).filter_map(Slot::intent);
        let awaited = intents.filter(|volume| {
            matches!(volume.phase, Phase::Removing { .. } | Phase::Prepared { .. } | Phase::Renaming { .. })
        });
        prepared.flatten().chain(awaited.flat_map(|volume| std::iter::once(&volume.name).chain(volume.old_name())))
    }

    /// Who is to be asked for the volume of `slot` if nobody is to be served in what is here of it: this server again in a
    /// moment, or the one that has it by now.
    pub fn refers_to(&self, slot: &Slot) -> Option<ServerId> {
        self.hosted.refers_to(self.process.server, slot)
    }
}
