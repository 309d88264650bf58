//! What the program prints and returns, without a server.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use assert_cmd::Command;
use isonomia_testbed::is_root_to;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

fn isonomia(arguments: &[&str]) -> assert_cmd::assert::Assert {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isonomia"));
    // Help is as wide as the terminal, or as this variable says.
    command.env_remove("COLUMNS").env("XDG_RUNTIME_DIR", "/nonexistent");
    for name in
        ["ISONOMIA_SERVER", "ISONOMIA_SERVER_USER", "ISONOMIA_KEY_FILE", "ISONOMIA_PRELOAD_LIBRARY", "LD_PRELOAD"]
    {
        command.env_remove(name);
    }
    command.args(arguments).assert()
}

fn stderr_of(arguments: &[&str], code: i32) -> String {
    let assert = isonomia(arguments).code(code).stdout("");
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

const COMMANDS: [&[&str]; 46] = [
    &[],
    &["serve"],
    &["run"],
    &["mount"],
    &["unmount"],
    &["fsck"],
    &["backup"],
    &["status"],
    &["top"],
    &["policy"],
    &["policy", "get"],
    &["policy", "set"],
    &["policy", "shadow"],
    &["policy", "history"],
    &["rule"],
    &["rule", "start"],
    &["rule", "list"],
    &["coupons"],
    &["regret"],
    &["cluster"],
    &["cluster", "check"],
    &["cluster", "status"],
    &["cluster", "reload"],
    &["cluster", "up"],
    &["cluster", "down"],
    &["volume"],
    &["volume", "create"],
    &["volume", "list"],
    &["volume", "move"],
    &["stripe"],
    &["stripe", "get"],
    &["stripe", "set"],
    &["placement"],
    &["placement", "get"],
    &["placement", "set"],
    &["placement", "status"],
    &["plan"],
    &["plan", "schedule"],
    &["plan", "pack"],
    &["reproduce"],
    &["demo"],
    &["record"],
    &["sim"],
    &["device"],
    &["device", "profile"],
    &["allocate"],
];

fn help(command: &[&str]) -> String {
    let assert = isonomia(&[command, &["--help"]].concat()).success();
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

#[test]
fn every_help_has_examples() {
    for command in COMMANDS {
        assert!(help(command).contains("\nExamples:\n  isonomia "), "{command:?}");
    }
}

/// `UPDATE_REFERENCE=1 cargo test -p isonomia` writes the page anew.
#[test]
fn the_reference_page_is_the_help() {
    let mut page = "# Command line\n\nWhat `isonomia COMMAND --help` prints; made from it, so it is never behind. \
                    Data go to standard output, logs\nto standard error. Exit codes: 0 done, 1 not done (one line says \
                    why), 2 wrong usage; `isonomia run` returns the\ncommand's own.\n"
        .to_owned();
    for command in COMMANDS {
        let title = [&["isonomia"], command].concat().join(" ");
        let help: String = help(command).lines().map(|line| format!("{}\n", line.trim_end())).collect();
        page += &format!("\n## {title}\n\n```text\n{help}```\n");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), page);
}

#[test]
fn a_bad_policy_is_refused_with_what_is_allowed() {
    for arguments in [&["serve", "--policy", "fair-ish"][..], &["policy", "set", "fair-ish"]] {
        let error = stderr_of(arguments, 2);
        assert!(error.contains("fair-ish"), "{error}");
        assert!(error.contains("fifo") && error.contains("user-then-size-fair"), "{error}");
    }
    let error = stderr_of(&["policy", "set", "fifo", "--draw", "dice"], 2);
    assert!(error.contains("virtual-time, lottery"), "{error}");
}

#[test]
fn bad_values_are_refused_with_what_is_allowed() {
    for (arguments, allowed) in [
        (&["serve", "--listen", "/run/x.sock"][..], "unix:PATH, tcp:HOST:PORT"),
        (&["serve", "--bandwidth", "2GiB"], "GiB/s"),
        (&["serve", "--per-op", "10 parsecs"], "ns, us, ms, s"),
        (&["serve", "--targets", "0"], "whole numbers from 1 to 256"),
        (&["serve", "--targets", "-1"], "whole numbers from 1 to 256"),
        (&["serve", "--workers", "two"], "whole numbers from 1 to 256"),
        (&["serve", "--depth", "-1"], "auto and numbers from 1 to 256"),
        (&["serve", "--per-op", "-1ms"], "ns, us, ms, s"),
        (&["serve", "--scrub", "never"], "allowed are off"),
        (&["serve", "--metrics", "localhost"], "IP:PORT"),
        (&["serve", "--policy", "usr-fair"], "did you mean \"user\"?"),
        (&["run", "--nodes", "0", "--", "true"], "whole numbers from 1 to 4294967295"),
        (&["stripe", "set", "--count", "many", "d"], "whole numbers from 1 to 1024"),
        (&["run", "--prefix", "isonomia", "--", "true"], "absolute path"),
        (&["run", "--timeout", "30", "--", "true"], "whole seconds"),
        (&["run", "--job", "", "--", "true"], "1 to 255"),
        (&["top", "--interval", "1ms"], "50ms to 1h"),
        (&["mount", "--timeout", "30", "/mnt"], "whole seconds"),
        (&["mount", "--log", "x", "--foreground", "/mnt"], "cannot be used with"),
        (&["demo", "--seconds", "1"], "whole numbers from 3 to 600"),
        (
            &["allocate", "case.toml", "--scheme", "gifts"],
            "pofs, bsip, mbw, tsa, esa, tmf, rnd, gift, tbf, adaptbf, calciom, coflow",
        ),
        (&["srve"], "serve"),
        (&["run"], "CMD"),
    ] {
        let error = stderr_of(arguments, 2);
        assert!(error.contains(allowed), "{arguments:?}: {error}");
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/none.sock", dir.path().display());
    for command in [&["status"][..], &["top"], &["policy", "get"], &["policy", "set", "fifo"]] {
        let error = stderr_of(&[command, &["--server", &address]].concat(), 1);
        assert!(error.contains("none.sock") && error.contains("isonomia serve"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn a_cause_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none");
    let none = none.to_str().unwrap();
    let (socket, record) = (format!("unix:{none}/s"), format!("{none}/record"));
    for arguments in [
        &["status", "--server", &socket][..],
        &["top", "--server", &socket],
        &["status", "--server", "tcp:127.0.0.1:1", "--key-file", none],
        &["serve", "--config", none],
        &["serve", "--listen", &socket],
        &["serve", "--listen", "tcp:127.0.0.1:0", "--key-file", none],
        &["serve", "--listen", &socket, "--record-decisions", &record],
        &["mount", "--foreground", none],
    ] {
        let error = stderr_of(arguments, 1);
        assert_eq!(error.matches("(os error").count(), 1, "{arguments:?}: {error}");
        assert_eq!(error.matches("isonomia: ").count(), 1, "{arguments:?}: {error}");
    }
}

#[test]
fn a_server_of_somebody_else_is_refused_in_one_sentence() {
    if !is_root_to("have somebody else listen") {
        return;
    }
    const NOBODY: u32 = 65_534;
    let dir = tempfile::tempdir().unwrap();
    let (socket, place) = (dir.path().join("open/s"), dir.path().join("place"));
    std::fs::create_dir(&place).unwrap();
    std::fs::create_dir(dir.path().join("open")).unwrap();
    for open in ["", "open"] {
        std::fs::set_permissions(dir.path().join(open), PermissionsExt::from_mode(0o777)).unwrap();
    }
    let listener = std::thread::scope(|scope| {
        let squat = || {
            // System calls of a thread change that thread only.
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(NOBODY)).unwrap();
            UnixListener::bind(&socket).unwrap()
        };
        scope.spawn(squat).join().unwrap()
    });
    let (address, place) = (format!("unix:{}", socket.display()), place.to_str().unwrap());
    for arguments in [
        &["mount", "--server", &address, place][..],
        &["mount", "--foreground", "--server", &address, place],
        &["mount", "--foreground", "--server", &address, "--server-user", "1", place],
        &["status", "--server", &address],
    ] {
        let error = stderr_of(arguments, 1);
        let once = ["(65534) listens there", "allowed are this user", "nothing was sent", "isonomia: "];
        assert!(once.iter().all(|words| error.matches(words).count() == 1), "{arguments:?}: {error}");
        assert!(error.contains(&address), "{arguments:?}: {error}");
    }
    drop(listener);
}

#[test]
fn a_directory_that_keeps_no_files_is_explained() {
    let error = stderr_of(&["serve", "--dir", "/proc"], 1);
    assert!(error.contains("/proc") && error.contains("a file system of the kernel's own"), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = stderr_of(&["serve", "--dir", file.path().to_str().unwrap()], 1);
    assert!(error.contains("is no directory") && !error.contains("profile"), "{error}");
}

#[test]
fn a_mount_that_cannot_be_made_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let (dir, file) = (dir.path().to_str().unwrap(), file.to_str().unwrap());
    for (arguments, words) in [
        (&["mount", "-o", "ro,alow_other", dir][..], "alow_other"),
        (&["mount", "-o", "threads=many", dir], "1 to 256"),
        (&["mount", file], "Not a directory"),
        (&["mount", "/nonexistent/place"], "/nonexistent/place"),
        (&["unmount", dir], "nothing of Isonomia's is mounted"),
    ] {
        let error = stderr_of(arguments, 1);
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
}

#[test]
fn a_configuration_that_cannot_be_used_is_named() {
    let error = stderr_of(&["serve", "--config", "/nonexistent/isonomia.toml"], 1);
    assert!(error.contains("/nonexistent/isonomia.toml"), "{error}");
}

mod run {
    use super::{isonomia, stderr_of};
    use isonomia_testbed::is_root_to;
    use std::os::unix::fs::PermissionsExt;

    /// A file that stands for the preload library; empty, so the dynamic linker says that it ignores it.
    fn library(dir: &tempfile::TempDir) -> String {
        let path = dir.path().join("libisonomia_preload.so");
        std::fs::write(&path, "").unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn options_become_variables_and_the_exit_code_is_the_commands() {
        let dir = tempfile::tempdir().unwrap();
        let library = library(&dir);
        let script = "echo $ISONOMIA_SERVER $ISONOMIA_JOB $ISONOMIA_NODES $ISONOMIA_TIMEOUT_S $LD_PRELOAD; exit 7";
        let options = ["--server", "unix:/s", "--job", "j", "--nodes", "4", "--timeout", "5s", "--preload", &library];
        isonomia(&[&["run"], &options[..], &["--", "sh", "-c", script]].concat())
            .code(7)
            .stdout(format!("unix:/s j 4 5 {library}\n"));
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let error = stderr_of(&["run", "--", "no-such-command"], 127);
        assert_eq!(error, "isonomia: no-such-command: command not found\n");
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let error = stderr_of(&["run", "--preload", "/nonexistent/p.so", "--", "true"], 1);
        assert!(error.contains("/nonexistent/p.so"), "{error}");
    }

    #[test]
    fn the_library_of_hints_is_beside_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let library = library(&dir);
        let run = ["run", "--hints", "--preload", &library, "--", "sh", "-c", "echo $LD_PRELOAD"];
        let hints = dir.path().join("libisonomia_hints.so");
        let error = stderr_of(&run, 1);
        assert!(error.contains(&format!("{} is not there", hints.display())), "{error}");
        std::fs::write(&hints, "").unwrap();
        isonomia(&run).success().stdout(format!("{library}:{}\n", hints.display()));
    }

    #[test]
    fn a_program_out_of_reach_is_run_all_the_same() {
        if !is_root_to("give a program to somebody else") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("true");
        std::fs::copy("/bin/true", &copy).unwrap();
        std::os::unix::fs::chown(&copy, Some(65_534), None).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).unwrap();
        let library = library(&dir);
        let error = stderr_of(&["run", "--preload", &library, "--", copy.to_str().unwrap()], 0);
        let line = error.lines().next().unwrap();
        assert!(line.contains("gets rights of its own") && line.contains("without the files of /isonomia"), "{error}");
    }
}

/// A server that was started and stopped in `dir`, with a file below the target that belongs to nobody.
#[test]
fn fsck_says_by_its_exit_code_what_became_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = isonomia_store::StoreConfig::new(
        dir.path().join("metadata"),
        isonomia_units::ServerId(3),
        vec![isonomia_store::TargetDir { id: isonomia_units::TargetId(0), dir: dir.path().join("target-0") }],
    );
    isonomia_store::Store::open(&config).unwrap().close().unwrap();
    let path = dir.path().to_str().unwrap();
    let stdout_of = |arguments: &[&str], code: i32| {
        let assert = isonomia(&[&["fsck"], arguments, &[path]].concat()).code(code);
        String::from_utf8(assert.get_output().stdout.clone()).unwrap()
    };
    assert!(stdout_of(&[], 0).contains("nothing is wrong"));
    let stray = dir.path().join("target-0/objects/0a/000000000000000a.00000001.0");
    std::fs::write(&stray, "bytes").unwrap();
    assert!(stdout_of(&[], 4).contains("--repair would move it"));
    assert!(stray.exists());
    let line: serde_json::Value = serde_json::from_str(stdout_of(&["--json"], 4).lines().next().unwrap()).unwrap();
    assert_eq!((&line["finding"], &line["repaired"]), (&"unknown object".into(), &false.into()));
    assert!(stdout_of(&["--repair", "--data"], 1).contains("1 repaired, 0 left"));
    assert!(dir.path().join("target-0/lost+found").join(stray.file_name().unwrap()).exists());
    stdout_of(&[], 0);
    stdout_of(&["--config", "/nonexistent"], 8);
    let _held = isonomia_store::Store::open(&config).unwrap();
    let refused = stderr_of(&["fsck", path], 8);
    assert!(refused.contains("in use") && refused.contains("stop that server, and no other"), "{refused}");
    assert!(stderr_of(&["fsck", "/nonexistent"], 8).contains("holds no store"));
}

/// A server of a cluster, whose targets do not begin at 0, and one of them elsewhere.
#[test]
fn fsck_finds_the_targets_of_a_server_of_a_cluster() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = |id, dir| isonomia_store::TargetDir { id: isonomia_units::TargetId(id), dir };
    let first = target(16, dir.path().join("target-0"));
    let make = |name: &str, targets| {
        let metadata = dir.path().join(name);
        let config = isonomia_store::StoreConfig::new(metadata, isonomia_units::ServerId(2), targets);
        isonomia_store::Store::open(&config).unwrap().close().unwrap();
    };
    make("metadata", vec![first.clone(), target(17, dir.path().join("target-1"))]);
    let path = dir.path().to_str().unwrap();
    isonomia(&["fsck", path]).success();
    for name in ["metadata", "target-0", "target-1"] {
        std::fs::remove_dir_all(dir.path().join(name)).unwrap();
    }
    make("metadata", vec![first, target(17, elsewhere.path().join("far"))]);
    // It does not say where.
    assert!(stderr_of(&["fsck", path], 8).contains("target-1"));
    let file = dir.path().join("cluster.toml");
    let cluster = format!(
        "name = \"c\"\nepoch = 1\n[[server]]\nname = \"io[1-2]\"\nnumber = 1\nlisten = [\"tcp:{{name}}:7411\"]\n\
         dir = \"/nowhere\"\ntargets = [{{ }}, {{ dir = {:?} }}]\n",
        elsewhere.path().join("far")
    );
    std::fs::write(&file, cluster).unwrap();
    let file = file.to_str().unwrap();
    isonomia(&["fsck", "--cluster", file, path]).success();
    isonomia(&["fsck", "--cluster", file, "--name", "io2", path]).success();
    assert!(stderr_of(&["fsck", "--cluster", file, "--name", "io3", path], 8).contains("io3"));
    assert!(stderr_of(&["fsck", "--data"], 2).contains("<DIR>"));
    assert!(stderr_of(&["fsck", "--server", "unix:/nonexistent/socket"], 8).contains("is a server running there?"));
}
