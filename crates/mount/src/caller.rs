//! What `/proc` tells of a process: how it runs, its supplementary groups, and the job it belongs to.

use isonomia_client::{Claims, Process, SchedulerJob, identity};
use std::fs;
use std::io::{self, Read};

/// An environment is read up to here; schedulers set their variables at its beginning or not at all.
const ENVIRONMENT_LEN_MAX: u64 = 1 << 20;

/// The supplementary groups of thread `pid`.
pub fn groups(pid: u32) -> io::Result<Vec<u32>> {
    let status = fs::read(format!("/proc/{pid}/status"))?;
    groups_of_status(&status).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn groups_of_status(status: &[u8]) -> Option<Vec<u32>> {
    let line = status.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"Groups:"))?;
    let line = std::str::from_utf8(line).ok()?;
    line.split_ascii_whitespace().map(|group| group.parse().ok()).collect()
}

/// A field of what `/proc` says of the state of thread `pid`, by its number in proc_pid_stat(5): the third and later ones.
pub fn stat_field(pid: u32, number: usize) -> Option<String> {
    stat_field_of(&fs::read(format!("/proc/{pid}/stat")).ok()?, number)
}

/// The second field is the program's name, in brackets, and may be anything.
fn stat_field_of(stat: &[u8], number: usize) -> Option<String> {
    let end_of_name = stat.iter().rposition(|b| *b == b')')?;
    let fields = std::str::from_utf8(&stat[end_of_name + 1..]).ok()?;
    fields.split_ascii_whitespace().nth(number.checked_sub(3)?).map(str::to_owned)
}

/// What `/proc` says of signals that a thread has not taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// None that it would take.
    None,
    /// One to its process, for whichever thread is the first to take it.
    ToProcess,
    /// One to itself, or it is gone.
    ToThread,
}

/// The signals that thread `pid` has not taken yet.
pub fn signals(pid: u32) -> Signals {
    fs::read(format!("/proc/{pid}/status")).map_or(Signals::ToThread, |status| signals_of_status(&status))
}

fn signals_of_status(status: &[u8]) -> Signals {
    let value = |name: &[u8], radix| {
        let line = status.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(std::str::from_utf8(line).ok()?.trim(), radix).ok()
    };
    let set = |name| value(name, 16).unwrap_or(0);
    let taken = !set(b"SigBlk:");
    match (set(b"SigPnd:") & taken, set(b"ShdPnd:") & taken) {
        (0, 0) => Signals::None,
        (0, _) if value(b"Threads:", 10).is_some_and(|threads| threads > 1) => Signals::ToProcess,
        _ => Signals::ToThread,
    }
}

/// The job that process `pid` of user `uid` belongs to: what its environment says, and what its control group proves. A
/// process that ended meanwhile, or whose environment may not be read, says nothing.
pub fn claims(pid: u32, uid: u32) -> Claims {
    let mut environment = Vec::new();
    if let Ok(file) = fs::File::open(format!("/proc/{pid}/environ")) {
        // What was read before an error counts.
        let _ = file.take(ENVIRONMENT_LEN_MAX).read_to_end(&mut environment);
    }
    let mut claims = claims_of_environment(&environment);
    // It waits for the kernel's answer to what it asked for, so nobody else has its number.
    claims.executable = identity::executable(&pid.to_string());
    claims.proven_job = Process::open(pid).ok().and_then(|process| process.job(uid));
    if claims.job.is_none() && claims.scheduler.is_none() {
        claims.scheduler = claims.proven_job.clone().map(|job| SchedulerJob { job, ..SchedulerJob::default() });
    }
    claims
}

fn claims_of_environment(environment: &[u8]) -> Claims {
    let value = |name: &str| {
        let mut variables = environment.split(|b| *b == 0);
        let value = variables.find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        String::from_utf8(value.to_vec()).ok()
    };
    identity::from_environment(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        for name in ["cat", "a b", ") S 1 (", ""] {
            let stat = format!("4711 ({name}) R 17 63 0");
            let field = |number| stat_field_of(stat.as_bytes(), number);
            assert_eq!((field(3).as_deref(), field(5).as_deref()), (Some("R"), Some("63")), "{name}");
            assert_eq!((field(2), field(7)), (None, None));
        }
        assert_eq!(stat_field_of(b"", 3), None);
        assert_eq!(stat_field(0, 3), None, "a process that this one cannot see");
    }

    #[test]
    fn groups_are_read_from_a_status() {
        let of = |text: &str| groups_of_status(text.as_bytes());
        assert_eq!(of("Name:\tx\nGid:\t5\t5\t5\t5\nGroups:\t4 24 1000 \nNStgid:\t7\n"), Some(vec![4, 24, 1000]));
        assert_eq!(of("Groups:\t\n"), Some(vec![]));
        assert_eq!(of("Groups:\t4 -1\n"), None);
        assert_eq!(of("Name:\tGroups: 0\n"), None, "a process may be called so");
    }

    #[test]
    fn pending_signals_are_read_from_a_status() {
        let of = |threads: u8, [own, shared, blocked]: [u64; 3]| {
            let text =
                format!("Threads:\t{threads}\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n");
            signals_of_status(text.as_bytes())
        };
        assert_eq!(of(1, [0, 0, 0xff]), Signals::None);
        assert_eq!(of(1, [0x200, 0x200, 0x200]), Signals::None, "blocked");
        assert_eq!(of(3, [0x300, 0, 0x200]), Signals::ToThread);
        assert_eq!((of(1, [0, 0x2000, 0]), of(2, [0, 0x2000, 0])), (Signals::ToThread, Signals::ToProcess));
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(signals(own), Signals::None);
        assert_eq!(signals((1 << 22) + 1), Signals::ToThread, "nobody");
    }

    #[test]
    fn a_job_is_found_in_an_environment() {
        let claims = claims_of_environment(b"XSLURM_JOB_ID=1\0SLURM_JOB_ID=71\0SLURM_NNODES=4\0ISONOMIA_PRIORITY=\xff");
        let scheduler = claims.scheduler.unwrap();
        assert_eq!((scheduler.job.as_str(), scheduler.nodes, claims.priority), ("71", Some(4), None));
        assert_eq!(claims_of_environment(b""), Claims::default());
    }

    #[test]
    fn this_process_has_groups_and_no_more_than_it_says() {
        let own = rustix::process::getpid().as_raw_nonzero().get() as u32;
        let mut expected: Vec<u32> = rustix::process::getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect();
        let mut got = groups(own).unwrap();
        expected.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, expected);
    }
}
