//! Skipped tests are told and counted: this program runs itself as `make test` runs the others, and has it counted.

use isonomia_testbed::{RECORD_VARIABLE, REQUIRE_VARIABLE, skip};
use std::path::Path;
use std::process::{Command, Output};

#[test]
#[ignore = "one of those that the other tests count"]
fn counted_passes() {}

#[test]
#[ignore = "one of those that the other tests count"]
fn counted_skips() {
    skip("there is\nno device");
    skip("neither is there another");
}

#[test]
#[ignore = "one of those that the other tests count"]
fn counted_skips_too() {
    skip("only root can do it");
}

#[test]
#[ignore = "one of those that the other tests count"]
fn counted_fails() {
    panic!("as it should");
}

/// Runs the tests whose name begins with `name`, and has `scripts/count-tests` count them, and one check that passed.
fn count(name: &str, variables: &[(&str, &str)]) -> (Output, Output) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (log, record) = (dir.path().join("log"), dir.path().join("skipped"));
    std::fs::write(&record, "").expect("an empty record");
    let mut tests = Command::new(std::env::current_exe().expect("this program"));
    // On one thread, which is when the harness is most likely to save the threads that tests are named after.
    tests.args(["--ignored", "--test-threads=1", name]).env_remove(REQUIRE_VARIABLE).env(RECORD_VARIABLE, &record);
    let tests = tests.envs(variables.iter().copied()).output().expect("this program runs");
    let printed = String::from_utf8_lossy(&tests.stdout);
    let code = tests.status.code().expect("an exit code");
    std::fs::write(&log, format!("{printed}exit code {code}\n")).expect("the log");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/count-tests");
    let counted = Command::new(program).arg(log).arg(record).args(["1", "0"]).output().expect("the script runs");
    (tests, counted)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_skipped_test_is_told_with_its_reason_and_has_not_passed() {
    let (tests, counted) = count("counted_skips", &[]);
    assert!(tests.status.success(), "{}", text(&tests.stdout));
    let expected = "skipped: skipping counted_skips: there is no device\n\
                    skipped: skipping counted_skips_too: only root can do it\n\
                    1 passed, 0 failed, 2 skipped\n";
    assert_eq!(text(&counted.stdout), expected, "{}", text(&counted.stderr));
    assert!(counted.status.success());
}

#[test]
fn without_a_record_the_reason_is_on_standard_error() {
    let mut tests = Command::new(std::env::current_exe().expect("this program"));
    tests.args(["--ignored", "counted_skips_too"]).env_remove(RECORD_VARIABLE).env_remove(REQUIRE_VARIABLE);
    let tests = tests.output().expect("this program runs");
    assert_eq!(text(&tests.stderr), "skipped: counted_skips_too: only root can do it\n");
}

#[test]
fn where_all_tests_are_required_a_skipped_one_fails() {
    let (tests, counted) = count("counted_skips", &[(REQUIRE_VARIABLE, "1")]);
    assert!(text(&tests.stdout).contains("this test is required: only root can do it"), "{}", text(&tests.stdout));
    assert_eq!(text(&counted.stdout), "1 passed, 2 failed, 0 skipped\n");
    assert!(!counted.status.success());
}

#[test]
fn a_failed_test_fails_the_count() {
    let (_, counted) = count("counted_", &[]);
    assert!(text(&counted.stdout).ends_with("2 passed, 1 failed, 2 skipped\n"), "{}", text(&counted.stdout));
    assert!(!counted.status.success());
}

/// As where the tests of a crate do not compile: nothing is counted, and nothing passed.
#[test]
fn what_ends_without_a_count_has_failed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (log, record) = (dir.path().join("log"), dir.path().join("skipped"));
    std::fs::write(&log, "error: could not compile\nexit code 101\n").expect("the log");
    std::fs::write(&record, "").expect("an empty record");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/count-tests");
    let counted = Command::new(program).arg(log).arg(record).output().expect("the script runs");
    assert_eq!((text(&counted.stdout).as_str(), counted.status.code()), ("0 passed, 1 failed, 0 skipped\n", Some(1)));
}
