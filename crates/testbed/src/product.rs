//! What the build has made, and `cargo test` alone does not.

use crate::TIMEOUT_S;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A product of the build, beside the test's executable.
pub fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let path = test.parent().and_then(Path::parent).expect("a directory").join(name);
    assert!(path.exists(), "{} is missing: cargo build --workspace", path.display());
    path
}

/// The preload library, which `cargo test` alone does not build: no test links it.
pub fn library() -> PathBuf {
    let library = built("libisonomia_preload.so");
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a directory");
    let sources = ["preload", "client", "transport", "proto", "units"].map(|name| crates.join(name).join("src"));
    let modified = |path: &Path| path.metadata().and_then(|found| found.modified()).expect("the time of a file");
    for entry in sources.iter().flat_map(|source| std::fs::read_dir(source).expect("the sources")) {
        let source = entry.expect("a source").path();
        assert!(
            modified(&source) <= modified(&library),
            "{} is older than {}: cargo build --workspace",
            library.display(),
            source.display()
        );
    }
    library
}

/// The program, without an environment that says who the job is.
pub fn isonomia() -> Command {
    let mut command = Command::new(built("isonomia"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["ISONOMIA_", "SLURM_", "PBS_", "OMPI_"].iter().any(|ours| name.starts_with(ours)) {
            command.env_remove(&*name);
        }
    }
    command.env("ISONOMIA_TIMEOUT_S", TIMEOUT_S);
    command
}
