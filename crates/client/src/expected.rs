//! What the environment says of the files that a program makes, for programs whose libraries say nothing.
//!
//! A pure function of the environment. Source of Slurm's variables: the manual page `srun(1)`, under "output environment
//! variables".

use isonomia_proto::hint::OpenHint;
use isonomia_units::Bytes;

/// So many processes write each file together; [`TASKS`] for as many as the step has.
pub const WRITERS: &str = "ISONOMIA_WRITERS";
/// How long each file is going to be, as a size with its unit.
pub const FILE_SIZE: &str = "ISONOMIA_FILE_SIZE";
/// Instead of a number of writers.
pub const TASKS: &str = "tasks";

/// What is known of each file that is made; `get` gives a variable's value. Of our variables what cannot be understood counts as
/// absent, and is told to `complain`; of Slurm's it only counts as absent.
pub fn from_environment(get: impl Fn(&str) -> Option<String>, mut complain: impl FnMut(&str)) -> OpenHint {
    let number = |name: &str| get(name).and_then(|text| text.parse::<u32>().ok());
    let tasks = number("SLURM_NTASKS").or_else(|| number("SLURM_NPROCS")).unwrap_or(0);
    let writers = match get(WRITERS).as_deref() {
        Some(TASKS) => tasks,
        Some(text) => text.parse().unwrap_or_else(|_| {
            complain(&format!("{WRITERS}={text}: must be a number of processes, or {TASKS}"));
            0
        }),
        None => 0,
    };
    let expected_bytes = get(FILE_SIZE).map_or(0, |text| {
        text.parse::<Bytes>().map_or_else(
            |error| {
                complain(&format!("{FILE_SIZE}={text}: {error}"));
                0
            },
            |Bytes(bytes)| bytes,
        )
    });
    OpenHint {
        rank: number("SLURM_PROCID").unwrap_or(0),
        ranks: if writers > 1 { writers } else { tasks },
        shared: writers > 1,
        expected_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (OpenHint, Vec<String>) {
        let find = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        let mut complaints = Vec::new();
        (from_environment(find, |text| complaints.push(text.to_owned())), complaints)
    }

    fn hint(variables: &[(&str, &str)]) -> OpenHint {
        let (hint, complaints) = read(variables);
        assert!(complaints.is_empty(), "{complaints:?}");
        hint
    }

    #[test]
    fn the_environment_says_who_writes_and_how_much() {
        assert_eq!(hint(&[]), OpenHint::default());
        let slurm = [("SLURM_NTASKS", "64"), ("SLURM_PROCID", "3")];
        let own = OpenHint { rank: 3, ranks: 64, shared: false, expected_bytes: 0 };
        assert_eq!(hint(&slurm), own, "files of each task's own");
        let shared = OpenHint { shared: true, ..own };
        assert_eq!(hint(&[slurm[0], slurm[1], (WRITERS, TASKS)]), shared);
        let sized = OpenHint { ranks: 8, expected_bytes: 4 << 30, ..shared };
        assert_eq!(hint(&[slurm[0], slurm[1], (WRITERS, "8"), (FILE_SIZE, "4GiB")]), sized);
        assert_eq!(hint(&[slurm[0], slurm[1], (WRITERS, "1")]), own);
        assert_eq!(hint(&[("SLURM_NTASKS", "-1")]), OpenHint::default());
        let (bad, complaints) = read(&[(WRITERS, "many"), (FILE_SIZE, "long")]);
        assert_eq!(bad, OpenHint::default());
        assert_eq!(complaints[0], "ISONOMIA_WRITERS=many: must be a number of processes, or tasks");
        assert!(complaints[1].starts_with("ISONOMIA_FILE_SIZE=long: "), "{complaints:?}");
    }
}
