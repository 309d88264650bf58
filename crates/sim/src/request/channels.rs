//! A device of channels in virtual time: see [`Channels`].

use super::Channels;
use isonomia_units::{Bytes, Nanos};
use std::collections::VecDeque;

/// What such a device is doing.
#[derive(Default)]
pub(super) struct State {
    taken: u32,
    /// Streams whose requests wait for a free channel, in the order in which they came.
    waiting: VecDeque<u32>,
    /// When the bytes of all requests so far will have passed.
    passed_at: Nanos,
}

impl State {
    /// The device is given a stream's request; whether it takes a channel now, and its latency begins.
    pub(super) fn take(&mut self, device: &Channels, stream: u32) -> bool {
        let is_free = device.count.is_none_or(|count| self.taken < count.get());
        if is_free {
            self.taken += 1;
        } else {
            self.waiting.push_back(stream);
        }
        is_free
    }

    /// Requests that are on channels.
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// The latency of a request is over; the time at which its bytes have passed.
    pub(super) fn transfer(&mut self, device: &Channels, now: Nanos, bytes: Bytes) -> Nanos {
        let Some(bandwidth) = device.bandwidth else { return now };
        self.passed_at = self.passed_at.max(now) + bandwidth.time_for(bytes);
        self.passed_at
    }

    /// The bytes of a request have passed: its channel is free. Gives the stream whose request takes it.
    pub(super) fn release(&mut self) -> Option<u32> {
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.taken -= 1;
        }
        next
    }
}
