//! The names of users and groups, from the system's name service, which may be on another machine, slow, or away.
//!
//! A thread of its own asks; everybody else looks at what it found. What is known is used while it is asked for anew, so
//! an outage concerns only those who were not seen before: they go by their numbers after [`WAIT`].

use crate::clock;
use isonomia_units::Nanos;
use nix::unistd::{Gid, Group, Uid, User};
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long a client that is being set up waits for a name.
pub const WAIT: Nanos = Nanos::from_secs(2);
/// A name that is older is asked for anew, and used meanwhile.
const FRESH_FOR: Nanos = Nanos::from_secs(300);
/// Names that are kept; beyond that the one that was asked for first makes room.
const KNOWN_MAX: usize = 8_192;
/// Questions that wait for the thread; whoever asks more gets a number.
const QUESTIONS_MAX: usize = 1_024;

/// Whose name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// A user.
    User(u32),
    /// A group.
    Group(u32),
}

impl Who {
    /// What it goes by without a name.
    pub fn number(self) -> String {
        match self {
            Self::User(id) | Self::Group(id) => id.to_string(),
        }
    }
}

/// Something that finds names.
pub trait LookUp: Fn(Who) -> String + Send + 'static {}

impl<F: Fn(Who) -> String + Send + 'static> LookUp for F {}

/// The name that the system's name service has, which may take as long as it likes to answer; the number as text if there
/// is none.
pub fn look_up(who: Who) -> String {
    let name = match who {
        Who::User(id) => User::from_uid(Uid::from_raw(id)).ok().flatten().map(|user| user.name),
        Who::Group(id) => Group::from_gid(Gid::from_raw(id)).ok().flatten().map(|group| group.name),
    };
    name.unwrap_or_else(|| who.number())
}

/// See the module.
#[derive(Debug)]
pub struct Names {
    known: Arc<Mutex<HashMap<Who, Known>>>,
    questions: SyncSender<Who>,
}

#[derive(Debug)]
struct Known {
    /// None: asked for and not yet answered.
    name: Option<String>,
    asked_at: Nanos,
}

impl Names {
    /// Names that `look_up` finds. A thread of its own calls it, and adds to the event counter `bell` after each name. The
    /// thread ends when this is dropped, or when the `look_up` that it is in then returns: nobody waits for it.
    pub fn new(look_up: impl LookUp, bell: OwnedFd) -> std::io::Result<Self> {
        let (questions, asked) = sync_channel(QUESTIONS_MAX);
        let known = Arc::new(Mutex::new(HashMap::new()));
        let found = known.clone();
        std::thread::Builder::new().name("names".to_owned()).spawn(move || answer(&asked, &found, look_up, &bell))?;
        Ok(Self { known, questions })
    }

    /// The name of `who`; `None` if it has only just been asked for.
    pub fn get(&self, who: Who, now: Nanos) -> Option<String> {
        let mut known = lock(&self.known);
        if let Some(entry) = known.get_mut(&who) {
            let is_old = now.since(entry.asked_at) >= FRESH_FOR;
            if is_old && self.questions.try_send(who).is_ok() {
                entry.asked_at = now;
            }
            return entry.name.clone();
        }
        if self.questions.try_send(who).is_err() {
            return Some(who.number());
        }
        if known.len() >= KNOWN_MAX
            && let Some(first) = known.iter().min_by_key(|(_, entry)| entry.asked_at).map(|(who, _)| *who)
        {
            known.remove(&first);
        }
        known.insert(who, Known { name: None, asked_at: now });
        None
    }
}

fn lock(known: &Mutex<HashMap<Who, Known>>) -> MutexGuard<'_, HashMap<Who, Known>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(asked: &Receiver<Who>, found: &Mutex<HashMap<Who, Known>>, look_up: impl Fn(Who) -> String, bell: &OwnedFd) {
    for who in asked {
        let before = clock::now();
        let name = look_up(who);
        let took = clock::now().since(before);
        if took >= WAIT {
            tracing::warn!(took_ms = took.0 / 1_000_000, "the name service is slow: users go by their numbers");
        }
        if let Some(entry) = lock(found).get_mut(&who) {
            entry.name = Some(name);
        }
        // The only failure is that the counter is full: then whoever waits for it is told already.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::sync::mpsc::channel;

    fn bell() -> (OwnedFd, OwnedFd) {
        let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        (bell.try_clone().unwrap(), bell)
    }

    fn wait(bell: &OwnedFd) {
        rustix::io::read(bell, &mut [0; 8]).unwrap();
    }

    #[test]
    fn a_name_is_asked_for_once_and_used_while_it_is_asked_for_anew() {
        let (ring, rung) = bell();
        let (answers, given) = channel::<&str>();
        let names = Names::new(move |_| given.recv().unwrap().to_owned(), ring).unwrap();
        let now = Nanos::from_secs(9);
        assert_eq!(names.get(Who::User(7), now), None);
        assert_eq!(names.get(Who::User(7), now), None, "asked for, no answer yet");
        answers.send("ada").unwrap();
        wait(&rung);
        assert_eq!(names.get(Who::User(7), now).as_deref(), Some("ada"));
        // The service is away from now on.
        let later = now + FRESH_FOR;
        assert_eq!(names.get(Who::User(7), later).as_deref(), Some("ada"));
        answers.send("ada lovelace").unwrap();
        wait(&rung);
        assert_eq!(names.get(Who::User(7), later).as_deref(), Some("ada lovelace"));
    }

    #[test]
    fn a_service_that_never_answers_costs_a_bounded_number_of_questions_and_names() {
        let (ring, _rung) = bell();
        let (_never, given) = channel::<String>();
        let names = Names::new(move |_| given.recv().unwrap(), ring).unwrap();
        let now = Nanos::from_secs(9);
        let unknown = (0..20_000).filter(|id| names.get(Who::Group(*id), now).is_none()).count();
        assert!((QUESTIONS_MAX..=QUESTIONS_MAX + 1).contains(&unknown), "{unknown}");
        assert_eq!(names.get(Who::User(20_001), now).as_deref(), Some("20001"));
        assert!(lock(&names.known).len() <= KNOWN_MAX);
    }

    #[test]
    fn whoever_has_no_name_goes_by_the_number() {
        assert_eq!(look_up(Who::User(0)), "root");
        assert_eq!(look_up(Who::User(1_234_567)), "1234567");
        assert_eq!(look_up(Who::Group(1_234_568)), "1234568");
    }
}
