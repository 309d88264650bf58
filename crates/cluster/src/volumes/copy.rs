//! The copy of the table of volumes that every server but the root server keeps.
//!
//! It is asked for every [`PULL_EVERY`], and the root server sends what changed at once to whom it concerns. A copy is what
//! the table was at some version, and goes forward only: pages that come late, twice, or in another order change nothing,
//! and after one with a gap before it the root server is asked again. What comes in several pages is seen when the last one is there.
//!
//! The one case in which a copy goes back is a root server whose directory was restored from a backup: it answers a
//! question that says "I know version 9" with the news since version 0 of a table that has 5. The copy is then made anew. Only
//! an answer to the last question counts for that: a page that was under way for long looks the same.

use super::{Slot, Table, Version};
use isonomia_units::Nanos;

/// How often a server asks what is new.
pub const PULL_EVERY: Nanos = Nanos::from_secs(1);

/// Part of the news: the slots that changed after `since` and up to `upto`, in the order of their changes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Page {
    /// The number of the question that this answers; 0 if nobody asked.
    pub ask: u64,
    /// Whoever knows everything up to here can use the page.
    pub since: Version,
    /// Whoever took it in knows everything up to here.
    pub upto: Version,
    /// There is nothing after it: the table had this version.
    pub complete: bool,
    /// The slots.
    pub slots: Vec<Slot>,
}

/// What the caller has to do after a page was taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// What the copy has now and had not before: to be stored.
    pub stored: Vec<Slot>,
    /// Slots of the old copy that the new one does not have: to be taken out of the store.
    pub dropped: Vec<isonomia_units::VolumeId>,
    /// There is more, or something is missing: ask at once.
    pub ask_again: bool,
}

/// What is known of the table, and what is being heard.
#[derive(Debug, Default)]
pub struct Copy {
    table: Table,
    /// What the table will be when the last page has come.
    coming: Option<Table>,
    /// The number of the last question.
    asked: u64,
}

impl Copy {
    /// The copy that is in the store.
    pub fn new(table: Table) -> Self {
        Self { table, ..Self::default() }
    }

    /// What is known.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The next question: its number, and the version after which everything is news.
    pub fn ask(&mut self) -> (u64, Version) {
        self.asked += 1;
        (self.asked, self.known())
    }

    /// Everything up to here is known, or held until the last page has come.
    pub fn known(&self) -> Version {
        self.coming.as_ref().unwrap_or(&self.table).version()
    }

    /// Takes in `page`.
    pub fn take(&mut self, page: Page) -> Taken {
        let known = self.known();
        if page.since > known {
            return Taken { ask_again: true, ..Taken::default() };
        }
        if page.ask == self.asked && page.ask > 0 && page.since < known && page.upto < known {
            // An answer to what is known up to now that knows less: another table. An incomplete page of the same table
            // would begin at `known`.
            self.coming = Some(Table::default());
            return self.take_into(page, Version::NONE);
        }
        if page.upto <= known {
            return Taken::default();
        }
        self.take_into(page, known)
    }

    fn take_into(&mut self, page: Page, known: Version) -> Taken {
        if page.since > known {
            return Taken { ask_again: true, ..Taken::default() };
        }
        let mut next = self.coming.take().unwrap_or_else(|| self.table.clone());
        for slot in page.slots {
            next.put(slot);
        }
        if !page.complete {
            self.coming = Some(next);
            return Taken { ask_again: true, ..Taken::default() };
        }
        let stored = next.slots().filter(|slot| self.table.slot(slot.key.number) != Some(slot)).cloned().collect();
        let dropped = self.table.slots().map(|slot| slot.key.number).filter(|number| next.slot(*number).is_none());
        let taken = Taken { stored, dropped: dropped.collect(), ask_again: false };
        self.table = next;
        taken
    }
}

/// The page of `table` for whoever knows it up to `since`, of `slots_max` slots at most. Whoever knows more than there is has
/// to begin anew.
pub fn page(table: &Table, ask: u64, since: Version, slots_max: usize) -> Page {
    let since = if since > table.version() { Version::NONE } else { since };
    let slots: Vec<Slot> = table.since(since).take(slots_max).cloned().collect();
    let upto = slots.last().map_or(since, |slot| slot.changed);
    Page { ask, since, upto, complete: upto == table.version(), slots }
}

#[cfg(test)]
mod tests {
    use super::super::{Attributes, Phase, Volume, VolumeKey};
    use super::*;
    use isonomia_units::{ServerId, VolumeId};

    fn table(slots: &[(u16, u64, &str)]) -> Table {
        let mut table = Table::default();
        for (number, changed, name) in slots {
            let volume = Volume {
                name: name.as_bytes().try_into().unwrap(),
                server: ServerId(1),
                attributes: Attributes::default(),
                phase: Phase::Active,
            };
            let key = VolumeKey { number: VolumeId(*number), generation: 1 };
            table.put(Slot { key, changed: Version(*changed), volume: Some(volume) });
        }
        table
    }

    /// Asks until nothing is left to ask, with pages of `slots_max`.
    fn pull(copy: &mut Copy, table: &Table, slots_max: usize) -> usize {
        for pages in 1..100 {
            let (ask, since) = copy.ask();
            if !copy.take(page(table, ask, since, slots_max)).ask_again {
                return pages;
            }
        }
        panic!("no end");
    }

    #[test]
    fn several_pages_are_seen_at_once() {
        let table = table(&[(1, 1, "a"), (2, 2, "b"), (3, 3, "c")]);
        let mut copy = Copy::default();
        let (ask, since) = copy.ask();
        assert!(copy.take(page(&table, ask, since, 2)).ask_again);
        assert_eq!(*copy.table(), Table::default());
        assert_eq!(pull(&mut copy, &table, 2), 1);
        assert_eq!(*copy.table(), table);
        assert_eq!(pull(&mut copy, &table, 2), 1);
    }

    #[test]
    fn late_pages_change_nothing_and_a_gap_is_asked_for() {
        let (old, new) = (table(&[(1, 1, "a")]), table(&[(1, 1, "a"), (2, 2, "b"), (3, 7, "c")]));
        let mut copy = Copy::default();
        let (ask, since) = copy.ask();
        let late = page(&old, ask, since, 9);
        pull(&mut copy, &new, 9);
        assert_eq!(copy.take(late), Taken::default());
        assert_eq!(*copy.table(), new);
        let newer = table(&[(1, 1, "a"), (2, 2, "b"), (3, 7, "c"), (4, 8, "d"), (5, 9, "e")]);
        assert!(copy.take(page(&newer, 0, Version(8), 9)).ask_again);
        assert_eq!(copy.take(page(&newer, 0, Version(7), 9)).stored.len(), 2);
    }

    #[test]
    fn a_table_that_was_restored_is_taken_over_whole() {
        let lost = table(&[(1, 1, "a"), (2, 2, "b"), (3, 9, "c")]);
        let restored = table(&[(1, 1, "a"), (2, 4, "other")]);
        let mut copy = Copy::new(lost);
        // A push of the restored one cannot be told from a late page.
        assert_eq!(copy.take(page(&restored, 0, Version::NONE, 9)), Taken::default());
        let (ask, since) = copy.ask();
        let taken = copy.take(page(&restored, ask, since, 1));
        assert!(taken.ask_again);
        pull(&mut copy, &restored, 1);
        assert_eq!(*copy.table(), restored);
    }
}
