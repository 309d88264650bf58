//! A look at all objects that this server has of spread files, when an operator asks for one.
//!
//! The pass of [`super::objects`] asks about some objects each second whether their files are there, and what belongs to none is
//! removed. For an operator the thread goes through all of them, some every [`STEP`], and looks as well whether each is where its
//! record says. It goes twice: what was asked the first time has been removed by the second, which removes what an answer that
//! was lost left. Servers that do not answer are for the operator's program to name.

use crate::clock;
use isonomia_cluster::node::Input;
use isonomia_cluster::objects::ObjectsId;
use isonomia_proto::control::{ControlReply, ObjectsChecked};
use isonomia_store::checksum::ObjectId;
use isonomia_store::{ObjectPlace, Store, StoreError};
use isonomia_units::Nanos;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Objects of a step.
const AT_ONCE_MAX: usize = 64;
/// Between two steps, so that others get at the storage.
const STEP: Nanos = Nanos::from_millis(10);
/// After all were asked about, for the answers.
const ANSWERED_WITHIN: Nanos = Nanos::from_secs(1);
/// Objects that are named; of more than these only the number is told.
const NAMED_MAX: usize = 64;

/// What operators asked for, and what came of it.
#[derive(Debug, Default)]
pub struct Inspection(Mutex<Look>);

#[derive(Debug, Default)]
struct Look {
    /// Of the wish.
    id: u64,
    stage: Stage,
    found: ObjectsChecked,
    /// Why it has ended early, if it has.
    failure: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nobody asks.
    #[default]
    Idle,
    Wanted,
    First,
    Second,
    /// The last answers are waited for.
    Last,
}

/// The part of the thread.
#[derive(Debug, Default)]
pub struct Inspector {
    after: Option<ObjectPlace>,
    at: Nanos,
}

impl Inspection {
    /// Begins for the wish `id`, or tells how far it is.
    pub fn ask(&self, id: u64) -> ControlReply {
        let mut look = self.look();
        if look.id != id {
            if look.stage != Stage::Idle {
                return ControlReply::Error("somebody else has the objects looked at; ask again later".to_owned());
            }
            *look = Look { id, stage: Stage::Wanted, ..Look::default() };
        }
        if let Some(failure) = &look.failure {
            return ControlReply::Error(failure.clone());
        }
        ControlReply::ObjectsChecked(look.found.clone())
    }

    /// The look that is under way ends, and who asked is told why.
    fn fail(&self, error: &StoreError) {
        let mut look = self.look();
        look.stage = Stage::Idle;
        look.failure = Some(format!("the objects cannot be looked at: {error}"));
    }

    /// Counts objects of no file that were removed.
    pub(super) fn removed(&self, count: usize) {
        self.look().found.removed += count as u64;
    }

    fn look(&self) -> MutexGuard<'_, Look> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inspector {
    /// Until when there is nothing to be done.
    pub(super) fn rests_until(&self) -> Nanos {
        self.at
    }

    /// Does what is next, if anybody asked; what the node is to hear of it.
    pub(super) fn step(&mut self, inspection: &Inspection, store: &Store) -> Result<Option<Input>, StoreError> {
        let now = clock::now();
        let stage = inspection.look().stage;
        if stage == Stage::Idle || now < self.at {
            return Ok(None);
        }
        self.at = now + STEP;
        match stage {
            Stage::Idle => return Ok(None),
            Stage::Wanted => {
                self.after = None;
                inspection.look().stage = Stage::First;
            }
            Stage::Last => {
                let mut look = inspection.look();
                (look.stage, look.found.is_done) = (Stage::Idle, true);
                return Ok(None);
            }
            Stage::First | Stage::Second => {}
        }
        let found =
            store.objects().detached_objects(self.after, AT_ONCE_MAX).inspect_err(|error| inspection.fail(error))?;
        self.after = (found.len() == AT_ONCE_MAX).then(|| found.last().copied()).flatten();
        if stage != Stage::Second {
            // Not while the state is locked: it may take a while.
            let lost: Vec<String> = found.iter().filter_map(|place| lost(store, *place)).collect();
            let mut look = inspection.look();
            look.found.objects += found.len() as u64;
            look.found.lost += lost.len() as u64;
            let room = NAMED_MAX.saturating_sub(look.found.named.len());
            look.found.named.extend(lost.into_iter().take(room));
        }
        if self.after.is_none() {
            self.at = now + ANSWERED_WITHIN;
            inspection.look().stage = if stage == Stage::Second { Stage::Last } else { Stage::Second };
        }
        let mut objects: Vec<ObjectsId> = found.iter().map(|place| id_of(place.object)).collect();
        objects.dedup();
        Ok((!objects.is_empty()).then_some(Input::AskWanted { objects }))
    }
}

/// Whose object it is.
pub(super) fn id_of(object: ObjectId) -> ObjectsId {
    ObjectsId { number: object.number, generation: object.generation }
}

/// Why an object cannot be used, if it cannot.
fn lost(store: &Store, place: ObjectPlace) -> Option<String> {
    let object = place.object;
    let mut first = [0];
    match store.objects().stat_object(place).and_then(|_| store.objects().read_object(place, 0, &mut first[..])) {
        // One that is being removed.
        Ok(_) | Err(StoreError::Stale) => None,
        Err(error) => Some(format!(
            "object {:016x}.{:08x}.{} on target {}: {error}",
            object.number, object.generation, object.index, place.target
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_fails_ends_and_says_why() {
        let inspection = Inspection::default();
        assert!(matches!(inspection.ask(1), ControlReply::ObjectsChecked(_)));
        assert!(matches!(inspection.ask(2), ControlReply::Error(_)), "somebody else has");
        inspection.fail(&StoreError::NoSpace);
        let ControlReply::Error(text) = inspection.ask(1) else { panic!("it failed") };
        assert!(text.contains(&StoreError::NoSpace.to_string()), "{text}");
        assert!(matches!(inspection.ask(2), ControlReply::ObjectsChecked(_)));
    }
}
