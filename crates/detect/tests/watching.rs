//! Programs under the detector, with an ordinary directory as the prefix.

use std::path::Path;
use std::process::{Command, Output};

fn watch(prefix: &Path, script: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isonomia-detect"))
        .arg("--prefix")
        .arg(prefix)
        .args(["--", "sh", "-c", script])
        .env("PREFIX", prefix)
        .output()
        .expect("the detector runs")
}

/// What was leaked, without the programs' numbers.
fn leaks(output: &Output, prefix: &Path) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr).replace(&prefix.display().to_string(), "PREFIX");
    text.lines().filter_map(|line| Some(line.strip_prefix("leak: ")?.rsplit_once(" (")?.0.to_owned())).collect()
}

#[test]
fn every_way_to_a_path_is_seen_and_the_program_goes_on() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(prefix.path().join("x"), "content\n").expect("a file");
    let script =
        "cat $PREFIX/x; cat /tmp/../$PREFIX/./x; cd $PREFIX && (cat x; cat < x); cd / && cat $PREFIX/../none; exit 3";
    let output = watch(prefix.path(), script);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "content\n".repeat(4));
    assert_eq!(output.status.code(), Some(97));
    let leaks = leaks(&output, prefix.path());
    let expected = [
        "openat \"PREFIX/x\" by cat",
        "openat \"/tmp/../PREFIX/./x\" by cat",
        "chdir \"PREFIX\" by sh",
        "openat \"x\" by cat",
        "openat \"x\" by sh",
    ];
    for leak in expected {
        assert!(leaks.iter().any(|found| found == leak), "{leak} is not among {leaks:?}");
    }
    assert!(!leaks.iter().any(|leak| leak.contains("none")), "{leaks:?}");
}

#[test]
fn a_program_that_keeps_away_is_itself() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let output = watch(prefix.path(), "echo out; ls / > /dev/null; exit 3");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()), (Some(3), "out\n"));
    assert!(output.stderr.is_empty());
    assert_eq!(watch(prefix.path(), "kill -9 $$").status.code(), Some(137));
}

#[test]
fn what_cannot_be_run_is_said() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_isonomia-detect")).args(["--", "/no/such"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(98));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot run /no/such"));
}

/// A call that a signal takes a program out of, which then puts another path where the call's was: the second is never
/// given to the kernel.
#[test]
fn a_call_that_was_left_is_not_taken_for_another() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let program = dir.path().join("signals");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/signals.c");
    let compiled = Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(source).status();
    assert!(compiled.expect("a compiler").success());
    let prefix = dir.path().join("prefix");
    let output = watch(&prefix, &format!("for i in 1 2 3 4 5 6 7 8; do {} $PREFIX/x & done; wait", program.display()));
    assert_eq!(leaks(&output, &prefix), Vec::<String>::new());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
