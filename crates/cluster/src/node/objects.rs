//! A node's part in what is done with objects: [`crate::objects`] says what and why.

use super::{Effect, Node, Role};
use crate::objects::{ASKED_MAX, Again, Intent, ObjectsId, Order, Progress, SERVED_AT_ONCE_MAX, What};
use crate::peer::Message;
use crate::request::{Answer, Refusal, RequestId};
use isonomia_units::{Nanos, ServerId, VolumeId};
use std::collections::BTreeMap;

impl Node {
    /// The store has recorded an intent.
    pub(super) fn intend(
        &mut self,
        now: Nanos,
        intent: Intent,
        request: Option<(RequestId, Nanos)>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some((id, deadline)) = request
            && self.admit(now, id, deadline).is_err()
        {
            // It is recorded, and will be done: to be told to come again would have it done twice.
            effects.push(Effect::Answer { id, result: Err(Refusal::TimedOut) });
        }
        let waits = request.map(|(id, _)| id).filter(|id| self.deadlines.contains_key(id));
        let is_for_nobody = intent.parts.is_empty();
        let (objects, what) = (intent.objects, intent.what);
        match self.errands.begin(intent, waits) {
            Some(orders) => {
                for (server, order) in orders {
                    self.order(server, order, effects);
                }
                if is_for_nobody {
                    self.emit(Effect::CloseIntent { objects, what, highest: 0 }, effects);
                }
            }
            None => {
                if let Some(id) = waits {
                    self.emit(Effect::Answer { id, result: Err(Refusal::TimedOut) }, effects);
                }
            }
        }
    }

    /// The store has closed an intent.
    pub(super) fn closed(&mut self, objects: ObjectsId, what: What, effects: &mut Vec<Effect>) {
        for id in self.errands.close(objects, what) {
            self.emit(Effect::Answer { id, result: Ok(Answer::Done) }, effects);
        }
    }

    /// Says again what has no answer.
    pub(super) fn order_again(&mut self, effects: &mut Vec<Effect>) {
        let Again { orders, done } = self.errands.again();
        for (server, order) in orders {
            self.order(server, order, effects);
        }
        for (objects, what, highest) in done {
            self.emit(Effect::CloseIntent { objects, what, highest }, effects);
        }
    }

    fn order(&mut self, server: ServerId, order: Order, effects: &mut Vec<Effect>) {
        if server == self.process.server {
            self.ordered(server, order, effects);
        } else {
            self.send(server, Message::Order(order), effects);
        }
    }

    /// A volume server, or this one, has something to do for this one.
    pub(super) fn ordered(&mut self, from: ServerId, order: Order, effects: &mut Vec<Effect>) {
        let key = (from, order.objects, order.what);
        if self.serving.len() < SERVED_AT_ONCE_MAX && self.serving.insert(key) {
            self.emit(Effect::Serve { from, order }, effects);
        }
    }

    /// The store has done what `from` wanted, or could not.
    pub(super) fn served(
        &mut self,
        from: ServerId,
        (objects, what): (ObjectsId, What),
        result: Result<u64, i32>,
        effects: &mut Vec<Effect>,
    ) {
        self.serving.remove(&(from, objects, what));
        if from == self.process.server {
            self.did(from, (objects, what), result, effects);
        } else {
            self.send(from, Message::Did { objects, what, result }, effects);
        }
    }

    /// A data server says what came of an order.
    pub(super) fn did(
        &mut self,
        from: ServerId,
        (objects, what): (ObjectsId, What),
        result: Result<u64, i32>,
        effects: &mut Vec<Effect>,
    ) {
        match self.errands.answered(from, objects, what, result) {
            Progress::Waits => {}
            Progress::Done(highest) => self.emit(Effect::CloseIntent { objects, what, highest }, effects),
            Progress::Failed(waiting) => {
                for id in waiting {
                    let result = Err(Refusal::FileSystem(result.err().unwrap_or(0)));
                    self.emit(Effect::Answer { id, result }, effects);
                }
            }
        }
    }

    /// Asks whoever knows whether objects are wanted.
    pub(super) fn ask_wanted(&mut self, objects: Vec<ObjectsId>, effects: &mut Vec<Effect>) {
        let mut by_server: BTreeMap<ServerId, Vec<ObjectsId>> = BTreeMap::new();
        for objects in objects {
            by_server.entry(self.knows(objects.volume())).or_default().push(objects);
        }
        for (server, objects) in by_server {
            for some in objects.chunks(ASKED_MAX) {
                if server == self.process.server {
                    self.asked_wanted(server, some.to_vec(), effects);
                } else {
                    self.send(server, Message::AskWanted { objects: some.to_vec() }, effects);
                }
            }
        }
    }

    /// The server that knows what is in `volume`, or that there is none.
    fn knows(&self, volume: VolumeId) -> ServerId {
        let hosted = self.has(volume).then_some(self.process.server);
        let known = || self.table().slot(volume).and_then(|slot| Some(slot.volume.as_ref()?.server));
        hosted.or_else(known).unwrap_or(self.view.root)
    }

    /// Whether this server has a volume, and not only what it has got of one that moves, or what it is about to remove.
    fn has(&self, volume: VolumeId) -> bool {
        let is_shut = |slot| self.hosted.is_shut(self.process.server, slot);
        self.hosted.get(volume).is_some() && !self.table().slot(volume).is_some_and(is_shut)
    }

    /// `asker` asks whether objects are wanted.
    pub(super) fn asked_wanted(&mut self, asker: ServerId, objects: Vec<ObjectsId>, effects: &mut Vec<Effect>) {
        let is_root = matches!(self.role, Role::Root(_));
        // One that the table has never heard of may be from after a backup that was put back.
        let is_free = |volume| self.table().slot(volume).is_some_and(|slot| slot.volume.is_none());
        let (own, others): (Vec<_>, Vec<_>) = objects.into_iter().partition(|objects| {
            let volume = objects.volume();
            self.has(volume) || is_root && volume == VolumeId::ROOT
        });
        let nobodys: Vec<_> = others.into_iter().filter(|objects| is_root && is_free(objects.volume())).collect();
        if !own.is_empty() {
            self.emit(Effect::LookWanted { asker, objects: own }, effects);
        }
        self.not_wanted(asker, nobodys, effects);
    }

    /// Tells `asker` that nobody wants these.
    fn not_wanted(&mut self, asker: ServerId, objects: Vec<ObjectsId>, effects: &mut Vec<Effect>) {
        if objects.is_empty() {
            return;
        }
        if asker == self.process.server {
            self.emit(Effect::RemoveUnwanted { objects }, effects);
        } else {
            self.send(asker, Message::NotWanted { objects }, effects);
        }
    }

    /// The store has looked: it does not want these. That holds if this process still owns its directory, and has the
    /// volume, which may have moved away since it was asked.
    pub(super) fn looked_wanted(
        &mut self,
        now: Nanos,
        asker: ServerId,
        mut objects: Vec<ObjectsId>,
        effects: &mut Vec<Effect>,
    ) {
        if self.may_serve(now).is_ok() {
            let is_root = matches!(self.role, Role::Root(_));
            objects.retain(|objects| {
                let volume = objects.volume();
                self.has(volume) || is_root && volume == VolumeId::ROOT
            });
            objects.truncate(ASKED_MAX);
            self.not_wanted(asker, objects, effects);
        }
    }
}
