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

/// Which question of which process: each is asked once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ask {
    /// The token of the process.
    pub token: u64,
    /// The question, from 1 on.
    pub number: u64,
}

/// Part of the news: the slots that changed after `since` and up to `upto`, in the order of their changes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Page {
    /// The question that this answers, if somebody asked.
    pub ask: Option<Ask>,
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
#[derive(Debug)]
pub struct Copy {
    table: Table,
    /// What the table will be when the last page has come.
    coming: Option<Table>,
    /// The last question.
    asked: Ask,
    /// What was known when it was asked.
    asked_since: Version,
}

impl Copy {
    /// The copy that is in the store, for a process that starts.
    pub fn new(table: Table, token: u64) -> Self {
        Self { table, coming: None, asked: Ask { token, number: 0 }, asked_since: Version::NONE }
    }

    /// What is known.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The next question, and the version after which everything is news.
    pub fn ask(&mut self) -> (Ask, Version) {
        self.asked.number += 1;
        self.asked_since = self.known();
        (self.asked, self.asked_since)
    }

    /// Everything up to here is known, or kept until the last page has come.
    pub fn known(&self) -> Version {
        self.coming.as_ref().unwrap_or(&self.table).version()
    }

    /// Takes in `page`.
    pub fn take(&mut self, page: Page) -> Taken {
        let known = self.known();
        if page.since > known {
            return Taken { ask_again: true, ..Taken::default() };
        }
        if page.ask == Some(self.asked) && page.since < self.asked_since {
            // Whoever has less than what the question said to be known has another table.
            self.coming = Some(Table::default());
            return self.take_into(page);
        }
        if page.upto <= known {
            return Taken::default();
        }
        self.take_into(page)
    }

    fn take_into(&mut self, page: Page) -> Taken {
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
pub fn page(table: &Table, ask: Option<Ask>, since: Version, slots_max: usize) -> Page {
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
            if !copy.take(page(table, Some(ask), since, slots_max)).ask_again {
                return pages;
            }
        }
        panic!("no end");
    }

    #[test]
    fn several_pages_are_seen_at_once() {
        let table = table(&[(1, 1, "a"), (2, 2, "b"), (3, 3, "c")]);
        let mut copy = Copy::new(Table::default(), 1);
        let (ask, since) = copy.ask();
        assert!(copy.take(page(&table, Some(ask), since, 2)).ask_again);
        assert_eq!(*copy.table(), Table::default());
        assert_eq!(pull(&mut copy, &table, 2), 1);
        assert_eq!(*copy.table(), table);
        assert_eq!(pull(&mut copy, &table, 2), 1);
    }

    #[test]
    fn late_pages_change_nothing_and_a_gap_is_asked_for() {
        let (old, new) = (table(&[(1, 1, "a")]), table(&[(1, 1, "a"), (2, 2, "b"), (3, 7, "c")]));
        let mut copy = Copy::new(Table::default(), 1);
        let (ask, since) = copy.ask();
        let late = page(&old, Some(ask), since, 9);
        pull(&mut copy, &new, 9);
        assert_eq!(copy.take(late), Taken::default());
        assert_eq!(*copy.table(), new);
        let newer = table(&[(1, 1, "a"), (2, 2, "b"), (3, 7, "c"), (4, 8, "d"), (5, 9, "e")]);
        assert!(copy.take(page(&newer, None, Version(8), 9)).ask_again);
        assert_eq!(copy.take(page(&newer, None, Version(7), 9)).stored.len(), 2);
    }

    #[test]
    fn an_answer_that_a_push_has_overtaken_changes_nothing() {
        let (old, new) = (table(&[(1, 1, "a")]), table(&[(1, 1, "a"), (2, 2, "b"), (3, 7, "c")]));
        let mut copy = Copy::new(Table::default(), 1);
        pull(&mut copy, &old, 9);
        let (ask, since) = copy.ask();
        let answer = page(&old, Some(ask), since, 9);
        assert_eq!(copy.take(page(&new, None, Version(1), 9)).stored.len(), 2);
        assert_eq!(copy.take(answer), Taken::default());
        assert_eq!(*copy.table(), new);
    }

    #[test]
    fn a_table_that_was_restored_is_taken_over_whole() {
        let lost = table(&[(1, 1, "a"), (2, 2, "b"), (3, 9, "c")]);
        let restored = table(&[(1, 1, "a"), (2, 4, "other")]);
        let mut copy = Copy::new(lost, 2);
        // A page that nobody asked for, or that answers another process's question, cannot be told from a late one.
        let before = Ask { token: 1, number: 1 };
        assert_eq!(copy.take(page(&restored, Some(before), Version::NONE, 9)), Taken::default());
        assert_eq!(copy.take(page(&restored, None, Version::NONE, 9)), Taken::default());
        let (ask, since) = copy.ask();
        let taken = copy.take(page(&restored, Some(ask), since, 1));
        assert!(taken.ask_again);
        pull(&mut copy, &restored, 1);
        assert_eq!(*copy.table(), restored);
    }
}
