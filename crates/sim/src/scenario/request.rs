//! The TOML form of a scenario at request level.

use super::quantity::{Quantity, Word};
use crate::io_profile;
use crate::request::profiled::CHANNELS_MAX;
use crate::request::{
    ChannelTimes, Channels, Device, Job, Lanes, Layout, LoadDependence, Op, Phase, Processors, SLICES_MAX, STREAMS_MAX,
    Scenario, TARGETS_MAX, Target,
};
use crate::source::{self, Document, SourceError};
use isonomia_controller::Plan;
use isonomia_policy::device::profile::DeviceProfile;
use isonomia_policy::exchange::Rule;
use isonomia_policy::{Access, DECIDE_MAX, DECIDE_MIN, DepthSpec, Draw, PolicySpec, Scheme, Tuning};
use isonomia_units::{Bytes, JobInfo, NAME_LEN_MAX, Nanos, Rate};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

/// The longest run, ten years.
const DURATION_MAX: Nanos = Nanos::from_secs(10 * 366 * 86_400);
const SLICE_DEFAULT: Nanos = Nanos::from_millis(100);
/// As in a cluster file that says nothing else.
const DECIDE_DEFAULT: Nanos = Nanos::from_secs(10);
/// The most workers of one target.
const WORKERS_MAX: u32 = CHANNELS_MAX;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Root {
    #[serde(default)]
    #[serde(rename = "level")]
    _level: Option<String>,
    seed: Option<u64>,
    duration: Quantity<Nanos>,
    slice: Option<Quantity<Nanos>>,
    measure_from: Option<Quantity<Nanos>>,
    measure_to: Option<Quantity<Nanos>>,
    policy: Option<PolicySpec>,
    draw: Option<Word<Draw>>,
    exchange: Option<Quantity<Nanos>>,
    exchange_rule: Option<Rule>,
    decide: Option<Quantity<Nanos>>,
    #[serde(default)]
    fair_clock: bool,
    slowdown: Option<bool>,
    nodes: Option<u32>,
    #[serde(default)]
    tuning: TuningText,
    processors: Option<ProcessorsText>,
    target: Vec<TargetText>,
    job: Vec<JobText>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TuningText {
    active_window: Option<Quantity<Nanos>>,
    hold_max: Option<Quantity<Nanos>>,
    lag_free: Option<Quantity<Nanos>>,
    lag_max: Option<Quantity<Nanos>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessorsText {
    count: Option<NonZeroU32>,
    per_request: Quantity<Nanos>,
    bandwidth: Option<Quantity<Rate>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetText {
    name: String,
    count: Option<u32>,
    server: Option<String>,
    bandwidth: Option<Quantity<Rate>>,
    channel_bandwidth: Option<Quantity<Rate>>,
    transit: Option<Quantity<Nanos>>,
    per_op: Option<Quantity<Nanos>>,
    workers: Option<u32>,
    profile: Option<String>,
    access: Option<Access>,
    latency: Option<Quantity<Nanos>>,
    channels: Option<u32>,
    depth: Option<DepthSpec>,
    jitter: Option<f64>,
    policy: Option<PolicySpec>,
    draw: Option<Word<Draw>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobText {
    name: String,
    count: Option<u32>,
    user: Option<String>,
    group: Option<String>,
    nodes: Option<u32>,
    priority: Option<u32>,
    processes: Option<u32>,
    depth: Option<u32>,
    targets: Option<Vec<String>>,
    layout: Option<Layout>,
    start: Option<Quantity<Nanos>>,
    stop: Option<Quantity<Nanos>>,
    iterations: Option<u64>,
    io_profile: Option<String>,
    phase: Option<Vec<PhaseText>>,
    op: Option<Op>,
    sequential: Option<bool>,
    request: Option<Quantity<Bytes>>,
    requests: Option<u64>,
    compute: Option<Quantity<Nanos>>,
    think: Option<Quantity<Nanos>>,
    think_jitter: Option<f64>,
    barrier: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseText {
    op: Option<Op>,
    sequential: Option<bool>,
    request: Option<Quantity<Bytes>>,
    requests: Option<u64>,
    compute: Option<Quantity<Nanos>>,
    think: Option<Quantity<Nanos>>,
    think_jitter: Option<f64>,
    barrier: Option<bool>,
}

/// Reads and checks a scenario; also whether jobs are to be run alone.
pub(super) fn read(path: &Path, document: &Document<'_>, seed: Option<u64>) -> Result<(Scenario, bool), SourceError> {
    let root: Root = document.deserialize()?;
    let duration = root.duration.0;
    if duration == Nanos::ZERO || duration > DURATION_MAX {
        return Err(document.error("duration", format!("{duration} is no run (allowed: more than 0, up to ten years)")));
    }
    let slice = root.slice.map_or(SLICE_DEFAULT, |slice| slice.0);
    if slice == Nanos::ZERO || duration.0.div_ceil(slice.0).saturating_mul(root.job.len() as u64) > SLICES_MAX {
        return Err(document.error("slice", format!("gives too many samples (allowed: {SLICES_MAX} over all jobs)")));
    }
    let measure_from = root.measure_from.map_or(Nanos::ZERO, |from| from.0);
    let measure_to = root.measure_to.map_or(duration, |to| to.0).min(duration);
    if measure_from >= measure_to {
        return Err(document.error("measure_from", "leaves no time to measure (allowed: before measure_to)"));
    }
    let exchange = root.exchange.map(|exchange| exchange.0);
    if exchange == Some(Nanos::ZERO) {
        return Err(document.error("exchange", "is no interval (allowed: more than 0)"));
    }
    let (servers, targets) = read_targets(path, document, &root)?;
    let can_exchange = |target: &Target| {
        matches!(target.policy.scheme(), Scheme::Fair(_) | Scheme::Coflow(_) | Scheme::TokenBucket(_))
    };
    if exchange.is_some() && !targets.iter().all(can_exchange) {
        return Err(document.error("exchange", "needs a policy of shares, such as size-fair, or coflow or tbf"));
    }
    if exchange.is_some() && targets.iter().any(|target| target.policy != targets[0].policy) {
        return Err(document.error("exchange", "needs one policy for all targets"));
    }
    let decide = read_decide(document, root.decide.map(|decide| decide.0), exchange.is_some(), &targets)?;
    let processors = root.processors.as_ref().map(|text| Processors {
        count: text.count.unwrap_or(NonZeroU32::MIN),
        per_request: text.per_request.0,
        bandwidth: text.bandwidth.map(|bandwidth| bandwidth.0),
    });
    let jobs = read_jobs(path, document, &root, &targets, duration)?;
    let scenario = Scenario {
        seed: seed.or(root.seed).unwrap_or(1),
        duration,
        slice,
        measure_from,
        measure_to,
        exchange,
        exchange_rule: root.exchange_rule.unwrap_or_default(),
        decide,
        fair_clock: root.fair_clock,
        processors,
        servers,
        targets,
        jobs,
    };
    Ok((scenario, root.slowdown.unwrap_or(true)))
}

/// How often a controller decides: as often as it is said, or as in a cluster where nothing is said. `exchanges` if servers tell each
/// other how far phases have come, which is another way to have one order.
fn read_decide(
    document: &Document<'_>,
    decide: Option<Nanos>,
    exchanges: bool,
    targets: &[Target],
) -> Result<Option<Nanos>, SourceError> {
    let error = |what: String| Err(document.error("decide", what));
    if let Some(decide) = decide {
        if !(DECIDE_MIN..=DECIDE_MAX).contains(&decide) {
            return error(format!("{decide} is too often or too seldom (allowed: 100ms to 600s)"));
        }
        if !targets.iter().all(|target| Plan::is_needed(&target.policy)) {
            return error("needs a policy that a controller decides, such as gift or coflow".to_owned());
        }
        if exchanges {
            return error("and exchange are two ways to one order (allowed: one of them)".to_owned());
        }
    }
    let is_allocated = |target: &Target| target.policy.allocated().is_some() && Plan::is_needed(&target.policy);
    let decide = decide.or_else(|| targets.iter().any(is_allocated).then_some(DECIDE_DEFAULT));
    if decide.is_some() && targets.iter().any(|target| target.policy != targets[0].policy) {
        return error("needs one policy for all targets".to_owned());
    }
    Ok(decide)
}

fn read_targets(path: &Path, document: &Document<'_>, root: &Root) -> Result<(Vec<String>, Vec<Target>), SourceError> {
    let defaults = Tuning::default();
    let or = |text: &Option<Quantity<Nanos>>, default: Nanos| text.map_or(default, |text| text.0);
    let tuning = Tuning {
        active_window: or(&root.tuning.active_window, defaults.active_window),
        hold_max: or(&root.tuning.hold_max, defaults.hold_max),
        lag_free: or(&root.tuning.lag_free, defaults.lag_free),
        lag_max: or(&root.tuning.lag_max, defaults.lag_max),
        ..defaults
    };
    let mut servers: Vec<String> = Vec::new();
    let mut targets: Vec<Target> = Vec::new();
    for (at, text) in root.target.iter().enumerate() {
        let field = |name: &str| format!("target[{at}].{name}");
        let device = match &text.profile {
            Some(profile) => read_profile(path, document, at, text, profile)?,
            None => read_device(document, at, text)?,
        };
        let server = text.server.clone().unwrap_or_else(|| "server".to_owned());
        let server = servers.iter().position(|known| *known == server).unwrap_or_else(|| {
            servers.push(server);
            servers.len() - 1
        });
        for name in names(document, &format!("target[{at}]"), &text.name, text.count)? {
            if targets.iter().any(|target| target.name == name) {
                return Err(document.error(&field("name"), format!("{name:?} is declared twice")));
            }
            targets.push(Target {
                name,
                server,
                device,
                policy: text.policy.clone().or_else(|| root.policy.clone()).unwrap_or_else(job_fair),
                draw: text.draw.or(root.draw).map_or(Draw::default(), |draw| draw.0),
                tuning,
            });
        }
    }
    if targets.is_empty() || targets.len() > TARGETS_MAX {
        return Err(document.error("target", format!("{} targets (allowed: 1 to {TARGETS_MAX})", targets.len())));
    }
    Ok((servers, targets))
}

fn read_device(document: &Document<'_>, at: usize, text: &TargetText) -> Result<Device, SourceError> {
    let error = |name: &str, what: String| Err(document.error(&format!("target[{at}].{name}"), what));
    let bandwidth = text.bandwidth.map(|text| text.0);
    let channel_bandwidth = text.channel_bandwidth.map(|text| text.0);
    if bandwidth.is_none() && (channel_bandwidth.is_none() || text.latency.is_none()) {
        return error("bandwidth", "is missing: the bytes of all requests in a second, or a profile".to_owned());
    }
    if text.access.is_some() {
        return error("access", "is of a profile, which is not given".to_owned());
    }
    let jitter = text.jitter.unwrap_or(0.0);
    if !(0.0..1.0).contains(&jitter) {
        return error("jitter", format!("{jitter} is no part (allowed: 0 to below 1)"));
    }
    let Some(Quantity(latency)) = text.latency else {
        let Some(bandwidth) = bandwidth else { unreachable!("it was looked for") };
        let workers = text.workers.unwrap_or(1);
        if !(1..=WORKERS_MAX).contains(&workers) {
            return error("workers", format!("{workers} workers (allowed: 1 to {WORKERS_MAX})"));
        }
        let of_latency = [
            ("channels", text.channels.is_some()),
            ("channel_bandwidth", channel_bandwidth.is_some()),
            ("transit", text.transit.is_some()),
            ("depth", text.depth.is_some()),
        ];
        for (name, is_given) in of_latency {
            if is_given {
                return error(name, "is of a device with a latency, which is not given (allowed: workers)".to_owned());
            }
        }
        let per_op = text.per_op.map_or(Nanos::ZERO, |per_op| per_op.0);
        return Ok(Device::Lanes(Lanes { bandwidth, per_op, workers, jitter }));
    };
    for (name, is_given) in [("per_op", text.per_op.is_some()), ("workers", text.workers.is_some())] {
        if is_given {
            return error(name, "is of a device without a latency (allowed: channels and depth)".to_owned());
        }
    }
    if latency == Nanos::ZERO {
        return error("latency", "0 is no latency (allowed: more than 0)".to_owned());
    }
    let channels = text.channels.unwrap_or(0);
    if channels > CHANNELS_MAX {
        return error("channels", format!("{channels} channels (allowed: 1 to {CHANNELS_MAX}, or 0 for any number)"));
    }
    let depth = text.depth.unwrap_or_default();
    let transit = text.transit.map_or(Nanos::ZERO, |transit| transit.0);
    let (count, times) =
        (NonZeroU32::new(channels), [ChannelTimes { transit, latency, bandwidth: channel_bandwidth }; 4]);
    let load_dependence = LoadDependence::NONE;
    Ok(Device::Channels(Channels { count, times, load_dependence, bandwidth, jitter, depth }))
}

/// The device that `isonomia device profile` measured: as many channels as it served at once.
fn read_profile(
    path: &Path,
    document: &Document<'_>,
    at: usize,
    text: &TargetText,
    profile: &str,
) -> Result<Device, SourceError> {
    let error = |name: &str, what: String| document.error(&format!("target[{at}].{name}"), what);
    let stated = [
        ("bandwidth", text.bandwidth.is_some()),
        ("per_op", text.per_op.is_some()),
        ("workers", text.workers.is_some()),
        ("latency", text.latency.is_some()),
        ("channels", text.channels.is_some()),
        ("channel_bandwidth", text.channel_bandwidth.is_some()),
        ("transit", text.transit.is_some()),
    ];
    if let Some((name, _)) = stated.into_iter().find(|(_, is_stated)| *is_stated) {
        return Err(error(name, "is in the profile (allowed: access, depth and jitter)".to_owned()));
    }
    let jitter = text.jitter.unwrap_or(0.0);
    if !(0.0..1.0).contains(&jitter) {
        return Err(error("jitter", format!("{jitter} is no part (allowed: 0 to below 1)")));
    }
    let file = path.parent().unwrap_or(Path::new("")).join(profile);
    let found: DeviceProfile = Document::parse(&file, &source::read(&file)?)?.deserialize()?;
    let access = text.access.unwrap_or(Access::ReadRandom);
    let depth = text.depth.unwrap_or_default();
    let channels = Channels::of_profile(&found, access, text.access.is_some(), jitter, depth);
    channels.map(Device::Channels).ok_or_else(|| {
        let measured: Vec<&str> = found.costs.keys().map(|access| access.name()).collect();
        let what = format!("{} was not measured (allowed: {})", access.name(), measured.join(", "));
        error("access", what)
    })
}

fn job_fair() -> PolicySpec {
    "job-fair".parse().expect("a policy")
}

/// `name`, or `name-0`, `name-1` … if there are several.
fn names(document: &Document<'_>, entry: &str, name: &str, count: Option<u32>) -> Result<Vec<String>, SourceError> {
    if name.is_empty() || name.len() > NAME_LEN_MAX - 12 {
        return Err(document.error(&format!("{entry}.name"), format!("is empty or longer than {}", NAME_LEN_MAX - 12)));
    }
    match count {
        None => Ok(vec![name.to_owned()]),
        Some(count) if (1..=STREAMS_MAX as u32).contains(&count) => {
            Ok((0..count).map(|number| format!("{name}-{number}")).collect())
        }
        Some(count) => {
            Err(document.error(&format!("{entry}.count"), format!("{count} of them (allowed: 1 to {STREAMS_MAX})")))
        }
    }
}

fn read_jobs(
    path: &Path,
    document: &Document<'_>,
    root: &Root,
    targets: &[Target],
    duration: Nanos,
) -> Result<Vec<Job>, SourceError> {
    let by_name: BTreeMap<&str, usize> = targets.iter().enumerate().map(|(at, t)| (t.name.as_str(), at)).collect();
    let mut jobs: Vec<Job> = Vec::new();
    let mut streams = 0u64;
    for (at, text) in root.job.iter().enumerate() {
        let field = |name: &str| format!("job[{at}].{name}");
        let nodes = text.nodes.unwrap_or(1);
        if nodes == 0 || root.nodes.is_some_and(|machine| nodes > machine) {
            let machine = root.nodes.map_or_else(|| "any number".to_owned(), |nodes| nodes.to_string());
            return Err(
                document.error(&field("nodes"), format!("{nodes} nodes (allowed: 1 to the machine's, {machine})"))
            );
        }
        let priority = text.priority.unwrap_or(1);
        if priority == 0 {
            return Err(document.error(&field("priority"), "0 is no priority (allowed: at least 1)"));
        }
        let (processes, depth) = (text.processes.unwrap_or(1), text.depth.unwrap_or(1));
        streams += u64::from(processes) * u64::from(depth) * u64::from(text.count.unwrap_or(1));
        if processes == 0 || depth == 0 || streams > STREAMS_MAX as u64 {
            let what = format!(
                "{processes} processes with {depth} requests each (allowed: at least 1, and together \
                                with the jobs above at most {STREAMS_MAX} requests)"
            );
            return Err(document.error(&field("processes"), what));
        }
        let chosen = match &text.targets {
            None => (0..targets.len()).collect(),
            Some(names) if names.is_empty() => return Err(document.error(&field("targets"), "names no target")),
            Some(names) => {
                let find = |name: &String| {
                    let undeclared = || document.error(&field("targets"), format!("{name:?} is not declared"));
                    by_name.get(name.as_str()).copied().ok_or_else(undeclared)
                };
                names.iter().map(find).collect::<Result<Vec<usize>, SourceError>>()?
            }
        };
        let start = text.start.map_or(Nanos::ZERO, |start| start.0);
        let stop = text.stop.map_or(duration, |stop| stop.0);
        if start >= stop || start >= duration {
            return Err(document.error(&field("start"), format!("{start} is not before the job's stop or the end")));
        }
        let phases = read_phases(path, document, at, text)?;
        let is_endless = text.phase.is_none() && text.io_profile.is_none() && text.requests.is_none();
        let iterations = if is_endless { None } else { Some(text.iterations.unwrap_or(1)) };
        if iterations == Some(0) {
            return Err(document.error(&field("iterations"), "0 is no number of iterations (allowed: at least 1)"));
        }
        for name in names(document, &format!("job[{at}]"), &text.name, text.count)? {
            if jobs.iter().any(|job| *job.info.name == name) {
                return Err(document.error(&field("name"), format!("{name:?} is declared twice")));
            }
            let user = text.user.as_deref().unwrap_or("user");
            let group = text.group.as_deref().unwrap_or("group");
            jobs.push(Job {
                info: JobInfo { nodes, priority, ..JobInfo::new(&name, user, group) },
                processes,
                depth,
                targets: chosen.clone(),
                layout: text.layout.unwrap_or_default(),
                phases: phases.clone(),
                iterations,
                start,
                stop,
            });
        }
    }
    if jobs.is_empty() {
        return Err(document.error("job", "no job is declared"));
    }
    Ok(jobs)
}

fn read_phases(path: &Path, document: &Document<'_>, at: usize, text: &JobText) -> Result<Vec<Phase>, SourceError> {
    let single = PhaseText {
        op: text.op,
        sequential: text.sequential,
        request: text.request,
        requests: text.requests,
        compute: text.compute,
        think: text.think,
        think_jitter: text.think_jitter,
        barrier: text.barrier,
    };
    let has_single = text.op.is_some() || text.request.is_some() || text.requests.is_some();
    let ways = u32::from(text.io_profile.is_some()) + u32::from(text.phase.is_some()) + u32::from(has_single);
    if ways > 1 {
        let what = "says in several ways what the job does (allowed: one of op/request/requests, phase, io_profile)";
        return Err(document.error(&format!("job[{at}]"), what));
    }
    if let Some(profile) = &text.io_profile {
        if text.iterations.is_some_and(|iterations| iterations > 1) {
            return Err(document.error(&format!("job[{at}].iterations"), "a profile is gone through once"));
        }
        return io_profile::load(&path.parent().unwrap_or(Path::new("")).join(profile));
    }
    match &text.phase {
        Some(phases) if phases.is_empty() => Err(document.error(&format!("job[{at}].phase"), "lists no phase")),
        Some(phases) => {
            let read = |(index, phase)| read_phase(document, &format!("job[{at}].phase[{index}]"), phase, true);
            phases.iter().enumerate().map(read).collect()
        }
        None => Ok(vec![read_phase(document, &format!("job[{at}]"), &single, false)?]),
    }
}

fn read_phase(document: &Document<'_>, entry: &str, text: &PhaseText, has_end: bool) -> Result<Phase, SourceError> {
    let field = |name: &str| format!("{entry}.{name}");
    let op = text.op.unwrap_or_default();
    let request = match (op, text.request) {
        (Op::Metadata, None) => Bytes(0),
        (Op::Metadata, Some(_)) => return Err(document.error(&field("request"), "metadata operations have no bytes")),
        (_, None) => return Err(document.error(&field("request"), "is missing: the bytes of one request")),
        (_, Some(Quantity(Bytes(0)))) => return Err(document.error(&field("request"), "0 bytes are no request")),
        (_, Some(request)) => request.0,
    };
    if text.requests == Some(0) || (has_end && text.requests.is_none()) {
        return Err(document.error(&field("requests"), "is missing or 0 (allowed: how many each process issues)"));
    }
    let think_jitter = text.think_jitter.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&think_jitter) {
        return Err(document.error(&field("think_jitter"), format!("{think_jitter} is no part (allowed: 0 to 1)")));
    }
    Ok(Phase {
        compute: text.compute.map_or(Nanos::ZERO, |compute| compute.0),
        not_before: Nanos::ZERO,
        op,
        is_sequential: text.sequential.unwrap_or(false),
        request,
        requests: text.requests,
        think: text.think.map_or(Nanos::ZERO, |think| think.0),
        think_jitter,
        barrier: text.barrier.unwrap_or(false),
    })
}
