//! A server killed in the middle of its work has everything that it acknowledged.

use crate::detached::place;
use crate::scratch::{ROOT, at, config, content, open, scratch_dir};
use isonomia_proto::fs::{Capability, Layout, access};
use isonomia_store::checksum::ObjectId;
use isonomia_store::{ObjectPlace, OpenHow, Store, StoreError};
use isonomia_units::{Ino, TargetId};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

const DIR_VARIABLE: &str = "ISONOMIA_STORE_KILL_TEST";

fn size_of(i: usize) -> usize {
    i * 977 % 30_000
}

fn object(i: usize) -> ObjectPlace {
    ObjectPlace { object: ObjectId { number: place(0).object.number + i as u64, ..place(0).object }, ..place(0) }
}

fn layout() -> Arc<Layout> {
    Arc::new(Layout { stripe_bytes: 4096, targets: vec![TargetId(70), TargetId(71)], grows: false })
}

fn how() -> OpenHow {
    OpenHow { access: access::WRITE, create: true, mode: 0o600, ..OpenHow::default() }
}

/// The victim: works until it is killed, and says on standard output what has been done.
#[test]
#[ignore = "run by what_was_acknowledged_survives_a_kill, as a process of its own"]
fn victim() {
    let dir = std::env::var(DIR_VARIABLE).expect("the directory of the store");
    let store = Store::open(&config(Path::new(&dir), 3)).unwrap();
    let mut out = std::io::stdout().lock();
    for i in 0usize.. {
        let file = open(&store, &format!("new{i}"));
        store.write(file.ino, 0, &vec![i as u8; size_of(i)], at(2)).unwrap();
        let (old, new) = (format!("new{i}"), format!("done{i}"));
        store.rename(&ROOT, Ino::ROOT, old.as_bytes(), Ino::ROOT, new.as_bytes(), Default::default(), at(5)).unwrap();
        // After the last change of the record: what it says of the size is old, and only the objects know.
        match i % 4 {
            0 => store.fsync(file.ino, true).unwrap(),
            1 => store.release(file.ino).unwrap(),
            2 => store.flush_dirty().unwrap(),
            // Grown after the flush, then cut: the record in the database is wrong both ways.
            _ => {
                store.append(file.ino, &[1; 9000], at(3)).unwrap();
                store.flush_dirty().unwrap();
                store.set_size(file.ino, size_of(i) as u64, at(4)).unwrap();
            }
        }
        // Of other servers' files, each is written, and some are cut or removed again.
        let object = object(i);
        store.objects().write_object(object, 0, &vec![i as u8; size_of(i)]).unwrap();
        match i % 7 {
            5 => drop(store.objects().cut_object(object, 1, size_of(i) as u64 / 2).unwrap()),
            6 => store.objects().remove_detached(&[object], 1000, 1).unwrap(),
            _ => {}
        }
        let spread = store.open_spread(&ROOT, Ino::ROOT, format!("spread{i}").as_bytes(), &how(), layout(), at(6));
        store.tell_size(spread.unwrap().ino, size_of(i) as u64, 0, u64::MAX, at(7)).unwrap();
        if i >= 3 && i % 5 == 0 {
            store.unlink(&ROOT, Ino::ROOT, format!("done{}", i - 3).as_bytes(), at(6)).unwrap();
        }
        let Capability { generation, mac, .. } = file.capability;
        writeln!(out, "done {i} {} {generation} {mac}", file.ino).unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    for stop_after in [1usize, 40, 333] {
        let dir = scratch_dir();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "kill::victim", "--nocapture"])
            .env(DIR_VARIABLE, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some((_, done)) = line.split_once("done ") else { continue };
            let numbers: Vec<u64> = done.split(' ').map(|n| n.parse().unwrap()).collect();
            acknowledged.push((numbers[0] as usize, numbers[1], numbers[2] as u32, numbers[3]));
            if acknowledged.len() == stop_after {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();

        let store = Store::open(&config(dir.path(), 3)).unwrap();
        for (i, ino, generation, mac) in acknowledged {
            let capability =
                Capability { ino, access: access::READ | access::WRITE, generation, mac, holder: 0, reserved: 0 };
            store.namespace().verify(&capability).unwrap();
            let mut bytes = vec![0; 40_000];
            match store.objects().read_object(object(i), 0, &mut bytes) {
                Ok(len) => {
                    assert_eq!(len, if i % 7 == 5 { size_of(i) / 2 } else { size_of(i) }, "object {i}");
                    assert!(bytes[..len].iter().all(|byte| *byte == i as u8), "object {i}");
                }
                Err(error) => assert!(matches!(error, StoreError::Stale) && i % 7 == 6, "object {i}: {error}"),
            }
            let spread = store.get_attr(&ROOT, Ino::ROOT, format!("spread{i}").as_bytes(), true).unwrap();
            assert_eq!(spread.size_bytes, size_of(i) as u64, "size of spread file {i}");
            let name = format!("done{i}");
            // The victim may have gone on for a while after the last line that was read.
            let found = store.get_attr(&ROOT, Ino::ROOT, name.as_bytes(), true);
            if (i + 3) % 5 == 0 && matches!(found, Err(StoreError::NotFound)) {
                continue;
            }
            assert_eq!(found.unwrap().ino, ino, "{name}");
            let bytes = content(&store, Ino(ino));
            assert_eq!(bytes.len(), size_of(i), "size of {name}");
            assert!(bytes.iter().all(|b| *b == i as u8), "content of {name}");
            let before = store.get_attr(&ROOT, Ino::ROOT, format!("new{i}").as_bytes(), true);
            assert!(matches!(before, Err(StoreError::NotFound)), "the old name of {name}");
        }
        let how = OpenHow { access: access::WRITE, create: true, exclusive: true, mode: 0o600, ..OpenHow::default() };
        store.open_file(&ROOT, Ino::ROOT, b"after", &how, at(9)).unwrap();
    }
}
