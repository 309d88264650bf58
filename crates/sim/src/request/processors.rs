//! The processors that programs and a server have in common.

use isonomia_units::{Bytes, Nanos, Rate};
use std::collections::VecDeque;
use std::num::NonZeroU32;

/// What requests need of the processors of a server, which the programs may run on as well.
///
/// A request takes one from when its turn has come, and the device is given it when that is done; all the time that program,
/// server and kernel spend on it is one piece. What finds no processor free waits for one, in the order in which the turns came.
/// So of `count` processors that are always busy, `count / time` requests come in a second, whatever the device could do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processors {
    /// How many a server has.
    pub count: NonZeroU32,
    /// What a request takes besides its bytes.
    pub per_request: Nanos,
    /// At which bytes are copied, or `None` if that takes no time.
    pub bandwidth: Option<Rate>,
}

impl Processors {
    /// What a request of so many bytes takes.
    pub fn time(&self, bytes: Bytes) -> Nanos {
        self.per_request + self.bandwidth.map_or(Nanos::ZERO, |rate| rate.time_for(bytes))
    }

    /// Where only this part of the requests, more than 0, is simulated, and each of these takes what the others take as well.
    pub(crate) fn of_part(self, part: f64) -> Self {
        let slower = |rate: Rate| Rate::new(((rate.bytes_per_s() as f64 * part) as u64).max(1)).unwrap_or(rate);
        Self {
            per_request: Nanos((self.per_request.0 as f64 / part) as u64),
            bandwidth: self.bandwidth.map(slower),
            ..self
        }
    }
}

/// A request: its target and its stream.
type Request = (u32, u32);

/// What the processors of one server are doing.
#[derive(Default)]
pub(super) struct State {
    taken: u32,
    /// What waits for one.
    waiting: VecDeque<Request>,
}

impl State {
    /// Whether the request has one now; otherwise [`release`](Self::release) gives it back in its time.
    pub(super) fn take(&mut self, processors: &Processors, request: Request) -> bool {
        let is_free = self.taken < processors.count.get();
        if is_free {
            self.taken += 1;
        } else {
            self.waiting.push_back(request);
        }
        is_free
    }

    /// A processor is free. Gives the request that takes it.
    pub(super) fn release(&mut self) -> Option<Request> {
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.taken -= 1;
        }
        next
    }
}
