//! Tests that cannot run where they are: `libtest` knows only tests that pass and tests that fail, so these say so
//! themselves, and `scripts/count-tests` takes them out of those that passed.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Names the file to which skipped tests are appended, a line each: program, test and reason, with tabs between. Without
/// it the reason goes to standard error.
pub const RECORD_VARIABLE: &str = "ISONOMIA_SKIPPED_TESTS";

/// If this is `1`, a test that would be skipped fails instead.
pub const REQUIRE_VARIABLE: &str = "ISONOMIA_REQUIRE_ALL_TESTS";

/// Says that the test that calls is skipped, as a whole or for the part that cannot run here. To be called last, by the
/// thread of the test, which is named after it: a test that is skipped and then fails would be counted twice.
///
/// # Panics
/// If every test is required to run ([`REQUIRE_VARIABLE`]).
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(std::env::var_os(REQUIRE_VARIABLE).is_none_or(|value| value != "1"), "this test is required: {reason}");
    let Some(record) = std::env::var_os(RECORD_VARIABLE) else {
        // Not `eprintln`, which is kept from who runs the tests unless a test fails.
        writeln!(std::io::stderr(), "skipped: {test}: {reason}").expect("standard error");
        return;
    };
    let program = std::env::current_exe().expect("the path of this program");
    let program = program.file_name().expect("a file's name").to_string_lossy();
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut record =
        std::fs::File::options().create(true).append(true).open(record).expect("the record of skipped tests");
    // In one call: several programs append at the same time.
    record.write_all(format!("{program}\t{test}\t{reason}\n").as_bytes()).expect("the record of skipped tests");
}

/// Whether this process is root, without which it could not `do_what`; if not, the test is skipped.
pub fn is_root_to(do_what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(&format!("only root can {do_what}"));
    }
    is_root
}

/// Whether other users get at what the build has made, as their programs have to: each directory above it lets them pass. If not, the test
/// is skipped.
pub fn others_reach_the_build() -> bool {
    let program = std::env::current_exe().expect("the path of this program");
    let is_closed = |dir: &&Path| std::fs::metadata(dir).is_ok_and(|found| found.permissions().mode() & 0o001 == 0);
    let closed = program.ancestors().skip(1).find(is_closed);
    if let Some(dir) = closed {
        skip(&format!("other users cannot get at what is built below {}: its mode keeps them out", dir.display()));
    }
    closed.is_none()
}

/// Whether `program` is on the search path; if not, the test is skipped.
pub fn is_installed(program: &str) -> bool {
    let found = on_search_path(program);
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

pub(crate) fn on_search_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
