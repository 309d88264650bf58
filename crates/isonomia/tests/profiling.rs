//! `isonomia device profile` on a directory, for a moment; and a server that begins with what it found.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use assert_cmd::Command;
use std::path::Path;

fn isonomia(arguments: &[&str]) -> assert_cmd::assert::Assert {
    Command::new(env!("CARGO_BIN_EXE_isonomia")).args(arguments).assert()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_profile_is_printed_drawn_and_kept_where_a_server_finds_it() {
    let dir = tempfile::tempdir().unwrap();
    let plot = dir.path().join("plot.svg");
    let target = dir.path().join("target");
    std::fs::create_dir(&target).unwrap();
    let arguments = ["device", "profile", text(&target), "--seconds", "1", "--json", "--plot", text(&plot)];
    let printed = isonomia(&arguments).success().get_output().stdout.clone();
    let profile: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    let costs = profile["costs"].as_object().unwrap();
    let names: Vec<&str> = costs.keys().map(String::as_str).collect();
    assert_eq!(names, ["read-random", "read-sequential", "write-random", "write-sequential"]);
    let is_rate = |rate: &serde_json::Value| rate.is_null() || rate.as_u64() > Some(0);
    assert!(costs.values().all(|cost| is_rate(&cost["bandwidth"]) && cost["parallel"].as_u64() > Some(0)));
    assert!(profile["points"].as_array().unwrap().len() >= 20, "each access and size one at a time, at least");
    assert!(std::fs::read_to_string(&plot).unwrap().contains("read-random"));
    let left: Vec<_> = std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["device-profile.toml"], "nothing else is left behind");
    let kept = target.join("device-profile.toml");
    let read: isonomia_policy::device::profile::DeviceProfile =
        toml::from_str(&std::fs::read_to_string(&kept).unwrap()).unwrap();
    assert_eq!(read.costs.len(), 4);
    // A server reads it; one that is no profile, it does not start with.
    let config = dir.path().join("isonomia.toml");
    let socket = dir.path().join("s");
    let serve = |profile: &Path| {
        let settings = format!(
            "dir = {:?}\nlisten = [\"unix:{}\"]\n[[targets]]\ndir = {:?}\nprofile = {:?}\n",
            dir.path().join("data"),
            socket.display(),
            target,
            profile
        );
        std::fs::write(&config, settings).unwrap();
        isonomia_server::Config::read(&config).map(isonomia_server::Server::start).unwrap()
    };
    serve(&kept).unwrap().shutdown();
    let Err(error) = serve(&plot) else { panic!("a picture is no profile") };
    assert!(error.to_string().contains("plot.svg"), "{error}");
}

#[test]
fn a_result_that_cannot_be_written_is_named_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    for (option, name) in [("--plot", "x.svg"), ("--out", "x.toml")] {
        let path = missing.join(name);
        // Longer than a test takes.
        let mut profile = Command::new(env!("CARGO_BIN_EXE_isonomia"));
        profile.args(["device", "profile", text(dir.path()), "--seconds", "3600", option, text(&path)]);
        let output = profile.timeout(std::time::Duration::from_secs(60)).assert().code(1).stdout("");
        let error = String::from_utf8(output.get_output().stderr.clone()).unwrap();
        assert!(error.contains(&format!("cannot write {}: No such file", path.display())), "{error}");
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn what_was_measured_is_printed_also_where_it_cannot_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("device-profile.toml")).unwrap();
    let output = isonomia(&["device", "profile", text(dir.path()), "--seconds", "1"]).code(1);
    let printed = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    assert!(printed.contains("serves at once") && !printed.contains("Saved in"), "{printed}");
    let error = String::from_utf8(output.get_output().stderr.clone()).unwrap();
    assert!(error.contains("cannot write") && error.contains("device-profile.toml"), "{error}");
}

#[test]
fn a_file_system_in_memory_is_not_taken_for_a_device() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        isonomia_testbed::skip("there is no directory in memory here");
        return;
    };
    let output = isonomia(&["device", "profile", text(dir.path()), "--seconds", "1"]).success();
    let printed = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    assert!(printed.starts_with(&format!("{} (in memory)\n", dir.path().display())), "{printed}");
    let kept = std::fs::read_to_string(dir.path().join("device-profile.toml")).unwrap();
    assert!(kept.contains("is_direct = false"), "{kept}");
}

#[test]
fn what_cannot_be_measured_is_named() {
    for (dir, why) in
        [("/nonexistent/x", "No such file"), ("/dev/null", "no directory"), ("/proc", "cannot measure /proc")]
    {
        let output = isonomia(&["device", "profile", dir, "--seconds", "1"]).code(1).stdout("");
        let error = String::from_utf8(output.get_output().stderr.clone()).unwrap();
        assert!(error.contains(dir) && error.contains(why), "{error}");
    }
    isonomia(&["device", "profile", "/", "--plot", "x.pdf"]).code(2);
    isonomia(&["device", "profile", "/", "--seconds", "0"]).code(2);
}

#[test]
fn limits_of_all_records_are_removed_that_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let records = dir.path().join("records");
    std::fs::create_dir(&records).unwrap();
    let kernels = dir.path().join("blkio.throttle.write_bps_device");
    std::fs::write(&kernels, "8:0 4096\n").unwrap();
    std::fs::write(records.join("a.limits"), "nonsense\n").unwrap();
    let good = format!("isonomia limits 1\nv1 write 8:0 4096 {}\n", text(dir.path()));
    std::fs::write(records.join("b.limits"), &good).unwrap();
    std::fs::write(records.join("c.limits"), "nonsense\n").unwrap();
    let told = isonomia(&["device", "unlimit", "--records", text(&records), "--json"]).failure();
    let output = told.get_output();
    let counts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(counts, serde_json::json!({ "removed": 1, "not_ours": 0 }));
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(error.contains("a.limits") && !error.contains("c.limits"), "{error}");
    assert!(std::fs::read_to_string(&kernels).unwrap().starts_with("8:0 0\n"));
}
