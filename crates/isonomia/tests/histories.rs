//! What is known of applications' phases outlives the server, however that ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use assert_cmd::Command;
use isonomia_client::{Address, Claims, Client, ClientConfig, Ino, OpenHow, access};
use isonomia_units::Nanos;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_isonomia");

struct Serving {
    child: Child,
    socket: String,
    dir: PathBuf,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.kill();
    }
}

fn serve(dir: &Path) -> Serving {
    let socket = format!("unix:{}/s.sock", dir.display());
    let log: File = OpenOptions::new().create(true).append(true).open(dir.join("log")).unwrap();
    let mut child = std::process::Command::new(PROGRAM)
        .args(["serve", "--listen", &socket, "--trust-clients", "--policy", "fair-finish{sizes=history}", "--dir"])
        .arg(dir.join("data"))
        .env("ISONOMIA_LOG", "error")
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\"ready\":true"), "{line}");
    Serving { child, socket, dir: dir.to_owned() }
}

impl Serving {
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn terminate(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    fn run(&self, args: &[&str]) -> String {
        let assert = Command::new(PROGRAM).args(args).env("ISONOMIA_SERVER", &self.socket).assert().success();
        String::from_utf8(assert.get_output().stdout.clone()).unwrap()
    }

    /// What is known of the job `weather` by the data target.
    fn known(&self) -> Vec<serde_json::Value> {
        let told: serde_json::Value = serde_json::from_str(&self.run(&["policy", "history", "--json"])).unwrap();
        let applications = told["applications"].as_array().unwrap().iter();
        applications.filter(|known| known["target"] == "0" && known["application"] == "weather").cloned().collect()
    }

    /// The job `weather` has one more phase: what is known then.
    fn phase(&self) -> Vec<serde_json::Value> {
        let phases =
            |known: &[serde_json::Value]| known.first().map_or(0, |known| known["phases_total"].as_u64().unwrap());
        let before = phases(&self.known());
        let addresses: Vec<Address> = vec![self.socket.parse().unwrap()];
        let claims = Claims { job: Some("weather".to_owned()), ..Claims::default() };
        let client = Client::new(ClientConfig { addresses, timeout: Nanos::from_secs(30), claims, key_file: None });
        let how = OpenHow { access: access::READ | access::WRITE, create: true, mode: 0o644, ..OpenHow::default() };
        let file = client.open(Ino::ROOT, b"file", &how).unwrap();
        client.write_at(&file, 0, &vec![7; 100_000]).unwrap();
        until("the phase ends", || Some(self.known()).filter(|known| phases(known) > before))
    }

    fn file(&self) -> PathBuf {
        self.dir.join("data/metadata/history/target-0")
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(found) = look() {
            return found;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    panic!("{what}: not within a minute");
}

#[test]
fn what_is_known_of_applications_outlives_a_kill_and_a_stop() {
    // In memory, where there is no device to wait for.
    let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
    let home = tempfile::tempdir_in(base).unwrap();
    let mut server = serve(home.path());
    assert_eq!(server.run(&["policy", "history"]).lines().filter(|line| line.contains("weather")).count(), 0);
    let first = server.phase();
    assert_eq!(first[0]["phases_total"], 1);
    let is_written = || fs::read(server.file()).is_ok_and(|bytes| bytes.windows(7).any(|name| name == b"weather"));
    until("the history is written", || is_written().then_some(()));
    server.kill();
    let mut server = serve(home.path());
    assert_eq!(server.known(), first, "after a kill");
    let second = server.phase();
    assert!(second[0]["expectation_error"].as_f64().unwrap() >= 1.0, "{second:?}");
    let copy = home.path().join("copy");
    server.run(&["backup", copy.to_str().unwrap()]);
    server.terminate();
    let mut server = serve(home.path());
    assert_eq!(server.known(), second, "after a stop");
    let shown = server.run(&["policy", "history"]);
    assert!(shown.lines().any(|line| line.contains("weather")), "{shown}");
    server.terminate();
    let mut damaged = fs::read(server.file()).unwrap();
    damaged[20] ^= 1;
    fs::write(server.file(), &damaged).unwrap();
    Command::new(PROGRAM).arg("fsck").arg(home.path().join("data")).assert().success();
    let mut server = serve(home.path());
    assert_eq!(server.known(), Vec::<serde_json::Value>::new());
    server.terminate();
    let aside = server.file().with_file_name("target-0.unusable-1");
    assert_eq!(fs::read(&aside).unwrap(), damaged);
    let log = fs::read_to_string(home.path().join("log")).unwrap();
    let names = [server.file().display().to_string(), aside.display().to_string()];
    assert!(log.contains("checksum") && names.iter().all(|name| log.contains(name.as_str())), "{log}");
}
