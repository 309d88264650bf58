//! sqlite over TCP, where programs cannot share memory: it keeps to the modes that need none, and no database comes to harm.

use isonomia_testbed::{PREFIX, is_installed, isonomia, library};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

/// A server that listens on TCP alone.
struct Server {
    process: Child,
    address: String,
    dir: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let key = dir.path().join("key");
        std::fs::write(&key, [7; 32]).expect("a key");
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("permissions");
        let mut command = isonomia();
        command.args(["serve", "--listen", "tcp:127.0.0.1:0", "--key-file"]).arg(&key);
        command.arg("--dir").arg(dir.path().join("data"));
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("its first line");
        let address = line.split('"').find(|word| word.starts_with("tcp:")).expect("where it listens").to_owned();
        Self { process, address, dir }
    }

    /// What a preloaded program prints, and what it says on standard error.
    fn run(&self, program: &str, arguments: &[&str], variable: Option<(&str, &str)>) -> (String, String) {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.dir.path()).env("LD_PRELOAD", library());
        command.env("ISONOMIA_SERVER", &self.address).env("ISONOMIA_KEY_FILE", self.dir.path().join("key"));
        command.envs(variable);
        let output = command.output().expect("it runs");
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (out, err)
    }

    fn sqlite(&self, database: &str, statements: &str, variable: Option<(&str, &str)>) -> (String, String) {
        self.run("sqlite3", &[&format!("{PREFIX}/{database}"), statements], variable)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().expect("the server can be killed");
        self.process.wait().expect("the server ends");
    }
}

const LOOK: &str = "pragma journal_mode; select count(*) from t; pragma integrity_check;";

#[test]
fn a_database_is_not_put_into_a_mode_in_which_nobody_could_use_it() {
    if !is_installed("sqlite3") || !is_installed("python3") {
        return;
    }
    let server = Server::start();
    let quiet = |database: &str, statements: &str| server.sqlite(database, statements, None).0;
    for begin in ["create table t(a); insert into t values(1);", ""] {
        let name = if begin.is_empty() { "fresh" } else { "used" };
        quiet(name, begin);
        let (_, said) = server.sqlite(name, "pragma journal_mode=wal;", None);
        assert!(said.contains("disk I/O error") && said.contains("stays in its journal mode"), "{said}");
        // A program that goes on does so in the mode of before.
        let script = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
try:
    db.execute('pragma journal_mode=wal').fetchall()
except sqlite3.OperationalError as error:
    print(error)
db.execute('create table if not exists t(a)'); db.execute('insert into t values(2)')
print(db.execute('pragma journal_mode').fetchall(), db.execute('select count(*) from t').fetchall())
";
        let (printed, said) = server.run("python3", &["-c", script, &format!("{PREFIX}/{name}")], None);
        let rows = 1 + usize::from(!begin.is_empty());
        assert_eq!(printed, format!("disk I/O error\n[('delete',)] [({rows},)]\n"), "{said}");
        assert_eq!(said.matches("stays in its journal mode").count(), 1, "{said}");
        assert_eq!(quiet(name, LOOK), format!("delete\n{rows}\nok\n"));
    }
    // Who says that he needs no memory that is shared may have the mode, and leave it.
    let alone = format!("pragma locking_mode=exclusive; pragma journal_mode=wal; insert into t values(3); {LOOK}");
    let (printed, said) = server.sqlite("used", &alone, Some(("ISONOMIA_SQLITE_WAL", "exclusive")));
    assert_eq!((&*printed, &*said), ("exclusive\nwal\nwal\n3\nok\n", ""));
    let back = "pragma locking_mode=exclusive; insert into t values(4); pragma journal_mode=delete;";
    assert_eq!(quiet("used", back), "exclusive\ndelete\n");
    assert_eq!(quiet("used", LOOK), "delete\n4\nok\n");
}

#[test]
fn copies_of_databases_are_files_as_others() {
    if !is_installed("sqlite3") {
        return;
    }
    let server = Server::start();
    let local = server.dir.path().join("local");
    let made = Command::new("sqlite3").arg(&local).arg("pragma journal_mode=wal; create table t(a);").output();
    assert!(made.expect("it runs").status.success());
    let copied = server.run("cp", &["local", &format!("{PREFIX}/copy")], None);
    assert_eq!(copied, (String::new(), String::new()));
    let compared = server.run("cmp", &["local", &format!("{PREFIX}/copy")], None);
    assert_eq!(compared, (String::new(), String::new()));
}
