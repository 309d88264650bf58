//! Which names nobody answers for while volumes of two servers change theirs, server by server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use isonomia_cluster::lineage::{Instance, Past};
use isonomia_cluster::node::{Effect, Input, Node, Process, View};
use isonomia_cluster::peer::Envelope;
use isonomia_cluster::request::{RenameHow, Request, RequestId};
use isonomia_cluster::volumes::{Attributes, VolumeName};
use isonomia_units::{Nanos, ServerId};
use std::collections::{BTreeMap, VecDeque};

const ROOT: ServerId = ServerId(1);
/// Each has one of the two volumes.
const LEFT: ServerId = ServerId(2);
const RIGHT: ServerId = ServerId(3);

/// Servers that store at once and whose file systems do what they are told.
struct Cluster {
    nodes: BTreeMap<ServerId, Node>,
    /// What was sent and has not arrived.
    sent: VecDeque<Envelope>,
    requests: u64,
    answered: usize,
}

fn name(text: &str) -> VolumeName {
    text.as_bytes().try_into().unwrap()
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Self { nodes: BTreeMap::new(), sent: VecDeque::new(), requests: 0, answered: 0 };
        for server in [ROOT, LEFT, RIGHT] {
            let view = View { epoch: 1, root: ROOT, servers: [ROOT, LEFT, RIGHT].into() };
            let mut effects = Vec::new();
            let instance = Instance { number: 1, token: u64::from(server.0) };
            let begins = (Process { server, instance }, Past::default());
            let node = Node::start(begins, view, [], Nanos::ZERO, &mut effects).unwrap();
            cluster.nodes.insert(server, node);
            cluster.act(server, effects);
            cluster.give(server, Input::Owned { until: Nanos::MAX });
        }
        cluster.deliver(&[ROOT, LEFT, RIGHT]);
        cluster
    }

    fn give(&mut self, server: ServerId, input: Input) {
        let mut effects = Vec::new();
        self.nodes.get_mut(&server).unwrap().handle(Nanos::ZERO, input, &mut effects);
        self.act(server, effects);
    }

    fn act(&mut self, server: ServerId, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Store { id, .. } => self.give(server, Input::Stored(id)),
                Effect::Send(envelope) => self.sent.push_back(envelope),
                Effect::Work(work) => {
                    self.give(server, Input::Worked { number: work.key().number, result: Ok(()) });
                }
                Effect::Answer { .. } => self.answered += 1,
                _ => {}
            }
        }
    }

    /// Delivers what was sent to these servers, and what they answer, until there is no more.
    fn deliver(&mut self, to: &[ServerId]) {
        while let Some(at) = self.sent.iter().position(|envelope| to.contains(&envelope.to)) {
            let envelope = self.sent.remove(at).unwrap();
            self.give(envelope.to, Input::Message { from: envelope.from, envelope });
        }
    }

    fn ask(&mut self, request: Request) {
        self.requests += 1;
        let (id, deadline) = (RequestId(self.requests), Nanos::from_secs(9));
        self.give(ROOT, Input::Request { id, deadline, request });
    }

    fn make(&mut self, text: &str, server: ServerId) {
        self.ask(Request::Make { name: name(text), server, attributes: Attributes::default() });
        self.deliver(&[ROOT, LEFT, RIGHT]);
    }

    fn rename(&mut self, from: &str, to: &str, how: RenameHow) {
        self.ask(Request::Rename { from: name(from), found: None, to: name(to), how });
    }

    fn in_doubt(&self, server: ServerId) -> Vec<String> {
        let mut names: Vec<String> = self.nodes[&server].names_in_doubt().map(ToString::to_string).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The volume's number by which a server that does not doubt it would serve this name.
    fn serves(&self, server: ServerId, text: &str) -> Option<u16> {
        let host = self.nodes[&server].hosted().named(&name(text))?;
        (!self.in_doubt(server).contains(&text.to_owned())).then_some(host.key.number.0)
    }
}

#[test]
fn a_server_that_has_not_heard_of_an_exchange_answers_for_neither_name() {
    let mut cluster = Cluster::new();
    cluster.make("a", LEFT);
    cluster.make("b", RIGHT);
    assert_eq!((cluster.serves(LEFT, "a"), cluster.serves(RIGHT, "b")), (Some(1), Some(2)));
    assert!([ROOT, LEFT, RIGHT].iter().all(|server| cluster.in_doubt(*server).is_empty()));
    cluster.rename("a", "b", RenameHow::Exchange);
    assert_eq!(cluster.in_doubt(ROOT), ["a", "b"]);
    // Both are prepared, and the root server knows it.
    for name in [LEFT, RIGHT] {
        cluster.deliver(&[name]);
        assert_eq!(cluster.in_doubt(name), ["a", "b"]);
        cluster.deliver(&[ROOT]);
    }
    // The one has its new name, and the other has heard nothing of that.
    cluster.deliver(&[LEFT]);
    assert_eq!((cluster.serves(LEFT, "b"), cluster.serves(LEFT, "a")), (Some(1), None));
    assert!(cluster.in_doubt(LEFT).is_empty());
    assert_eq!(cluster.in_doubt(RIGHT), ["a", "b"]);
    assert_eq!((cluster.serves(RIGHT, "b"), cluster.serves(RIGHT, "a")), (None, None));
    cluster.deliver(&[ROOT, LEFT, RIGHT]);
    assert_eq!((cluster.serves(LEFT, "b"), cluster.serves(RIGHT, "a")), (Some(1), Some(2)));
    assert!([ROOT, LEFT, RIGHT].iter().all(|server| cluster.in_doubt(*server).is_empty()));
    assert_eq!(cluster.answered, 3);
}

#[test]
fn a_name_that_is_taken_over_is_in_doubt_until_its_new_volume_has_it() {
    let mut cluster = Cluster::new();
    cluster.make("comes", LEFT);
    cluster.make("stays", RIGHT);
    cluster.rename("comes", "stays", RenameHow::Replace);
    cluster.deliver(&[LEFT, ROOT, RIGHT]);
    cluster.deliver(&[ROOT]);
    assert_eq!(cluster.serves(LEFT, "stays"), Some(1));
    cluster.make("comes", LEFT);
    cluster.rename("comes", "stays", RenameHow::Replace);
    cluster.deliver(&[LEFT]);
    assert_eq!(cluster.in_doubt(LEFT), ["comes", "stays"]);
    // The empty one goes: who is sent to and fro between the servers waits at one of them.
    cluster.deliver(&[ROOT]);
    assert_eq!(cluster.in_doubt(ROOT), ["comes", "stays"]);
    cluster.deliver(&[ROOT, LEFT, RIGHT]);
    assert!([ROOT, LEFT, RIGHT].iter().all(|server| cluster.in_doubt(*server).is_empty()));
}
