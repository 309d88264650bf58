//! What servers of a cluster say to each other and keep on disk: read, or refused; and a node that hears anything goes on.

#![no_main]

use isonomia_cluster::lineage::{Instance, Past};
use isonomia_cluster::node::{Effect, Input, Node, Process, View};
use isonomia_cluster::peer::Envelope;
use isonomia_units::{Nanos, ServerId};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

/// A record to begin with; messages, each with the server that brings it.
type Heard<'b> = ((&'b [u8], &'b [u8]), Vec<(u8, &'b [u8])>);

/// More effects than one message can have.
const EFFECTS_MAX: usize = 10_000;

fuzz_target!(|input: Heard<'_>| {
    let ((key, value), messages) = input;
    for own in [ServerId(1), ServerId(2)] {
        let view = || View { epoch: 1, root: ServerId(1), servers: (1..=3).map(ServerId).collect() };
        let process = || (Process { server: own, instance: Instance { number: 1, token: 1 } }, Past::default());
        let mut effects = Vec::new();
        // A record that nobody wrote is refused.
        let _ = Node::start(process(), view(), [(key.to_vec(), value.to_vec())], Nanos::ZERO, &mut effects);
        effects.clear();
        let mut node = Node::start(process(), view(), [], Nanos::ZERO, &mut effects).expect("nothing is stored yet");
        node.handle(Nanos::ZERO, Input::Owned { until: Nanos::MAX }, &mut effects);
        let mut records = BTreeMap::new();
        for (from, bytes) in &messages {
            let Ok(mut envelope) = Envelope::decode(bytes) else { continue };
            assert_eq!(Envelope::decode(&envelope.encode()).as_ref(), Ok(&envelope));
            // So that many are listened to.
            let (listens_no_more, from) = (from % 8 == 0, ServerId(u16::from(from % 3) + 1));
            (envelope.from, envelope.to, envelope.epoch) = (from, own, 1);
            envelope.knows = envelope.knows.filter(|_| listens_no_more);
            node.handle(Nanos::ZERO, Input::Message { from, envelope }, &mut effects);
            assert!(effects.len() < EFFECTS_MAX);
            let mut stored = None;
            for effect in effects.drain(..) {
                if let Effect::Store { id, changes } = effect {
                    stored = Some(id);
                    records.extend(changes.into_iter().map(|change| (change.key, change.value)));
                }
            }
            if let Some(id) = stored {
                node.handle(Nanos::ZERO, Input::Stored(id), &mut effects);
            }
            effects.clear();
        }
        // What it stored is understood when it starts again.
        let records = records.into_iter().filter_map(|(key, value)| Some((key, value?)));
        Node::start(process(), view(), records, Nanos::ZERO, &mut effects).expect("what it stored itself");
    }
});
