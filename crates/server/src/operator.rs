//! Operators' questions and settings.

use crate::clock;
use crate::core::Core;
use crate::identity::Peer;
use crate::status::{self, About};
use isonomia_policy::{Draw, PolicySpec};
use isonomia_proto::control::{ControlReply, ControlRequest};
use std::sync::PoisonError;

/// The answer, in JSON, to a question in JSON.
pub fn answer(core: &Core, about: &About, peer: &Peer, question: &[u8]) -> Vec<u8> {
    let reply = match serde_json::from_slice(question) {
        Ok(ControlRequest::Status) => ControlReply::Status(Box::new(status::snapshot(core, about))),
        Ok(ControlRequest::SetPolicy { .. }) if !may_set(peer) => {
            ControlReply::Error("only the server's user and root may set the policy".to_owned())
        }
        Ok(ControlRequest::SetPolicy { policy, draw }) => {
            set_policy(core, &policy, draw.as_deref()).unwrap_or_else(ControlReply::Error)
        }
        Err(error) => ControlReply::Error(format!("not a question this server knows: {error}")),
    };
    serde_json::to_vec(&reply).unwrap_or_default()
}

/// A key is the owner's, so who proved it may do what the owner may.
fn may_set(peer: &Peer) -> bool {
    match peer {
        Peer::Local(credentials) => credentials.uid == 0 || credentials.uid == rustix::process::geteuid().as_raw(),
        Peer::Keyed(_) => true,
    }
}

fn set_policy(core: &Core, spec: &str, draw: Option<&str>) -> Result<ControlReply, String> {
    let spec: PolicySpec = spec.parse().map_err(|e: isonomia_policy::ParsePolicyError| e.to_string())?;
    let draw: Option<Draw> =
        draw.map(str::parse).transpose().map_err(|e: isonomia_policy::ParseDrawError| e.to_string())?;
    // Held to the end: a job that joins meanwhile is announced to the new arbiters (`Core::announce`).
    let mut policy = core.policy.lock().unwrap_or_else(PoisonError::into_inner);
    policy.spec = spec;
    policy.draw = draw.unwrap_or(policy.draw);
    let (now, jobs) = (clock::now(), core.jobs.all());
    let jobs: Vec<_> = jobs.iter().map(|job| (job.id, job.info())).collect();
    for target in &core.targets {
        target.set_policy(now, &policy, &jobs);
    }
    // A worker that sleeps until the old policy's next turn has to ask the new one.
    core.ring();
    tracing::info!(policy = %policy.spec, draw = %policy.draw, "policy set");
    Ok(ControlReply::Policy { policy: policy.spec.to_string(), draw: policy.draw.to_string() })
}
