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

    /// The same with what so many others, which are not simulated, take as `other` says, for each request that is.
    pub(crate) fn with(self, other: &Self, count: f64) -> Self {
        let of_byte = |processors: &Self| processors.bandwidth.map_or(0.0, |rate| 1.0 / rate.bytes_per_s() as f64);
        let of_byte = count.mul_add(of_byte(other), of_byte(&self));
        let bandwidth = (of_byte > 0.0).then(|| Rate::new(((1.0 / of_byte).round() as u64).max(1))).flatten();
        let per_request = count.mul_add(other.per_request.0 as f64, self.per_request.0 as f64);
        Self { per_request: Nanos(per_request as u64), bandwidth, ..self }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_take_comes_on_top() {
        let processors = |time_us, bytes_per_s| Processors {
            count: NonZeroU32::MIN,
            per_request: Nanos::from_micros(time_us),
            bandwidth: Rate::new(bytes_per_s),
        };
        let (one, other) = (processors(30, 1_000_000_000), processors(10, 2_000_000_000));
        let time = |count| one.with(&other, count).time(Bytes(1_000_000)).0;
        assert_eq!([time(0.0), time(3.0)], [1_030_000, 2_560_000]);
        let free = Processors { bandwidth: None, ..other };
        assert_eq!(free.with(&free, 2.0), Processors { per_request: Nanos::from_micros(30), ..free });
    }
}
