//! Questions to something that may take long to answer, such as the system's name service, which may be on another machine,
//! slow, or away.
//!
//! A thread of its own asks; everybody else looks at what it found, of which no more is kept than a bound. What is known is
//! used while it is asked for anew, until it is too old for that.

use crate::clock;
use isonomia_units::Nanos;
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long a client that is being set up waits for an answer.
pub const WAIT: Nanos = Nanos::from_secs(2);
/// Answers that are kept; beyond that the one that was asked for first makes room.
const KNOWN_MAX: usize = 8_192;
/// Questions that wait for the thread.
const QUESTIONS_MAX: usize = 1_024;
/// After this long a question that failed is asked anew.
const FAILED_FOR: Nanos = Nanos::from_secs(1);

/// How long answers are good for.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// One that is older is asked for anew, and used meanwhile.
    pub fresh_for: Nanos,
    /// One that is older is not used any more.
    pub valid_for: Nanos,
}

/// What is known of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<A> {
    /// The answer.
    Known(A),
    /// It has only just been asked.
    Asked,
    /// It was asked, and there is no answer.
    Failed,
    /// Too many questions wait.
    Overloaded,
}

/// See the module.
#[derive(Debug)]
pub struct Inquiries<Q, A> {
    terms: Terms,
    known: Arc<Mutex<HashMap<Q, Known<A>>>>,
    questions: SyncSender<Q>,
}

#[derive(Debug)]
struct Known<A> {
    asked_at: Nanos,
    /// What the latest question that has come back gave, and when.
    answer: Option<(Option<A>, Nanos)>,
}

impl<Q: Copy + Eq + Hash + Send + 'static, A: Clone + Send + 'static> Inquiries<Q, A> {
    /// Inquiries that `ask` answers, if it can. A thread called `name` calls it, and adds to the event counter `bell` after each
    /// answer. The thread ends when this is dropped, or when the `ask` that it is in then returns: nobody waits for it.
    pub fn new(
        name: &'static str,
        terms: Terms,
        ask: impl Fn(Q) -> Option<A> + Send + 'static,
        bell: OwnedFd,
    ) -> std::io::Result<Self> {
        let (questions, asked) = sync_channel(QUESTIONS_MAX);
        let known = Arc::new(Mutex::new(HashMap::new()));
        let found = known.clone();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || answer(name, &asked, &found, ask, &bell))?;
        Ok(Self { terms, known, questions })
    }

    /// What is known of `question`, which is asked if need be.
    pub fn get(&self, question: Q, now: Nanos) -> Found<A> {
        let mut known = lock(&self.known);
        if let Some(entry) = known.get_mut(&question) {
            let failed = matches!(entry.answer, Some((None, _)));
            let fresh_for = if failed { FAILED_FOR } else { self.terms.fresh_for };
            let is_old = entry.answer.is_some() && now.since(entry.asked_at) >= fresh_for;
            if is_old && self.questions.try_send(question).is_ok() {
                entry.asked_at = now;
                entry.answer = entry.answer.take().filter(|_| !failed);
            }
            return match &entry.answer {
                Some((Some(answer), at)) if now.since(*at) < self.terms.valid_for => Found::Known(answer.clone()),
                Some((None, _)) => Found::Failed,
                _ => Found::Asked,
            };
        }
        if self.questions.try_send(question).is_err() {
            return Found::Overloaded;
        }
        if known.len() >= KNOWN_MAX
            && let Some(first) = known.iter().min_by_key(|(_, entry)| entry.asked_at).map(|(question, _)| *question)
        {
            known.remove(&first);
        }
        known.insert(question, Known { asked_at: now, answer: None });
        Found::Asked
    }

    /// How much is kept.
    #[cfg(test)]
    pub fn known(&self) -> usize {
        lock(&self.known).len()
    }
}

fn lock<Q, A>(known: &Mutex<HashMap<Q, Known<A>>>) -> MutexGuard<'_, HashMap<Q, Known<A>>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer<Q: Copy + Eq + Hash, A>(
    name: &'static str,
    asked: &Receiver<Q>,
    found: &Mutex<HashMap<Q, Known<A>>>,
    ask: impl Fn(Q) -> Option<A>,
    bell: &OwnedFd,
) {
    for question in asked {
        let before = clock::now();
        let answer = ask(question);
        let now = clock::now();
        let took = now.since(before);
        if took >= WAIT {
            tracing::warn!(what = name, took_ms = took.0 / 1_000_000, "the name service is slow");
        }
        if let Some(entry) = lock(found).get_mut(&question) {
            entry.answer = Some((answer, now));
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

    const TERMS: Terms = Terms { fresh_for: Nanos::from_secs(300), valid_for: Nanos::from_secs(600) };

    fn bell() -> (OwnedFd, OwnedFd) {
        let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        (bell.try_clone().unwrap(), bell)
    }

    fn wait(bell: &OwnedFd) {
        rustix::io::read(bell, &mut [0; 8]).unwrap();
    }

    #[test]
    fn an_answer_is_asked_for_once_used_while_it_is_asked_for_anew_and_expires() {
        let (ring, rung) = bell();
        let (answers, given) = channel();
        let inquiries = Inquiries::new("test", TERMS, move |_: u32| given.recv().unwrap(), ring).unwrap();
        let now = clock::now();
        assert_eq!(inquiries.get(7, now), Found::Asked);
        assert_eq!(inquiries.get(7, now), Found::Asked, "asked, no answer yet");
        answers.send(Some("ada")).unwrap();
        wait(&rung);
        assert_eq!(inquiries.get(7, now), Found::Known("ada"));
        // Nobody answers from now on.
        let later = now + TERMS.fresh_for;
        assert_eq!(inquiries.get(7, later), Found::Known("ada"));
        assert_eq!(inquiries.get(7, now + TERMS.valid_for + Nanos::from_secs(9)), Found::Asked);
        answers.send(Some("ada lovelace")).unwrap();
        wait(&rung);
        assert_eq!(inquiries.get(7, later), Found::Known("ada lovelace"));
    }

    #[test]
    fn a_question_that_failed_is_asked_anew_after_a_moment() {
        let (ring, rung) = bell();
        let (answers, given) = channel();
        let inquiries = Inquiries::new("test", TERMS, move |_: u32| given.recv().unwrap(), ring).unwrap();
        let now = clock::now();
        assert_eq!(inquiries.get(7, now), Found::Asked);
        answers.send(None).unwrap();
        wait(&rung);
        assert_eq!(inquiries.get(7, now), Found::Failed);
        let later = now + FAILED_FOR;
        assert_eq!(inquiries.get(7, later), Found::Asked);
        answers.send(Some("ada")).unwrap();
        wait(&rung);
        assert_eq!(inquiries.get(7, later), Found::Known("ada"));
    }

    #[test]
    fn a_service_that_never_answers_costs_a_bounded_number_of_questions_and_answers() {
        let (ring, _rung) = bell();
        let (_never, given) = channel::<()>();
        let inquiries = Inquiries::new("test", TERMS, move |_: u32| given.recv().ok(), ring).unwrap();
        let now = Nanos::from_secs(9);
        let asked = (0..20_000).filter(|id| inquiries.get(*id, now) == Found::Asked).count();
        assert!((QUESTIONS_MAX..=QUESTIONS_MAX + 1).contains(&asked), "{asked}");
        assert_eq!(inquiries.get(20_001, now), Found::Overloaded);
        assert!(inquiries.known() <= KNOWN_MAX);
    }
}
