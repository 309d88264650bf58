//! Operators' questions and settings.

use crate::backup::Wish;
use crate::clock;
use crate::cluster::{Cluster, Reload};
use crate::core::Core;
use crate::histories;
use crate::identity::Peer;
use crate::status::{self, About};
use crate::target::Policy;
use isonomia_controller::Plan;
use isonomia_policy::{Draw, PolicySpec};
use isonomia_proto::control::{ControlReply, ControlRequest, Status};
use isonomia_proto::setup;
use isonomia_store::{Caller, StoreError};
use isonomia_units::{BadPlacement, Ino, Nanos, Placement};
use std::sync::PoisonError;

/// Jobs in one frame of a status: some 100 KiB.
const JOBS_IN_FRAME: usize = 128;

/// The question in a frame's body, or why it is none.
pub fn read(body: &[u8]) -> Result<ControlRequest, String> {
    serde_json::from_slice(body).map_err(|error| format!("not a question this server knows: {error}"))
}

/// The frame of a reply.
pub fn frame(reply: &ControlReply) -> Vec<u8> {
    setup::frame(&serde_json::to_vec(reply).unwrap_or_default())
}

/// The frames of the answer to a question.
pub fn answer(core: &Core, about: &About, peer: &Peer, question: ControlRequest) -> Vec<u8> {
    match question {
        ControlRequest::Status => frames_of(status::snapshot(core, about)),
        ControlRequest::Volumes => frame(&match core.cluster.get() {
            Some(cluster) => ControlReply::Volumes(cluster.volumes(&core.store)),
            None => ControlReply::Error("this server is in no cluster, and has no volumes".to_owned()),
        }),
        ControlRequest::SetPolicy { .. } if !is_operator(peer) => {
            frame(&ControlReply::Error("only the server's user and root may set the policy".to_owned()))
        }
        ControlRequest::SetShadow { .. } | ControlRequest::Record { .. } if !is_operator(peer) => {
            let reason = "only the server's user and root may have policies tried and decisions recorded";
            frame(&ControlReply::Error(reason.to_owned()))
        }
        ControlRequest::SetShadow { policy } => {
            let spec = policy.map(|text| text.parse::<PolicySpec>().map_err(|error| error.to_string())).transpose();
            let set = spec.and_then(|spec| {
                let is_in_cluster = core.cluster.get().is_some();
                core.shadowing.set(spec, &core.policy, &core.jobs, (&core.targets, &core.prefixes), is_in_cluster)
            });
            frame(&set.map_or_else(ControlReply::Error, |()| ControlReply::Done))
        }
        ControlRequest::Record { to } => {
            let done = match to {
                Some((path, for_ns)) => {
                    core.recording.begin((&path, Nanos(for_ns)), &core.policy, |policy| follow(core, policy))
                }
                None => core.recording.end(&core.policy, |policy| follow(core, policy)),
            };
            frame(&done.map_or_else(ControlReply::Error, |()| ControlReply::Done))
        }
        ControlRequest::Backup { .. } if !is_operator(peer) => {
            frame(&ControlReply::Error("only the server's user and root may copy the metadata".to_owned()))
        }
        ControlRequest::Backup { dir, id } => frame(&core.backups.ask(Wish { dir: dir.into(), id })),
        ControlRequest::Reload { .. } if !is_operator(peer) => {
            frame(&ControlReply::Error("only the server's user and root may change the cluster".to_owned()))
        }
        ControlRequest::Reload { epoch, fingerprint, is_trial } => {
            let none = || ControlReply::Error("the server is in no cluster".to_owned());
            let reload = |cluster: &Cluster| cluster.reload(Reload { epoch, fingerprint, is_trial });
            let reply = core.cluster.get().map(|cluster| reload(cluster).unwrap_or_else(ControlReply::Error));
            frame(&reply.unwrap_or_else(none))
        }
        ControlRequest::MoveVolume { .. } if !is_operator(peer) => {
            frame(&ControlReply::Error("only the server's user and root may move volumes".to_owned()))
        }
        ControlRequest::MoveVolume { name, to, id } => frame(&match core.cluster.get() {
            Some(cluster) => cluster.move_volume(&name, to, id).unwrap_or_else(ControlReply::Error),
            None => ControlReply::Error("this server is in no cluster, and has no volumes".to_owned()),
        }),
        ControlRequest::CheckObjects { .. } if !is_operator(peer) => {
            frame(&ControlReply::Error("only the server's user and root may have objects looked at".to_owned()))
        }
        ControlRequest::CheckObjects { id } => frame(&match core.cluster.get() {
            Some(cluster) => cluster.inspection.ask(id),
            None => ControlReply::Error("this server is in no cluster, and has no objects of others' files".to_owned()),
        }),
        ControlRequest::SetPlacement { .. } if !is_operator(peer) => {
            frame(&ControlReply::Error("only the server's user and root may set how files are placed".to_owned()))
        }
        ControlRequest::SetPlacement { placement } => {
            frame(&set_placement(core, placement.as_deref()).unwrap_or_else(ControlReply::Error))
        }
        ControlRequest::Placement => frame(&match core.cluster.get() {
            Some(cluster) => ControlReply::Placement(Box::new(cluster.placement())),
            None => ControlReply::Error(NOT_PLACED.to_owned()),
        }),
        ControlRequest::Ledger => frame(&match core.cluster.get() {
            Some(cluster) => cluster.port.ledger().unwrap_or_else(ControlReply::Error),
            None => ControlReply::Error("this server is in no cluster, and nobody is owed coupons".to_owned()),
        }),
        ControlRequest::Applications if !is_operator(peer) => frame(&ControlReply::Error(
            "only the server's user and root may see what is known of applications".to_owned(),
        )),
        ControlRequest::Applications => frame(&ControlReply::Applications(histories::known(&core.targets))),
        ControlRequest::Members => frame(&match core.cluster.get() {
            Some(cluster) => ControlReply::Members(cluster.members()),
            None => ControlReply::Error("this server is in no cluster".to_owned()),
        }),
        ControlRequest::SetPolicy { policy, draw, only_here, instead_of } => {
            let set = set_policy(core, (&policy, draw.as_deref()), only_here, instead_of.as_deref());
            frame(&set.unwrap_or_else(ControlReply::Error))
        }
    }
}

/// A status without its jobs, and then these, some to a frame.
fn frames_of(mut status: Status) -> Vec<u8> {
    let jobs = std::mem::take(&mut status.jobs);
    let mut frames = frame(&ControlReply::Status(Box::new(status)));
    let mut chunks = jobs.chunks(JOBS_IN_FRAME).peekable();
    loop {
        let jobs = chunks.next().unwrap_or_default().to_vec();
        let is_last = chunks.peek().is_none();
        frames.extend_from_slice(&frame(&ControlReply::Jobs { jobs, is_last }));
        if is_last {
            return frames;
        }
    }
}

/// A key is the owner's, so who proved it may do what the owner may.
pub fn is_operator(peer: &Peer) -> bool {
    match peer {
        Peer::Local(credentials) | Peer::Munged(credentials) => {
            credentials.uid == 0 || credentials.uid == rustix::process::geteuid().as_raw()
        }
        Peer::Keyed(_) => true,
    }
}

fn set_policy(
    core: &Core,
    (spec, draw): (&str, Option<&str>),
    only_here: bool,
    instead_of: Option<&str>,
) -> Result<ControlReply, String> {
    let spec: PolicySpec = spec.parse().map_err(|e: isonomia_policy::ParsePolicyError| e.to_string())?;
    let draw: Option<Draw> =
        draw.map(str::parse).transpose().map_err(|e: isonomia_policy::ParseDrawError| e.to_string())?;
    let found = warnings(core, &spec, draw);
    let mut reply = match core.cluster.get() {
        None => {
            check_alone(&spec)?;
            apply_instead(core, spec, draw, instead_of)
        }
        Some(_) if !is_instead_of(&core.policy.lock().unwrap_or_else(PoisonError::into_inner), instead_of) => {
            Err(CHANGED.to_owned())
        }
        Some(cluster) if only_here => Ok(cluster.standing.deviate(|| apply(core, spec, draw))),
        Some(cluster) => cluster.set_policy(core, &spec, draw),
    };
    if let Ok(ControlReply::Policy { warnings, .. }) = &mut reply {
        *warnings = found;
    }
    reply
}

/// What is strange about a policy that is to be followed with this draw, or with the one that is, as far as this server can tell.
fn warnings(core: &Core, spec: &PolicySpec, draw: Option<Draw>) -> Vec<String> {
    let own = || core.policy.lock().unwrap_or_else(PoisonError::into_inner).draw;
    let draw = draw.or(core.cluster.get().and_then(|cluster| cluster.standing.draw())).unwrap_or_else(own);
    if spec.is_strict() && draw == Draw::Lottery {
        return vec![
            "shares are strict only with the draw virtual-time: a lottery keeps nothing free for a job".to_owned(),
        ];
    }
    let Some(rates) = spec.rates() else { return Vec::new() };
    let mut warnings: Vec<String> = rates.reached().err().iter().map(ToString::to_string).collect();
    for rule in &rates.rules {
        let Some(path) = &rule.scope.path else { continue };
        let is_deep = path.matches('/').count() > 1;
        if core.cluster.get().is_some() && is_deep {
            warnings.push(format!(
                "rule {}: {path} is deeper than a volume: of files that are spread over several servers, only what their \
                 volume's server has is known to lie there",
                rule.label()
            ));
        }
        let caller = Caller::ROOT;
        let found = core.store.namespace().access(&caller, Ino::ROOT, &path.as_bytes()[1..], 0);
        if matches!(found, Err(StoreError::NotFound | StoreError::NotDirectory)) {
            warnings.push(format!("rule {} selects nothing at present: there is no directory {path}", rule.label()));
        }
    }
    warnings
}

/// Of a server alone.
const NOT_PLACED: &str = "this server is in no cluster: its files are on its own targets, round-robin";

fn set_placement(core: &Core, placement: Option<&str>) -> Result<ControlReply, String> {
    let placement: Option<Placement> =
        placement.map(str::parse).transpose().map_err(|error: BadPlacement| error.to_string())?;
    let cluster = core.cluster.get().ok_or(NOT_PLACED)?;
    Ok(ControlReply::PlacementSet { version: cluster.set_placement(placement)? })
}

/// Somebody else was faster.
const CHANGED: &str = "the policy has changed meanwhile: look again";

fn is_instead_of(policy: &Policy, expected: Option<&str>) -> bool {
    expected.is_none_or(|expected| expected == policy.spec.to_string())
}

/// Whether a server that is in no cluster can follow `spec`.
///
/// # Errors
/// It cannot: nobody decides.
pub fn check_alone(spec: &PolicySpec) -> Result<(), String> {
    // Under coflow each target has an order of its own.
    let allocated = spec.allocated().filter(|_| Plan::is_needed(spec));
    allocated.map_or(Ok(()), |allocated| {
        let word = allocated.method.word();
        Err(format!(
            "{word} is decided by a cluster's controller, and this server is in no cluster (one server is enough: \
             isonomia serve --cluster FILE --name NAME)"
        ))
    })
}

/// Has every target follow this policy from now on; the draw stays if none is given.
pub fn apply(core: &Core, spec: PolicySpec, draw: Option<Draw>) -> ControlReply {
    apply_instead(core, spec, draw, None).unwrap_or_else(ControlReply::Error)
}

/// The same, only instead of a policy, if one is given.
fn apply_instead(
    core: &Core,
    spec: PolicySpec,
    draw: Option<Draw>,
    instead_of: Option<&str>,
) -> Result<ControlReply, String> {
    // Locked to the end: a job that joins meanwhile is announced to the new arbiters (`Core::announce`).
    let mut policy = core.policy.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_instead_of(&policy, instead_of) {
        return Err(CHANGED.to_owned());
    }
    policy.spec = spec;
    policy.draw = draw.unwrap_or(policy.draw);
    policy.io_node = core.phases.begin(&policy.spec, core.cluster.get().map(Cluster::place_of_coordinator));
    follow(core, &policy);
    tracing::info!(policy = %policy.spec, draw = %policy.draw, "policy set");
    Ok(ControlReply::Policy {
        policy: policy.spec.to_string(),
        draw: policy.draw.to_string(),
        version: None,
        warnings: Vec::new(),
    })
}

/// Has arbiters made anew, by `policy`, which is locked until that is done.
pub fn follow(core: &Core, policy: &Policy) {
    // First, so that what comes from now on is judged for the new rules.
    core.shadowing.name_prefixes(&core.targets, &core.prefixes, &policy.spec);
    let (now, jobs) = (clock::now(), core.jobs.all());
    let jobs: Vec<_> = jobs.iter().map(|job| (job.id, job.info())).collect();
    for target in &core.targets {
        target.set_policy(now, policy, &jobs).into_iter().for_each(|chunk| core.write_past_arbiter(target, chunk));
    }
    core.rates.begin(&core.targets);
    if let Some(cluster) = core.cluster.get() {
        cluster.port.arbiters_are_new();
    }
    // A worker that sleeps until the old policy's next turn has to ask the new one.
    core.ring();
}
