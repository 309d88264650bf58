//! Mounts that write back what programs stored in their mappings: none writes over what the present holder wrote.

use crate::running::{create, pattern, start};
use isonomia_client::{Client, Error, Ino, OpenFile};
use isonomia_server::TargetConfig;
use isonomia_units::{Bytes, Rate};
use rustix::io::Errno;

/// Whether it is there, and the session's number.
fn take(client: &Client, file: &OpenFile) -> (bool, u64) {
    loop {
        match client.take_mapping(&file.capability, false) {
            // A server that has just started.
            Err(Error::Server(Errno::AGAIN)) => std::thread::yield_now(),
            taken => return taken.unwrap(),
        }
    }
}

fn give(client: &Client, file: &OpenFile) {
    client.give_mapping(Ino(file.capability.ino)).unwrap();
}

#[test]
fn only_the_holder_writes_back() {
    let mut running = start(|config| {
        config.targets = vec![TargetConfig::default(), TargetConfig::default()];
        config.stripe_count = 2;
        config.stripe_size = Bytes::kib(64);
    });
    let clients = running.clients();
    let file = clients[0].open(Ino::ROOT, b"f", &create()).unwrap();
    let refused = |client: &Client, session, data: &[u8]| client.write_back(&file, session, 0, data).unwrap_err();
    let len = (1 << 20) + 3;
    let read = || {
        let mut back = vec![0; len];
        assert_eq!(clients[0].read_at(&file, 0, &mut back).unwrap(), len);
        back
    };
    let pairs = [(&clients[0], &clients[1], 1), (&clients[1], &clients[0], 2)];
    for (holder, other, seed) in pairs {
        let (new, old) = (pattern(len, seed), pattern(len, 0xa0 + seed));
        for client in [holder, other] {
            assert_eq!(refused(client, 0, &old), Error::Server(Errno::AGAIN), "nobody has it");
        }
        let ((true, session), (false, waiting)) = (take(holder, &file), take(other, &file)) else { panic!() };
        // Whose requests they are does not matter: only the session that they name.
        assert_eq!(other.write_back(&file, session, 0, &old).unwrap(), len);
        assert_eq!(holder.write_back(&file, session, 0, &new).unwrap(), len);
        assert_eq!(refused(other, waiting, &old), Error::Server(Errno::IO), "who waits does not have it");
        assert!(read() == new);
        give(holder, &file);
        assert_eq!(refused(holder, session, &old), Error::Server(Errno::IO), "it has passed on");
        assert_eq!(other.write_back(&file, waiting, 7, b"newer").unwrap(), 5);
        give(other, &file);
        assert_eq!(other.write_at(&file, 0, &new[..7]).unwrap(), 7, "other writes go as ever");
        assert!(read()[7..12] == *b"newer");
    }
    let (_, session) = take(&clients[0], &file);
    running.restart();
    let again = refused(&clients[0], session, b"old");
    assert_eq!(again, Error::Server(Errno::AGAIN), "a server that has just started knows of no holder");
    let other = running.client(&running.addresses[0], &running.key_file, 20);
    let (_, later) = take(&other, &file);
    assert_eq!(refused(&clients[0], session, b"old"), Error::Server(Errno::IO));
    assert_eq!(other.write_back(&file, later, 0, b"new").unwrap(), 3);
}

#[test]
fn who_had_a_mapping_is_believed_by_a_server_that_has_just_started() {
    let mut running = start(|_| {});
    let clients = running.clients();
    let file = clients[0].open(Ino::ROOT, b"f", &create()).unwrap();
    let (_, session) = take(&clients[0], &file);
    assert_eq!(clients[0].take_mapping(&file.capability, true).unwrap(), (true, session), "it still has it");
    let stale = |client: &Client| client.take_mapping(&file.capability, true).unwrap_err();
    assert_eq!(stale(&clients[1]), Error::Server(Errno::STALE), "it never had it");
    give(&clients[0], &file);
    assert_eq!(stale(&clients[0]), Error::Server(Errno::STALE), "another may have had it since");
    running.restart();
    let other = running.client(&running.addresses[0], &running.key_file, 20);
    let (_, later) = take(&other, &file);
    give(&other, &file);
    assert_eq!(stale(&clients[0]), Error::Server(Errno::STALE), "another has had it since");
    assert_eq!(clients[0].write_back(&file, later, 0, b"old").unwrap_err(), Error::Server(Errno::AGAIN));
}

#[test]
fn what_waits_for_its_turn_when_the_mapping_goes_is_not_written() {
    let running = start(|config| {
        config.targets = vec![TargetConfig { bandwidth: Rate::new(1 << 20), ..TargetConfig::default() }];
    });
    for (number, client) in running.clients().iter().enumerate() {
        let file = client.open(Ino::ROOT, format!("f{number}").as_bytes(), &create()).unwrap();
        let (_, session) = take(client, &file);
        let size = || client.get_attr(Ino(file.capability.ino), b"", true).unwrap().size_bytes;
        let data = pattern(5 << 20, 1);
        let written = std::thread::scope(|scope| {
            let writes = scope.spawn(|| client.write_back(&file, session, 0, &data).unwrap());
            while size() == 0 {
                std::thread::yield_now();
            }
            give(client, &file);
            writes.join().unwrap()
        });
        assert!(0 < written && written < data.len(), "{written}");
        assert_eq!(size(), written as u64);
        assert_eq!(client.write_back(&file, session, 0, &data).unwrap_err(), Error::Server(Errno::AGAIN));
    }
}
