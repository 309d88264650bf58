//! Files over several targets, all of which are synced at once.

use crate::running::{create, start};
use isonomia_client::{Claims, Ino};
use isonomia_proto::request::{Op, RequestHeader, flag};
use isonomia_proto::syncing;
use isonomia_server::TargetConfig;
use isonomia_transport::channel::{Channel, Manner};
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::{Bytes, Nanos};
use rustix::io::Errno;

const PATIENCE: Nanos = Nanos::from_secs(20);
const STRIPE: u64 = 64 << 10;
/// Of `linux/magic.h`.
const TMPFS_MAGIC: i64 = 0x0102_1994;

#[test]
fn attributes_are_synced_with_the_bytes_of_all_targets_or_after_them() {
    // Nothing in memory outlives a power cut, whatever is synced.
    let storage = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if rustix::fs::statfs(storage.path()).unwrap().f_type == TMPFS_MAGIC {
        return isonomia_testbed::skip("all directories at hand are in memory");
    }
    let running = start(|config| {
        config.dir = Some(storage.path().join("data"));
        config.targets = vec![TargetConfig::default(), TargetConfig::default(), TargetConfig::default()];
        config.stripe_count = 3;
        config.stripe_size = Bytes(STRIPE);
    });
    let client = running.client(&running.addresses[0], "", 20);
    let claims = Claims { job: Some("test".to_owned()), ..Claims::default() };
    let identity = Identity { client: 7, claims, ..Identity::default() };
    let mut channel = Channel::open(&running.addresses[0], &identity, Deadline::after(PATIENCE)).unwrap();
    let file = client.open(Ino::ROOT, b"file", &create()).unwrap();
    let mut sync_together = |flags: u16| {
        let (last, others) = file.layout.targets.split_last().unwrap();
        let request = RequestHeader::with_capability(Op::Fsync, &file.capability);
        let flags_of_others = flags | flag::CONTINUED;
        let of_others =
            others.iter().map(|target| RequestHeader { target: target.0, flags: flags_of_others, ..request });
        let mut requests: Vec<_> = of_others.collect();
        requests.push(RequestHeader { target: last.0, flags, valid: syncing::TOGETHER, ..request });
        let slots: Vec<_> = requests.iter().map(|request| channel.send(request).unwrap()).collect();
        let reply = |slot| channel.wait(slot, PATIENCE, Manner::default()).unwrap().errno;
        slots.into_iter().map(reply).collect::<Vec<_>>()
    };
    let (done, too_soon) = ([0; 3], [0, 0, Errno::AGAIN.raw_os_error() as u32]);

    // Objects that are new, and as long as the file.
    client.write_at(&file, 0, &[1; 3 * STRIPE as usize]).unwrap();
    assert_eq!(sync_together(0), done);
    client.write_at(&file, 0, &[2; 2 * STRIPE as usize]).unwrap();
    assert_eq!(sync_together(flag::DATA_ONLY), done);

    // Nothing but its directory says that an object exists whose bytes do not make the file longer.
    client.truncate(&file, 0).unwrap();
    client.truncate(&file, 3 * STRIPE).unwrap();
    client.sync(&file, false).unwrap();
    client.write_at(&file, 0, &[3; STRIPE as usize]).unwrap();
    assert_eq!(sync_together(0), too_soon);
    client.sync(&file, false).unwrap();
    assert_eq!(sync_together(0), done);
    for data_only in [false, true] {
        client.write_at(&file, STRIPE, &[4; 100]).unwrap();
        client.sync(&file, data_only).unwrap();
    }
}
