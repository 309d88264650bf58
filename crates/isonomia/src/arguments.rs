//! Every subcommand and option, once: parsing, `--help`, and `docs/reference/cli.md` come from here.

mod allocate;
mod backup;
mod cluster;
mod coupons;
mod device;
mod fsck;
mod number;
mod placement;
mod plan;
mod policy;
mod record;
mod reproduce;
mod rule;
mod stripe;
mod volume;
mod whole;

pub use allocate::AllocateOptions;
pub use backup::BackupOptions;
pub use cluster::{CheckOptions, ClusterCommand, ClusterOptions, DownOptions, MembersOptions, UpOptions};
pub use coupons::{CouponsOptions, RegretOptions};
pub use device::{DeviceCommand, DeviceOptions, ProfileOptions, UnlimitOptions};
pub use fsck::FsckOptions;
pub use placement::{How, PlacementCommand, PlacementOptions};
pub use plan::{PackOptions, PlanCommand, PlanOptions, ScheduleOptions};
pub use policy::{PolicyCommand, PolicyOptions};
pub use record::RecordOptions;
pub use reproduce::{Papers, ReproduceOptions};
pub use rule::{RuleCommand, RuleOptions};
pub use stripe::{LocationOptions, StripeCommand, StripeGetOptions, StripeOptions, StripeSetOptions};
pub use volume::{VolumeCommand, VolumeCreateOptions, VolumeListOptions, VolumeMoveOptions, VolumeOptions};
pub use whole::WholeOptions;

use clap::{Args, Parser, Subcommand};
use isonomia_policy::{DepthSpec, Draw, PolicySpec};
use isonomia_proto::setup::{Auth, Integrity};
use isonomia_server::{PageCache, ScrubPeriod};
use isonomia_sim::study::Slice;
use isonomia_transport::address::{Address, Addresses};
use isonomia_transport::handshake::Protection;
use isonomia_transport::owner;
use isonomia_units::{Bytes, Nanos, Rate};
use number::{number, number_from};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

const SECOND: u64 = 1_000_000_000;
/// Longer waits for a server are taken for a slip in the unit.
const TIMEOUT_S_MAX: u64 = 24 * 3600;

/// Fair sharing of HPC storage among jobs.
#[derive(Debug, Parser)]
#[command(name = "isonomia", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "\
Examples:
  isonomia demo                             see what the policies do, in under a minute
  isonomia serve --policy user-then-size-fair
  isonomia run --job sim --nodes 4 -- cp -r results /isonomia/
  isonomia status")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Serve(Box<ServeOptions>),
    Run(RunOptions),
    LinkFlags(LinkFlagsOptions),
    Mount(MountOptions),
    #[command(hide = true)]
    Guard(GuardOptions),
    Unmount(UnmountOptions),
    Fsck(FsckOptions),
    Backup(BackupOptions),
    Status(StatusOptions),
    Top(TopOptions),
    Policy(PolicyOptions),
    Rule(RuleOptions),
    Coupons(CouponsOptions),
    Regret(RegretOptions),
    Cluster(ClusterOptions),
    Volume(VolumeOptions),
    Stripe(StripeOptions),
    Placement(PlacementOptions),
    Plan(PlanOptions),
    Reproduce(ReproduceOptions),
    Demo(DemoOptions),
    Record(RecordOptions),
    Sim(SimOptions),
    Device(DeviceOptions),
    Allocate(AllocateOptions),
}

/// Which server a command talks to.
#[derive(Args, Debug)]
pub struct ServerOptions {
    /// The server's address: unix:PATH or tcp:HOST:PORT; of a cluster several, parted by commas, of which the first that
    /// answers is asked [default: where `isonomia serve` listens by default]
    #[arg(long, env = "ISONOMIA_SERVER", hide_env_values = true, value_name = "ADDR")]
    pub server: Option<Addresses>,
    #[command(flatten)]
    pub reach: ReachOptions,
}

/// What a server is shown, and what is expected of it.
#[derive(Args, Clone, Debug, Default)]
pub struct ReachOptions {
    /// File with the key that a server on TCP asks for; only its owner may be able to read it
    #[arg(long, env = "ISONOMIA_KEY_FILE", hide_env_values = true, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// User, by name or number, who may run the server, besides this user and root
    #[arg(long, env = "ISONOMIA_SERVER_USER", hide_env_values = true, value_name = "USER", value_parser = owner::user)]
    pub server_user: Option<u32>,
    #[command(flatten)]
    pub protection: ProtectionOptions,
}

/// How connections on TCP are protected.
#[derive(Args, Clone, Debug, Default)]
pub struct ProtectionOptions {
    /// Name of the server on TCP; any other one is refused [default: any]
    #[arg(long, env = "ISONOMIA_SERVER_NAME", hide_env_values = true, value_name = "NAME")]
    pub server_name: Option<String>,
    /// What becomes of frames on TCP at least: none, mac (nobody can change them on their way), or encrypted
    /// [default: none on this host, else mac]
    #[arg(long, env = "ISONOMIA_INTEGRITY", hide_env_values = true, value_name = "HOW")]
    pub integrity: Option<Integrity>,
    /// Where the munge daemon of this host listens [default: /run/munge/munge.socket.2]
    #[arg(long, env = "ISONOMIA_MUNGE_SOCKET", hide_env_values = true, value_name = "PATH")]
    pub munge_socket: Option<String>,
}

impl ProtectionOptions {
    /// The same for a client.
    pub fn protection(&self) -> Protection {
        let Self { server_name, integrity, munge_socket } = self.clone();
        Protection { integrity, server_name, munge_socket }
    }
}

/// Serve files, and share the server among jobs by a policy
///
/// The first line on standard output is a JSON object that says where the server listens. SIGINT or SIGTERM ends
/// it: everything acknowledged is written to its directory first. Options override the configuration file.
///
/// The exit code is 3 if another process has the directory, or it is the wrong one, and 4 if the server is to be started
/// anew because its storage failed and takes something again.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia serve                                  files in memory, for programs of this host
  isonomia serve --dir /scratch/isonomia --policy user-then-size-fair
  isonomia serve --config /etc/isonomia.toml
  isonomia serve --listen tcp:0.0.0.0:7788 --key-file ~/.isonomia-key
  isonomia serve --listen tcp:0.0.0.0:7788 --auth munge      all users of a cluster, each as himself
  isonomia serve --cluster /etc/isonomia/cluster.toml --name io01
  isonomia serve --bandwidth 2GiB/s --per-op 20us   a device of that speed, emulated")]
pub struct ServeOptions {
    /// Configuration file (TOML); docs/reference/configuration.md lists its keys
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Cluster file (TOML) that says this server's number, addresses, directory and targets; docs/guides/cluster.md
    /// tells more
    #[arg(long, env = "ISONOMIA_CLUSTER", hide_env_values = true, value_name = "FILE", conflicts_with_all = ["listen", "targets"])]
    pub cluster: Option<PathBuf>,
    /// Replace a process, mostly on another host, that has the server's directory and does not give it up. Before this one
    /// begins it can change nothing any more; it ends with exit code 3
    #[arg(long, requires = "cluster")]
    pub take_over: bool,
    /// Name of this server: which one of the cluster file it is, and what munge credentials are bound to [default: that
    /// of the host, without its domain]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where files are kept; a directory in memory that is removed at the end if not given
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Address to listen on, unix:PATH or tcp:HOST:PORT; may be repeated [default: a socket in a directory
    /// of this user's: in $XDG_RUNTIME_DIR, /run/user/UID, or /tmp, of root in /run]
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<Address>,
    /// Sharing policy, such as fifo, job-fair, user-then-size-fair, coflow, 'tbf{user:ada=1GiB/s}'
    /// [default: user-then-size-fair]
    #[arg(long, value_name = "SPEC")]
    pub policy: Option<PolicySpec>,
    /// How the next request is drawn: virtual-time or lottery [default: virtual-time]
    #[arg(long)]
    pub draw: Option<Draw>,
    /// How clients on TCP prove who they are: key (of the server's user) or munge (each is himself) [default: key]
    #[arg(long, value_name = "HOW")]
    pub auth: Option<Auth>,
    /// Key that clients on TCP must know with --auth key: a file of mode 0600
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Key that the servers of a cluster have in common, for files over several of them: a file of mode 0600
    /// [default: that of --key-file]
    #[arg(long, value_name = "FILE")]
    pub cluster_key_file: Option<PathBuf>,
    /// Where the munge daemon of this host listens [default: where libmunge looks for it]
    #[arg(long, value_name = "PATH")]
    pub munge_socket: Option<String>,
    /// What becomes of frames on TCP at least: none, mac (nobody can change them on their way), or encrypted
    /// [default: none for clients on this host, else mac]
    #[arg(long, value_name = "HOW")]
    pub integrity: Option<Integrity>,
    /// Believe what clients say of user, group, job, nodes and priority: for trials only
    #[arg(long)]
    pub trust_clients: bool,
    /// Worker threads [default: as many as cores, 2 to 8]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number::<u32>(1..=256))]
    pub workers: Option<u32>,
    /// Emulate targets of this bandwidth, such as 1GiB/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub bandwidth: Option<Rate>,
    /// Emulate targets that need this long for each operation, such as 10us
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub per_op: Option<Nanos>,
    /// Requests that a target's device has in service at once at most: auto, or a number up to 256 [default: auto]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub depth: Option<DepthSpec>,
    /// Files and the host's page cache: auto brings what is written to the device all the time, always leaves that to the
    /// host, never goes past it [default: auto]
    #[arg(long, value_name = "WHEN")]
    pub cache: Option<PageCache>,
    /// Number of targets below the directory [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number::<u16>(1..=256))]
    pub targets: Option<u16>,
    /// Targets that a new file is striped over [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number::<u16>(1..=256))]
    pub stripe_count: Option<u16>,
    /// Bytes of a stripe, a multiple of 4KiB [default: 1MiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub stripe_size: Option<Bytes>,
    /// How long a pass over all stored objects in the background takes, such as 7d, or off [default: 7d]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub scrub: Option<ScrubPeriod>,
    /// Serve metrics to Prometheus at this address, such as 127.0.0.1:9180
    #[arg(long, value_name = "ADDR", value_parser = endpoint)]
    pub metrics: Option<SocketAddr>,
    /// Record every decision in FILE, whose content is replaced, for `isonomia sim --replay FILE`; slows the server down, for trials only
    #[arg(long, value_name = "FILE")]
    pub record_decisions: Option<PathBuf>,
}

/// Run a program whose files under /isonomia are the server's
///
/// Who the job is comes from the kernel (user, control group) and from the scheduler's environment (Slurm, PBS, LSF,
/// Flux, Open MPI), which divides the user's share. What the options claim beyond that, but for --job, counts only on a
/// server that was started with --trust-clients.
///
/// The exit code is the command's own; 127 if it is not found, 126 if it cannot be executed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia run -- ls -l /isonomia
  isonomia run -- tar -C /isonomia -xf dataset.tar
  isonomia run --prefix /scratch/fast -- ./simulation --output /scratch/fast/run1
  isonomia run --hints -- mpirun -np 4 ./simulation /isonomia/run1
  isonomia run --job big --nodes 4 -- dd if=/dev/zero of=/isonomia/f bs=1M count=1000
  isonomia run --server tcp:io1:7788 --key-file ~/.isonomia-key -- python3 train.py")]
pub struct RunOptions {
    #[command(flatten)]
    pub server: ServerOptions,
    /// Directory under which files are the server's [default: /isonomia]
    #[arg(long, value_parser = prefix)]
    pub prefix: Option<String>,
    /// Name of the job
    #[arg(long, value_parser = name)]
    pub job: Option<String>,
    /// What the job is called, the same in each run of its application [default: the scheduler's name for it]
    #[arg(long, value_parser = name)]
    pub title: Option<String>,
    /// User that the job is charged to; only a server with --trust-clients believes it
    #[arg(long, value_parser = name)]
    pub user: Option<String>,
    /// Group (account, project) that the job is charged to; only a server with --trust-clients believes it
    #[arg(long, value_parser = name)]
    pub group: Option<String>,
    /// Compute nodes of the job; only a server with --trust-clients believes it
    #[arg(long, value_name = "N", value_parser = number_from(1))]
    pub nodes: Option<u32>,
    /// Priority of the job, larger is more; only a server with --trust-clients believes it
    #[arg(long, value_name = "P", value_parser = number_from(1))]
    pub priority: Option<u32>,
    /// Longest wait for the server before an operation fails, in whole seconds, such as 10s [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = timeout_s)]
    pub timeout: Option<u64>,
    /// The library libisonomia_preload.so [default: searched for near the program isonomia]
    #[arg(long, env = "ISONOMIA_PRELOAD_LIBRARY", hide_env_values = true, value_name = "PATH")]
    pub preload: Option<PathBuf>,
    /// Tell the server what MPI and HDF5 know of files that are created: processes, length; docs/guides/mpi.md tells more
    #[arg(long)]
    pub hints: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Print what links the client into a static program
///
/// A program that is linked with these flags finds the server's files under /isonomia without `isonomia run`; the
/// variables that `isonomia run` sets for its command count. docs/guides/static.md tells more.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  gcc -static program.c -o program $(isonomia link-flags)
  gfortran -static program.f90 -o program $(isonomia link-flags)
  ISONOMIA_SERVER=unix:/run/isonomia.sock ./program /isonomia/output")]
pub struct LinkFlagsOptions {}

/// Mount a server's files, for programs that `isonomia run` does not reach
///
/// Every program works on a mount, also static ones. What it does is done for its own user and charged to its own job,
/// which is found from its environment or control group. The command returns when the mount is ready; it is served by
/// a process in the background until `isonomia unmount`, umount(8), or SIGTERM. A mount whose process was killed is
/// cleared away. docs/guides/mount.md tells more, and how to mount from fstab.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia mount /mnt/isonomia
  isonomia mount -o allow_other /mnt/isonomia     as root: for all users of the host
  isonomia mount -o entry_timeout=1,attr_timeout=1 /mnt/isonomia
  isonomia mount --server tcp:io1:7788 --key-file ~/.isonomia-key ~/files")]
pub struct MountOptions {
    #[command(flatten)]
    pub server: ServerOptions,
    /// Mount options, parted by commas: allow_other, default_permissions (the kernel checks, where it does not
    /// anyway), ro, dev, suid, noexec, attr_timeout=S and entry_timeout=S (seconds that the kernel may keep attributes and
    /// names; 0 if not given), threads=N, timeout=TIME, fsname=NAME (the source that is shown)
    #[arg(short, value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Longest wait for the server before an operation fails, in whole seconds, such as 10s [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = timeout_s)]
    pub timeout: Option<u64>,
    /// Stay in the foreground; a JSON line on standard output says when the mount is ready
    #[arg(short, long)]
    pub foreground: bool,
    /// File for the log of the background process [default: none]
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    pub log: Option<PathBuf>,
    /// Serve in the background: how the program starts itself
    #[arg(long, hide = true)]
    pub background: bool,
    /// Where to mount: a directory
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Stand guard over a mount: how `isonomia mount` starts this program
#[derive(Args, Debug)]
pub struct GuardOptions {
    /// The process that serves the mount
    pub pid: u32,
}

/// End a mount
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia unmount /mnt/isonomia
  isonomia unmount --lazy /mnt/isonomia           also while programs use it: it ends with the last of them")]
pub struct UnmountOptions {
    /// Detach the mount at once, even if programs use it
    #[arg(short, long)]
    pub lazy: bool,
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// What mount(8) says when it is to mount the type `fuse.isonomia`: see mount(8), EXTERNAL HELPERS
#[derive(Debug, Parser)]
#[command(name = "mount.fuse.isonomia", version)]
pub struct HelperArguments {
    /// The server's address; `isonomia` or `none` for where it listens by default
    pub source: String,
    /// Where to mount
    pub dir: PathBuf,
    /// Mount options
    #[arg(short)]
    pub options: Vec<String>,
    /// Do everything but mounting
    #[arg(short)]
    pub fake: bool,
    /// Without effect: no mtab is written
    #[arg(short)]
    pub no_mtab: bool,
    /// Without effect
    #[arg(short)]
    pub sloppy: bool,
    /// Without effect
    #[arg(short)]
    pub verbose: bool,
    /// Without effect: the type
    #[arg(short)]
    pub type_of: Option<String>,
}

/// Show who gets what: every job's share due and received, throughput, queue, latency
///
/// Asked of any server of a cluster it shows all of them, those away too, and jobs over all of them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia status
  isonomia status --server io03                   one server of the cluster, in detail
  isonomia status --json | jq '.jobs[] | {job, share_due, share_received}'
  isonomia status --server tcp:io1:7788 --key-file ~/.isonomia-key")]
pub struct StatusOptions {
    #[command(flatten)]
    pub whole: WholeOptions,
    /// Print the state as JSON
    #[arg(long)]
    pub json: bool,
}

/// Show who gets what, live; q ends it
///
/// On a terminal the screen is redrawn; elsewhere the tables are printed once each interval.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia top
  isonomia top --interval 200ms
  isonomia top --server io03
  isonomia top --count 3 > shares.txt")]
pub struct TopOptions {
    #[command(flatten)]
    pub whole: WholeOptions,
    /// Time between two looks, 50ms to 1h
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = interval)]
    pub interval: Nanos,
    /// Stop after so many looks
    #[arg(long, value_name = "N", value_parser = number::<u64>(1..=u64::MAX))]
    pub count: Option<u64>,
}

/// See what the policies do: two real jobs compete, in under a minute, without root
///
/// A server with one emulated device is started. A small job (1 node, 1 process) and a large one (4 nodes, 4
/// processes) write to it with dd through `isonomia run`: first each alone, then both under fifo, job-fair and
/// size-fair, switched while the server runs, which trusts what they say of themselves. A table is printed; a plot of throughput over time (PNG and SVG)
/// and the raw data (CSV and JSON) are saved for each policy. With --servers the same bandwidth is that of several
/// servers together, and every file is striped over all of them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia demo
  isonomia demo --servers 4                  the same over a cluster of four servers
  isonomia demo --out /tmp/demo --seconds 15")]
pub struct DemoOptions {
    /// Directory for plots and data
    #[arg(long, default_value = "out/demo", value_name = "DIR")]
    pub out: PathBuf,
    /// Servers that have the bandwidth together, 1 to 16
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = number::<u16>(1..=16))]
    pub servers: u16,
    /// Seconds for each of the three policies, 3 to 600
    #[arg(long, default_value_t = 10, value_name = "S", value_parser = number::<u64>(3..=600))]
    pub seconds: u64,
}

/// Simulate a scenario: the same policies, in virtual time
///
/// A scenario is a TOML file that describes targets and jobs; docs/guides/simulation.md explains it. Who goes next
/// is decided by the code that the live server runs. The same file and seed give the same result. A `[sweep]` in the
/// file is run on all cores; with --out its points are kept as they are done, and a later run goes on from there.
/// Tasks of a Slurm array that share a directory divide a sweep among them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia sim scenario.toml
  isonomia sim scenario.toml --json | jq '.jobs[] | {job, share, slowdown}'
  isonomia sim scenario.toml --seed 7 --out out/run7
  isonomia sim sweep.toml --out /shared/sweep --slice 0/8
  isonomia sim --replay decisions.jsonl
  isonomia sim --trace decisions.jsonl --policy job-fair --out out/what-if
  isonomia sim --trace decisions.io01.jsonl --trace decisions.io02.jsonl")]
pub struct SimOptions {
    /// The scenario (TOML)
    #[arg(value_name = "SCENARIO", required_unless_present_any = ["replay", "trace"])]
    pub scenario: Option<PathBuf>,
    /// Put the decisions that a server recorded to the same policies again, and say whether they decide the same
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "out", "seed", "slice"])]
    pub replay: Option<PathBuf>,
    /// Simulate what a server recorded, and say how far shares and times are off. Given once for each server of a cluster, that is simulated as a
    /// whole, with the targets of all
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "replay", "seed", "slice"])]
    pub trace: Vec<PathBuf>,
    /// With --trace: another policy than the one that was recorded
    #[arg(long, value_name = "SPEC", requires = "trace", conflicts_with = "scenario")]
    pub policy: Option<PolicySpec>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Directory for plots and data
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Seed, instead of the one in the scenario
    #[arg(long, value_name = "N", value_parser = number::<u64>(0..=u64::MAX))]
    pub seed: Option<u64>,
    /// Run part I of N of a sweep, from 0 [default: by SLURM_ARRAY_TASK_ID, or all of it]
    #[arg(long, value_name = "I/N", value_parser = slice)]
    pub slice: Option<Slice>,
}

fn slice(text: &str) -> Result<Slice, String> {
    let parts = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    match parts {
        Some((index, count)) if index < count => Ok(Slice { index, count }),
        _ => Err("not a slice (allowed: I/N with I from 0 to N-1, such as 0/8)".to_owned()),
    }
}

fn name(text: &str) -> Result<String, String> {
    match text.len() {
        1..=isonomia_units::NAME_LEN_MAX => Ok(text.to_owned()),
        len => Err(format!("a name of {len} bytes (allowed: 1 to {})", isonomia_units::NAME_LEN_MAX)),
    }
}

fn endpoint(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "not an address (allowed: IP:PORT, such as 127.0.0.1:9180)".to_owned())
}

fn prefix(text: &str) -> Result<String, String> {
    let plain = text.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
    if text.starts_with('/') && plain {
        Ok(text.to_owned())
    } else {
        Err("not a prefix (allowed: an absolute path below /, without . and .. and // and a / at its end)".to_owned())
    }
}

fn timeout_s(text: &str) -> Result<u64, String> {
    let time: Nanos = text.parse().map_err(|e| format!("{e}"))?;
    let seconds = time.0 / SECOND;
    if time.0.is_multiple_of(SECOND) && (1..=TIMEOUT_S_MAX).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("{time} is no time-out (allowed: whole seconds, 1s to {TIMEOUT_S_MAX}s)"))
    }
}

fn interval(text: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|e| format!("{e}"))?;
    if (Nanos::from_millis(50)..=Nanos(3600 * SECOND)).contains(&time) {
        Ok(time)
    } else {
        Err(format!("{time} is no interval (allowed: 50ms to 1h)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
        HelperArguments::command().debug_assert();
    }

    #[test]
    fn times_need_a_sensible_unit() {
        assert_eq!(timeout_s("10s"), Ok(10));
        assert_eq!(timeout_s("2min"), Ok(120));
        for bad in ["30", "1500ms", "0s", "25h"] {
            assert!(timeout_s(bad).is_err_and(|e| e.contains("allowed: whole seconds")), "{bad}");
        }
        assert_eq!(interval("200ms"), Ok(Nanos::from_millis(200)));
        assert!(interval("1ms").is_err());
    }

    #[test]
    fn slices_are_parts_of_a_whole() {
        assert_eq!(slice("2/3"), Ok(Slice { index: 2, count: 3 }));
        for bad in ["", "1", "3/3", "-1/3", "0/0", "a/b"] {
            assert!(slice(bad).is_err_and(|e| e.contains("allowed: I/N")), "{bad}");
        }
    }

    #[test]
    fn prefixes_are_those_the_preload_library_takes() {
        for good in ["/isonomia", "/a/b.c"] {
            assert_eq!(prefix(good).as_deref(), Ok(good));
        }
        for bad in ["", "/", "a", "/a/", "/a//b", "/a/../b", "/."] {
            assert!(prefix(bad).is_err(), "{bad}");
        }
    }
}
