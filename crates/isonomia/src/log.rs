//! What goes to standard error, and how much of it.
//!
//! Clients cause lines in a server's log, and a hostile one would fill the disk with them. So each call site
//! writes a few lines for each user within a while, and some more for all users together; what is left out is counted,
//! and the number stands before the next line of that site. It applies to every line, whoever writes it, at `info` and
//! above; whoever asks for `debug` gets everything.

use isonomia_units::Nanos;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// What is logged unless told otherwise. The metadata database logs its housekeeping, and `fuser` each mount, at `info`: both
/// are left out. So is what `fuser::reply` logs as an error: that nobody waits for an answer any more, which happens whenever
/// a program that waits is killed.
const DEFAULT: &str = "info,fjall=warn,lsm_tree=error,fuser=warn,fuser::reply=off";

/// Lines of one call site for one user within [`WINDOW`].
const LINES_OF_USER_MAX: u64 = 10;
/// Lines of one call site within [`WINDOW`].
const LINES_MAX: u64 = 50;
const WINDOW: Nanos = Nanos::from_secs(10);
/// Users whose lines are counted apart; those of more users count for the site alone.
const USERS_MAX: usize = 1_024;

/// Tells whoever started the program. What cannot be told is lost, and ends nothing: the disk with the log may be full, or
/// its reader gone.
pub fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "isonomia: {line}");
}

/// Logs to standard error what `ISONOMIA_LOG` asks for. Lines that cannot be written are lost, as with [`say`].
pub fn to_stderr() {
    let wanted = std::env::var("ISONOMIA_LOG").unwrap_or_else(|_| DEFAULT.to_owned());
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse_lossy(wanted))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // It would tell of a line that could not be written on standard error, where it fails again, by a panic.
        .log_internal_errors(false)
        .event_format(Bounded { format: Format::default(), limiter: Mutex::new(Limiter::new()) })
        .init();
}

/// The usual format, of as many lines as there may be.
struct Bounded {
    format: Format,
    limiter: Mutex<Limiter<Identifier>>,
}

impl<S, N> FormatEvent<S, N> for Bounded
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let site = event.metadata();
        if *site.level() <= Level::INFO {
            let mut user = User(None);
            event.record(&mut user);
            let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
            match limiter.admit(isonomia_transport::monotonic_now(), site.callsite(), user.0) {
                // Nothing is formatted, and so nothing is written.
                None => return Ok(()),
                Some(0) => {}
                Some(left_out) => writeln!(writer, "({left_out} lines like the next one were left out)")?,
            }
        }
        self.format.format_event(context, writer, event)
    }
}

/// The field `uid` of an event.
struct User(Option<u64>);

impl Visit for User {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "uid" {
            self.0 = Some(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// Counts the lines of sites `P`.
struct Limiter<P> {
    sites: HashMap<P, Window>,
    /// What is about no user counts as one user.
    users: HashMap<(P, Option<u64>), Window>,
}

struct Window {
    since: Nanos,
    written: u64,
    left_out: u64,
}

impl Window {
    fn new(now: Nanos) -> Self {
        Self { since: now, written: 0, left_out: 0 }
    }

    fn is_over(&self, now: Nanos) -> bool {
        now.since(self.since) >= WINDOW
    }

    /// Whether there may be one more of `max`.
    fn has_room(&mut self, now: Nanos, max: u64) -> bool {
        if self.is_over(now) {
            (self.since, self.written) = (now, 0);
        }
        self.written < max
    }

    /// One more is written; gives how many were not since the last one.
    fn write(&mut self) -> u64 {
        self.written += 1;
        std::mem::take(&mut self.left_out)
    }
}

impl<P: Clone + Eq + Hash> Limiter<P> {
    fn new() -> Self {
        Self { sites: HashMap::new(), users: HashMap::new() }
    }

    /// Whether a line of `site` about `user` is written at `now`: then, how many were left out before it.
    fn admit(&mut self, now: Nanos, site: P, user: Option<u64>) -> Option<u64> {
        let key = (site.clone(), user);
        if self.users.len() >= USERS_MAX && !self.users.contains_key(&key) {
            self.users.retain(|_, window| !window.is_over(now));
        }
        let mut of_user = if self.users.len() < USERS_MAX || self.users.contains_key(&key) {
            Some(self.users.entry(key).or_insert_with(|| Window::new(now)))
        } else {
            None
        };
        let of_site = self.sites.entry(site).or_insert_with(|| Window::new(now));
        if !of_user.as_mut().is_none_or(|window| window.has_room(now, LINES_OF_USER_MAX)) {
            of_user.into_iter().for_each(|window| window.left_out += 1);
            return None;
        }
        if !of_site.has_room(now, LINES_MAX) {
            of_site.left_out += 1;
            return None;
        }
        Some(of_site.write() + of_user.map_or(0, Window::write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Nanos = Nanos::from_secs(7);

    #[test]
    fn one_user_does_not_take_the_lines_of_another() {
        let mut limiter = Limiter::new();
        let mut written = |user| (0..1_000).filter(|_| limiter.admit(START, "refused", Some(user)).is_some()).count();
        assert_eq!((written(1), written(2)), (10, 10));
        assert_eq!(limiter.admit(START, "closed", Some(1)), Some(0), "another site");
        let later = START + WINDOW;
        assert_eq!(limiter.admit(later, "refused", Some(1)), Some(990), "what was left out is counted");
        assert_eq!(limiter.admit(later, "refused", Some(1)), Some(0));
    }

    #[test]
    fn many_users_together_are_bounded_in_lines_and_in_memory() {
        let mut limiter = Limiter::new();
        let written = (0..100_000).filter(|user| limiter.admit(START, "refused", Some(*user)).is_some()).count();
        assert_eq!(written as u64, LINES_MAX);
        assert_eq!(limiter.users.len(), USERS_MAX);
        let later = START + WINDOW;
        assert!(limiter.admit(later, "refused", Some(200_000)).is_some());
        assert_eq!(limiter.users.len(), 1, "counts of the past make room");
        let strangers = (0..100).filter(|_| limiter.admit(later, "refused", None).is_some()).count() as u64;
        assert_eq!(strangers, LINES_OF_USER_MAX, "strangers do not take the lines of users");
    }
}
