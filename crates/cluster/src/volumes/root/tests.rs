//! The root server's decisions one by one; what becomes of them under faults is simulated.

use super::*;
use crate::volumes::Attributes;

const SERVER: ServerId = ServerId(2);

/// A root server whose volume servers answer at once, as `outcome` says.
struct Told {
    root: Root,
    next: u64,
}

impl Told {
    fn new() -> Self {
        Self { root: Root::new(Table::default(), VolumeId::ROOT), next: 0 }
    }

    fn ask(&mut self, request: Request) -> Decisions {
        self.next += 1;
        let mut decisions = Decisions::default();
        self.root.request(RequestId(self.next), request, |server| server == SERVER, &mut decisions);
        decisions
    }

    /// What volume servers say to the last intent for `number`.
    fn say(&mut self, number: u16, outcome: Outcome) -> Decisions {
        let slot = self.root.table.slot(VolumeId(number)).expect("it was used");
        let (key, changed) = (slot.key, slot.changed);
        let mut decisions = Decisions::default();
        self.root.outcome(SERVER, (key, changed), outcome, &mut decisions);
        decisions
    }

    fn make(&mut self, text: &str) -> u16 {
        assert!(self.ask(make(text)).answers.is_empty());
        let number = self.root.last.0;
        assert_eq!(self.say(number, Outcome::Made).answers.len(), 1);
        number
    }

    fn names(&self) -> Vec<(String, u16)> {
        self.root.table.visible().map(|(name, slot)| (name.to_string(), slot.key.number.0)).collect()
    }
}

fn name(text: &str) -> VolumeName {
    text.as_bytes().try_into().expect("a name")
}

fn make(text: &str) -> Request {
    Request::Make { name: name(text), server: SERVER, attributes: Attributes::default() }
}

fn remove(text: &str) -> Request {
    Request::Remove { name: name(text), found: None }
}

fn rename(from: &str, to: &str, how: RenameHow) -> Request {
    Request::Rename { from: name(from), found: None, to: name(to), how }
}

fn look_up(text: &str) -> Request {
    Request::LookUp { name: name(text), referred: false }
}

fn refused(decisions: &Decisions, refusal: Refusal) {
    assert!(matches!(decisions.answers[..], [(_, Err(told))] if told == refusal), "{decisions:?}");
}

#[test]
fn numbers_go_round_and_come_to_an_end() {
    let mut told = Told::new();
    let first = told.make("first");
    assert_eq!(first, 1);
    assert!(told.ask(remove("first")).answers.is_empty());
    assert_eq!(told.say(1, Outcome::Removed).answers.len(), 1);
    for number in 2..=u16::MAX {
        assert_eq!(told.make(&format!("v{number}")), number);
    }
    // Only now is the first one used again.
    assert_eq!(told.make("again"), 1);
    assert_eq!(told.root.table.slot(VolumeId(1)).map(|slot| slot.key.generation), Some(2));
    refused(&told.ask(make("more")), Refusal::NoNumbers);
}

#[test]
fn who_asks_for_what_is_in_doubt_waits_and_is_answered_in_order() {
    let mut told = Told::new();
    assert!(told.ask(make("a")).answers.is_empty());
    refused(&told.ask(look_up("a")), Refusal::NotFound);
    assert!(told.ask(make("a")).answers.is_empty());
    assert!(told.ask(remove("a")).answers.is_empty());
    let decisions = told.say(1, Outcome::Made);
    // The first is made; the second finds it; the third has it removed.
    let answers: Vec<u64> = decisions.answers.iter().map(|(id, _)| id.0).collect();
    assert_eq!(answers, [1, 3]);
    assert!(told.ask(look_up("a")).answers.is_empty());
    let decisions = told.say(1, Outcome::NotRemoved(39));
    let [(RequestId(4), Err(Refusal::FileSystem(39))), (RequestId(5), Ok(Answer::Volume { .. }))] =
        decisions.answers[..]
    else {
        panic!("{decisions:?}");
    };
}

#[test]
fn the_answer_to_an_earlier_intent_counts_for_nothing() {
    let mut told = Told::new();
    told.make("a");
    told.ask(remove("a"));
    let slot = told.root.table.slot(VolumeId(1)).cloned().unwrap();
    told.say(1, Outcome::NotRemoved(39));
    told.ask(remove("a"));
    let mut decisions = Decisions::default();
    told.root.outcome(SERVER, (slot.key, slot.changed), Outcome::Removed, &mut decisions);
    told.root.outcome(ServerId(3), (slot.key, told.root.table.version()), Outcome::Removed, &mut decisions);
    assert!(decisions.changed.is_empty() && decisions.answers.is_empty());
    assert_eq!(told.names(), [("a".to_owned(), 1)]);
}

#[test]
fn replacing_takes_the_name_when_the_other_one_is_gone() {
    for (outcome, names) in [(Outcome::Removed, &[("b", 1)][..]), (Outcome::NotRemoved(39), &[("a", 1), ("b", 2)])] {
        let mut told = Told::new();
        told.make("a");
        told.make("b");
        refused(&told.ask(rename("a", "b", RenameHow::NoReplace)), Refusal::Exists);
        assert!(told.ask(rename("a", "b", RenameHow::Replace)).answers.is_empty());
        assert!(told.say(1, Outcome::Prepared).answers.is_empty());
        let early = told.say(2, outcome).answers;
        let late = told.say(1, Outcome::Renamed).answers;
        let answers: Vec<bool> = early.iter().chain(&late).map(|(_, result)| result.is_ok()).collect();
        assert_eq!(answers, [outcome == Outcome::Removed]);
        let names: Vec<(String, u16)> = names.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
        assert_eq!(told.names(), names);
        assert!(told.root.intents.is_empty() && told.root.asking.is_empty());
    }
}

#[test]
fn an_exchange_is_given_up_while_one_of_the_two_is_not_prepared() {
    let mut told = Told::new();
    told.make("a");
    told.make("b");
    assert!(told.ask(rename("a", "b", RenameHow::Exchange)).answers.is_empty());
    told.say(1, Outcome::Prepared);
    let mut decisions = Decisions::default();
    told.root.forget(RequestId(told.next), &mut decisions);
    assert_eq!(decisions.changed.len(), 2, "both are let go");
    told.say(1, Outcome::Renamed);
    told.say(2, Outcome::Renamed);
    assert_eq!(told.names(), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    // And the next one succeeds.
    told.ask(rename("a", "b", RenameHow::Exchange));
    told.say(1, Outcome::Prepared);
    told.say(2, Outcome::Prepared);
    assert!(told.say(2, Outcome::Renamed).answers.is_empty());
    assert_eq!(told.say(1, Outcome::Renamed).answers.len(), 1);
    assert_eq!(told.names(), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
}

#[test]
fn a_volume_that_was_found_is_that_one_or_none() {
    let mut told = Told::new();
    told.make("a");
    let other = Some(VolumeId(7));
    refused(&told.ask(Request::Remove { name: name("a"), found: other }), Refusal::NotFound);
    let to = name("b");
    let request = Request::Rename { from: name("a"), found: other, to, how: RenameHow::Replace };
    refused(&told.ask(request), Refusal::NotFound);
    assert!(told.ask(Request::Remove { name: name("a"), found: Some(VolumeId(1)) }).answers.is_empty());
}

#[test]
fn too_much_at_once_is_refused() {
    let mut told = Told::new();
    for number in 0..INTENTS_MAX {
        assert!(told.ask(make(&format!("v{number}"))).answers.is_empty());
    }
    refused(&told.ask(make("more")), Refusal::Busy);
    for _ in 0..WAITING_MAX {
        assert!(told.ask(remove("v0")).answers.is_empty());
    }
    refused(&told.ask(remove("v0")), Refusal::Busy);
    let mut no_one = Decisions::default();
    told.root.forget(RequestId(1), &mut no_one);
    assert!(no_one.changed.is_empty(), "what is begun goes on");
    refused(
        &told.ask(Request::Make { name: name("x"), server: ServerId(9), attributes: Attributes::default() }),
        Refusal::UnknownServer,
    );
}
