//! Who the job is, from environment variables: Isonomia's own, which options set, and the schedulers'.
//!
//! A pure function of the environment. It only states what the variables claim; servers decide what to believe.
//! Sources: the manual pages `sbatch(1)`, `qsub(1B)`, `bsub(1)`, `flux-environment(7)`, `qsub(1)` of Grid Engine,
//! and `mpirun(1)` of Open MPI, each under "environment variables".

use crate::{Claims, SchedulerJob};
use isonomia_units::NAME_LEN_MAX;

/// Name of the job, as an option gives it.
pub const JOB: &str = "ISONOMIA_JOB";
/// What the job is called, the same in each run of its application.
pub const TITLE: &str = "ISONOMIA_TITLE";
/// Name of the user.
pub const USER: &str = "ISONOMIA_USER";
/// Name of the group (account, project).
pub const GROUP: &str = "ISONOMIA_GROUP";
/// Compute nodes, at least 1.
pub const NODES: &str = "ISONOMIA_NODES";
/// Priority, at least 1.
pub const PRIORITY: &str = "ISONOMIA_PRIORITY";

/// Where a job has its title from.
const TITLES: [&str; 5] = [TITLE, "SLURM_JOB_NAME", "PBS_JOBNAME", "LSB_JOBNAME", "FLUX_JOB_NAME"];

/// The program that process `pid` runs, `self` for this one, without its directory; nothing if that cannot be told.
pub fn executable(pid: &str) -> Option<String> {
    let path = rustix::fs::readlink(format!("/proc/{pid}/exe"), Vec::new()).ok()?;
    let path = path.to_str().ok()?;
    let name = path.strip_suffix(" (deleted)").unwrap_or(path).rsplit('/').next()?;
    is_name(name).then(|| name.to_owned())
}

/// Whether a server takes it for a name.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_LEN_MAX && !text.chars().any(char::is_control)
}

/// What the environment claims; `get` gives a variable's value. Empty variables count as absent, and so do
/// numbers that are not positive integers.
pub fn from_environment(get: impl Fn(&str) -> Option<String>) -> Claims {
    let environment = Environment(&get);
    Claims {
        job: environment.text(JOB),
        user: environment.text(USER),
        group: environment.text(GROUP),
        nodes: environment.number(NODES),
        priority: environment.number(PRIORITY),
        scheduler: scheduler(&environment),
        on_behalf_of: None,
        title: environment.first(&TITLES).filter(|title| is_name(title)),
        executable: None,
        proven_job: None,
    }
}

/// The scheduler's job. An MPI launcher inside a scheduler's allocation is a step of that job, so Open MPI
/// comes last.
fn scheduler(environment: &Environment) -> Option<SchedulerJob> {
    [slurm, pbs, lsf, flux, sge, openmpi].iter().find_map(|scheduler| scheduler(environment))
}

fn slurm(environment: &Environment) -> Option<SchedulerJob> {
    let job = environment.first(&["SLURM_JOB_ID", "SLURM_JOBID"])?;
    Some(SchedulerJob {
        scheduler: "slurm".into(),
        job: within(environment.text("SLURM_CLUSTER_NAME"), job),
        nodes: environment.number("SLURM_JOB_NUM_NODES").or_else(|| environment.number("SLURM_NNODES")),
        account: environment.text("SLURM_JOB_ACCOUNT"),
    })
}

/// The server's name is part of a PBS job's own (`1234.server`), and so is the index of an array job.
fn pbs(environment: &Environment) -> Option<SchedulerJob> {
    Some(SchedulerJob {
        scheduler: "pbs".into(),
        job: environment.text("PBS_JOBID")?,
        nodes: environment.number("PBS_NUM_NODES"),
        account: environment.first(&["PBS_ACCOUNT", "PBS_PROJECT"]),
    })
}

fn lsf(environment: &Environment) -> Option<SchedulerJob> {
    let id = environment.text("LSB_JOBID")?;
    // Index 0 says that the job is no array.
    let job = match environment.number("LSB_JOBINDEX") {
        Some(index) => format!("{id}[{index}]"),
        None => id,
    };
    // `hostA 4 hostB 4`: pairs of a host and its slots.
    let hosts = environment.text("LSB_MCPU_HOSTS").map(|pairs| pairs.split_whitespace().count() / 2);
    Some(SchedulerJob {
        scheduler: "lsf".into(),
        job: within(environment.text("LSF_CLUSTER_NAME"), job),
        nodes: hosts.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
        account: environment.text("LSB_PROJECT_NAME"),
    })
}

fn flux(environment: &Environment) -> Option<SchedulerJob> {
    Some(SchedulerJob {
        scheduler: "flux".into(),
        job: environment.text("FLUX_JOB_ID")?,
        nodes: environment.number("FLUX_JOB_NNODES"),
        account: None,
    })
}

/// Grid Engine's `JOB_ID` is too common a name to be believed without a variable of Grid Engine's own.
fn sge(environment: &Environment) -> Option<SchedulerJob> {
    environment.first(&["SGE_ROOT", "SGE_CLUSTER_NAME"])?;
    let id = environment.text("JOB_ID")?;
    let job = match environment.number("SGE_TASK_ID") {
        Some(task) => format!("{id}.{task}"),
        None => id,
    };
    Some(SchedulerJob {
        scheduler: "sge".into(),
        job: within(environment.text("SGE_CLUSTER_NAME"), job),
        nodes: environment.number("NHOSTS"),
        account: environment.text("SGE_ACCOUNT"),
    })
}

fn openmpi(environment: &Environment) -> Option<SchedulerJob> {
    let job = environment.first(&["OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"])?;
    let ranks = environment.number("OMPI_COMM_WORLD_SIZE");
    let ranks_per_node = environment.number("OMPI_COMM_WORLD_LOCAL_SIZE");
    Some(SchedulerJob {
        scheduler: "openmpi".into(),
        job,
        nodes: ranks.zip(ranks_per_node).map(|(all, local)| all.div_ceil(local)),
        account: None,
    })
}

fn within(cluster: Option<String>, job: String) -> String {
    match cluster {
        Some(cluster) => format!("{cluster}/{job}"),
        None => job,
    }
}

struct Environment<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Environment<'_> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn first(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.text(name))
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.text(name)?.parse().ok().filter(|n| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(variables: &[(&str, &str)]) -> Claims {
        from_environment(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    fn expected(scheduler: &str, job: &str, nodes: Option<u32>, account: Option<&str>) -> Option<SchedulerJob> {
        let account = account.map(str::to_owned);
        Some(SchedulerJob { scheduler: scheduler.into(), job: job.into(), nodes, account })
    }

    #[test]
    fn each_scheduler_is_recognised() {
        type Row<'a> = (&'a [(&'a str, &'a str)], Option<SchedulerJob>);
        let table: &[Row] = &[
            (&[], None),
            (&[("SLURM_JOB_ID", "71")], expected("slurm", "71", None, None)),
            (
                &[
                    ("SLURM_JOB_ID", "71"),
                    ("SLURM_CLUSTER_NAME", "ada"),
                    ("SLURM_JOB_NUM_NODES", "4"),
                    ("SLURM_JOB_ACCOUNT", "astro"),
                ],
                expected("slurm", "ada/71", Some(4), Some("astro")),
            ),
            (&[("SLURM_JOBID", "9"), ("SLURM_NNODES", "2")], expected("slurm", "9", Some(2), None)),
            (
                &[("PBS_JOBID", "12[3].pbs.example"), ("PBS_NUM_NODES", "8"), ("PBS_ACCOUNT", "bio")],
                expected("pbs", "12[3].pbs.example", Some(8), Some("bio")),
            ),
            (
                &[
                    ("LSB_JOBID", "5"),
                    ("LSB_JOBINDEX", "0"),
                    ("LSB_MCPU_HOSTS", "n1 4 n2 4 n3 1"),
                    ("LSB_PROJECT_NAME", "chem"),
                ],
                expected("lsf", "5", Some(3), Some("chem")),
            ),
            (&[("LSB_JOBID", "5"), ("LSB_JOBINDEX", "7")], expected("lsf", "5[7]", None, None)),
            (&[("FLUX_JOB_ID", "ƒA1b"), ("FLUX_JOB_NNODES", "16")], expected("flux", "ƒA1b", Some(16), None)),
            (
                &[("SGE_ROOT", "/opt/sge"), ("JOB_ID", "88"), ("SGE_TASK_ID", "2"), ("NHOSTS", "3")],
                expected("sge", "88.2", Some(3), None),
            ),
            (
                &[("SGE_CLUSTER_NAME", "g1"), ("JOB_ID", "88"), ("SGE_TASK_ID", "undefined")],
                expected("sge", "g1/88", None, None),
            ),
            (&[("JOB_ID", "88")], None),
            (
                &[
                    ("OMPI_MCA_ess_base_jobid", "3087007745"),
                    ("OMPI_COMM_WORLD_SIZE", "9"),
                    ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
                ],
                expected("openmpi", "3087007745", Some(3), None),
            ),
            (
                &[("OMPI_MCA_ess_base_jobid", "1"), ("OMPI_COMM_WORLD_SIZE", "4"), ("SLURM_JOB_ID", "71")],
                expected("slurm", "71", None, None),
            ),
        ];
        for (variables, scheduler) in table {
            assert_eq!(claims(variables).scheduler, *scheduler, "{variables:?}");
        }
    }

    #[test]
    fn options_stand_beside_the_scheduler_and_nonsense_numbers_are_absent() {
        let all = claims(&[
            (JOB, "sim"),
            (USER, "ann"),
            (GROUP, "astro"),
            (NODES, "4"),
            (PRIORITY, "0"),
            ("SLURM_JOB_ID", "1"),
            ("SLURM_NNODES", "-3"),
        ]);
        assert_eq!(all.job.as_deref(), Some("sim"));
        assert_eq!(all.user.as_deref(), Some("ann"));
        assert_eq!(all.group.as_deref(), Some("astro"));
        assert_eq!((all.nodes, all.priority), (Some(4), None));
        assert_eq!(all.scheduler, expected("slurm", "1", None, None));
        assert_eq!(claims(&[(JOB, "")]).job, None);
    }
}
