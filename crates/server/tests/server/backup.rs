//! Copies of the metadata of a server that runs.

use crate::running::{MALLORY, Running, as_user, can_be_others, create, start};
use isonomia_client::Ino;
use isonomia_proto::control::{ControlReply, ControlRequest};
use isonomia_server::{METADATA, Server, store_config};
use isonomia_store::Check;
use isonomia_transport::control::ControlConnection;
use isonomia_units::Nanos;
use std::path::Path;
use std::time::{Duration, Instant};

fn control(running: &Running) -> ControlConnection {
    ControlConnection::connect(&running.addresses[0], None, Nanos::from_secs(20)).unwrap()
}

fn ask(control: &mut ControlConnection, dir: &Path, id: u64) -> ControlReply {
    control.ask(&ControlRequest::Backup { dir: dir.to_str().unwrap().to_owned(), id }).unwrap()
}

/// Asks until it is done; the error, if there was one.
fn done(control: &mut ControlConnection, dir: &Path, id: u64) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        match ask(control, dir, id) {
            ControlReply::Backup { syncs: None } => std::thread::yield_now(),
            ControlReply::Backup { syncs: Some(_) } => return Ok(()),
            ControlReply::Error(error) => return Err(error),
            other => panic!("{other:?}"),
        }
    }
    panic!("no copy of the metadata within a minute");
}

#[test]
fn the_metadata_are_copied_while_files_are_written_and_can_be_put_back() {
    let mut running = start(|_| {});
    let client = running.clients().remove(0);
    let write = |name: &str| {
        let file = client.open(Ino::ROOT, name.as_bytes(), &create()).unwrap();
        assert_eq!(client.write_at(&file, 0, name.as_bytes()).unwrap(), name.len());
    };
    write("before");
    let copy = running.config.dir.as_ref().unwrap().join("copy");
    done(&mut control(&running), &copy, 1).unwrap();
    write("after");
    // Whoever asks once more wants another one.
    assert_eq!(
        done(&mut control(&running), &copy, 1).unwrap_err(),
        done(&mut control(&running), &copy, 2).unwrap_err()
    );
    running.stop();

    let dir = running.config.dir.clone().unwrap();
    std::fs::rename(dir.join(METADATA), dir.join("damaged")).unwrap();
    std::fs::rename(&copy, dir.join(METADATA)).unwrap();
    let refused = Server::start(running.config.clone()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("isonomia fsck --repair"), "{refused}");
    let mut check = Check { repair: true, data: true, finding: &mut |_| {}, progress: &mut |_, _| {} };
    assert_eq!(check.run(&store_config(&running.config, &dir)).unwrap().left, 0);
    running.restart();
    let client = running.clients().remove(0);
    assert_eq!(client.get_attr(Ino::ROOT, b"before", true).unwrap().size_bytes, 6);
    assert!(client.get_attr(Ino::ROOT, b"after", true).is_err());
}

#[test]
fn a_copy_has_a_directory_that_is_free_and_is_an_operators_to_ask_for() {
    let running = start(|_| {});
    let dir = running.config.dir.clone().unwrap();
    let mut operator = control(&running);
    for (wrong, said) in [("copy", "absolute"), (dir.to_str().unwrap(), "exists"), ("/no/where", "No such file")] {
        let error = done(&mut operator, Path::new(wrong), 1).unwrap_err();
        assert!(error.contains(wrong) && error.contains(said), "{error}");
    }
    if can_be_others() {
        let refused = as_user(MALLORY, || done(&mut control(&running), &dir.join("copy"), 1));
        assert!(refused.unwrap_err().contains("only the server's user and root"));
        assert!(!dir.join("copy").exists());
    }
    // The thread that copies ends with the server, also with a wish that it had no time for.
    ask(&mut operator, &dir.join("last"), 1);
}
