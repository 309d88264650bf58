//! Connections in shared memory of an ordinary user who writes to any word of it at any time: his requests are answered or
//! his connection ends, and nothing that the server puts there is another user's.

#![no_main]

use isonomia_fuzz::{SECRET, as_stranger, said_at_the_end, soon, with_server};
use isonomia_proto::setup::{self, Hello, Role, SETUP_LEN_MAX};
use isonomia_transport::region::{ClientRegion, REGION_LEN, SLOT_LEN, SLOTS};
use isonomia_transport::socket::{connect, receive_frame_with_descriptor, send_all};
use libfuzzer_sys::fuzz_target;
use rustix::fd::{AsFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the buffers begin: before it are the words and headers.
const HEAD_LEN: usize = REGION_LEN - SLOTS * SLOT_LEN;
/// So much of a buffer is looked at for the secret: all of it, if it is there.
const LOOKED_AT: usize = 4096;
/// Looks for a reply, which never comes to who has spoilt his words.
const LOOKS: u32 = 2_000;

fuzz_target!(|bytes: &[u8]| {
    with_server(|running| {
        let socket = as_stranger(|| connect(&running.local, soon()).expect("connected"));
        send_all(socket.as_fd(), &[&setup::encode(&Hello::new(Role::SharedMemory, 7))], soon()).expect("said hello");
        let welcome = receive_frame_with_descriptor(socket.as_fd(), SETUP_LEN_MAX, soon()).expect("welcome");
        let memory = welcome.1.expect("memory");
        let mut region = ClientRegion::map(&memory).expect("memory of the right kind");
        let words = Words::map(&memory);
        let mut rest = bytes;
        let mut posted = None;
        while let Some((action, after)) = rest.split_first() {
            rest = after;
            match action % 8 {
                0 => {
                    let Some((change, after)) = rest.split_first_chunk::<6>() else { break };
                    rest = after;
                    let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
                    words.0[at % words.0.len()]
                        .store(u32::from_le_bytes([change[2], change[3], change[4], change[5]]), Ordering::Relaxed);
                }
                1 => drop(send_all(socket.as_fd(), &[&[0]], soon())),
                2 => await_answer(&region, posted),
                _ => {
                    let Some((header, more)) = running.request(&mut rest) else { break };
                    let slot = region.next_slot();
                    let len = more.len().min(SLOT_LEN);
                    region.buffer(slot).copy_from(&more[..len]);
                    if region.post(&header) {
                        let _ = send_all(socket.as_fd(), &[&[0]], soon());
                    }
                    posted = Some(slot);
                }
            }
        }
        await_answer(&region, posted);
        // With the connection the server takes the content of its memory away.
        for slot in 0..SLOTS {
            let buffer = region.buffer(slot).first(LOOKED_AT).to_vec();
            assert!(!buffer.windows(SECRET.len()).any(|bytes| bytes == SECRET), "another user's bytes");
        }
        said_at_the_end(&socket);
    });
});

/// Waits for the latest answer, for a while.
fn await_answer(region: &ClientRegion, posted: Option<usize>) {
    let Some(slot) = posted else { return };
    for _ in 0..LOOKS {
        if region.is_done(slot) {
            return;
        }
        rustix::thread::sched_yield();
    }
}

/// The words and headers at the beginning of a region.
struct Words(&'static [AtomicU32]);

impl Words {
    fn map(memory: &OwnedFd) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping of memory that cannot shrink; it goes with `self`, and so do all that refer to it.
        let words = unsafe {
            let start = mmap(std::ptr::null_mut(), HEAD_LEN, protection, MapFlags::SHARED, memory, 0).expect("mapped");
            std::slice::from_raw_parts(start.cast::<AtomicU32>(), HEAD_LEN / size_of::<AtomicU32>())
        };
        Self(words)
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length.
        let _ = unsafe { munmap(self.0.as_ptr().cast_mut().cast(), HEAD_LEN) };
    }
}
