//! What is written to the log.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Hears what this project's code logs, in one thread (`tracing::subscriber::with_default`).
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<String>>);

impl Heard {
    /// What was heard since this was last asked: names of fields and what they are, a line for each event.
    pub fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Text<'t>(&'t mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("isonomia") && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = write!(heard, "{} ", event.metadata().level());
        event.record(&mut Text(&mut heard));
        heard.push('\n');
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
