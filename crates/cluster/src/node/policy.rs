//! A node's part in setting the policy of the cluster: [`crate::policy`] says what and why.

use super::{Effect, Node};
use crate::peer::Message;
use crate::policy::{Policy, TEXT_BYTES_MAX};
use crate::records::Record;
use crate::request::{Answer, Refusal, Request, RequestId};
use isonomia_units::ServerId;

impl Node {
    /// On the root server: an operator sets the policy.
    pub(super) fn set_policy(&mut self, id: RequestId, request: Request, effects: &mut Vec<Effect>) {
        let Request::SetPolicy { text } = request else { return };
        let result = if text.len() > TEXT_BYTES_MAX {
            Err(Refusal::PolicyTooLong(text.len()))
        } else {
            let policy = self.policy.set(text);
            let version = policy.version;
            self.publish(policy, effects);
            Ok(Answer::PolicySet { version })
        };
        self.emit(Effect::Answer { id, result }, effects);
    }

    /// On the root server: `from` has this version of the policy.
    pub(super) fn policy_of(&mut self, from: ServerId, version: u64, effects: &mut Vec<Effect>) {
        if let Some(policy) = self.policy.heard_of(version) {
            self.publish(policy, effects);
        } else if let Some(policy) = self.policy.policy().filter(|policy| policy.version > version).cloned() {
            self.send(from, Message::Policy(policy), effects);
        }
    }

    fn publish(&mut self, policy: Policy, effects: &mut Vec<Effect>) {
        self.store(vec![Record::Policy(policy.clone()).put()], effects);
        let others: Vec<ServerId> =
            self.view.servers.iter().copied().filter(|server| *server != self.process.server).collect();
        for server in others {
            self.send(server, Message::Policy(policy.clone()), effects);
        }
        self.emit(Effect::FollowPolicy(policy), effects);
    }

    /// On another server: the root server has this policy.
    pub(super) fn take_policy(&mut self, policy: Policy, effects: &mut Vec<Effect>) {
        if self.policy.take(&policy) {
            self.store(vec![Record::Policy(policy.clone()).put()], effects);
            self.emit(Effect::FollowPolicy(policy), effects);
        }
    }
}
