//! The quick search that a depth begins with, and goes back to when twice as many clearly did more.
//!
//! One *round*, as many requests as are in service, tells roughly what the device does at a depth. While twice the depth does
//! [`CLEAR`] times as much or more, it is doubled: from 8, a depth of 128 is reached after four rounds. Does
//! twice the first depth not help, the depth is halved, as long as half of it does about as much. What was tried is not gone
//! back to for comparison, so a burst of some dozens of requests has most of what the device can give, and a device
//! that serves one at a time is given more for some dozens of requests only. What so few requests say is rough: the
//! trials that follow find out the rest.
//!
//! The slow start of TCP (Jacobson, SIGCOMM 1988) doubles until something is lost; the start-up of BBR (Cardwell et al., ACM
//! Queue 2016) until the rate of delivery grows no more, as here.

use super::tally::Tally;
use isonomia_units::Nanos;

/// Half of the way from as much to twice as much.
const CLEAR: f64 = std::f64::consts::SQRT_2;
/// A window lasts until this many requests have ended, and as many as are in service,
const REQUESTS_MIN: usize = 8;
/// or twice as many on the way down, where none of the depth before may be among them.
const ROUNDS_DOWN: usize = 2;
/// And this long at least: a thread that starts late must not count.
pub(super) const WINDOW_MIN: Nanos = Nanos::from_millis(5);

/// Where the search is.
#[derive(Clone, Debug)]
pub(super) struct Ramp {
    /// The best depth so far.
    found: usize,
    /// The most that were in service at it: fewer where nobody waited.
    most: usize,
    /// What was done at so many; `None` at the beginning.
    before: Option<Box<Tally>>,
    /// What was done at the depth from which it goes down.
    first: Option<Box<Tally>>,
    /// What twice the best depth does, as a multiple of what that one does, if it was seen.
    gain: Option<f64>,
    is_down: bool,
    /// A depth did clearly more than half of it.
    has_grown: bool,
}

impl Ramp {
    /// Up from `depth`, with what is done there, if that is known.
    pub(super) fn up(depth: usize, before: Option<Tally>) -> Self {
        let has_grown = before.is_some();
        Self {
            found: depth,
            most: depth,
            before: before.map(Box::new),
            first: None,
            gain: None,
            is_down: false,
            has_grown,
        }
    }

    /// Down from the `most` that are in service now, for nobody waits at `depth`.
    pub(super) fn down(depth: usize, most: usize, before: Tally) -> Self {
        let before = Some(Box::new(before));
        Self { found: depth, most, first: before.clone(), before, gain: None, is_down: true, has_grown: false }
    }

    /// Requests in a window while so many are in service.
    pub(super) fn requests_min(&self, in_service: usize) -> usize {
        REQUESTS_MIN.max(if self.is_down { ROUNDS_DOWN * in_service } else { in_service })
    }

    /// A window has ended in which this was `done` at a depth of `tried`. Gives the depth to be tried next; `None` if the
    /// search has ended.
    pub(super) fn learn(&mut self, done: &Tally, tried: usize, depth_max: usize) -> Option<usize> {
        let ratio = self.before.as_ref().map(|before| before.ratio(done));
        let is_right = ratio.is_none_or(|ratio| if self.is_down { ratio * CLEAR >= 1.0 } else { ratio >= CLEAR });
        if is_right {
            self.has_grown |= !self.is_down && ratio.is_some();
            self.gain = ratio.filter(|_| self.is_down).map(|ratio| 1.0 / ratio);
            (self.found, self.most) = (tried, tried);
            self.before = Some(Box::new(done.clone()));
        } else if self.is_down || self.has_grown {
            self.gain = if self.is_down { self.gain } else { ratio };
            return None;
        } else {
            self.gain = ratio;
            self.is_down = true;
            self.first.clone_from(&self.before);
        }
        let next = if self.is_down { self.found.div_ceil(2) } else { (2 * self.found).min(depth_max) };
        Some(next).filter(|next| *next != self.found)
    }

    /// A window has ended in which all there was to do was `done` at a depth of `tried`, and nobody waited. More cannot be
    /// told from that, and whoever waits later may want other things.
    pub(super) fn nobody_waited(&mut self, done: &Tally, tried: usize) {
        if self.is_down {
            // Fewer than there were at first are too many for a moment: what was done by those tells as much as before.
            return;
        }
        let ratio = self.before.take().map_or(1.0, |before| before.ratio(done));
        if ratio >= CLEAR {
            (self.found, self.most) = (tried, tried);
            self.has_grown = true;
        }
    }

    /// The best depth so far.
    pub(super) fn found(&self) -> usize {
        self.found
    }

    /// The most that were in service at it.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// The part of what was done at the depth from which it went down that the best one does, about; 1 at most.
    pub(super) fn kept(&self) -> f64 {
        self.first.as_ref().zip(self.before.as_ref()).map_or(1.0, |(first, last)| first.ratio(last).min(1.0))
    }

    /// What twice the best depth does, as a multiple of what that one does, if it was seen.
    pub(super) fn gain(&self) -> Option<f64> {
        self.gain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isonomia_units::JobId;

    /// A second in which so many requests of one kind were done.
    fn done(requests: u64) -> Tally {
        let mut tally = Tally::default();
        tally.lasted = Nanos::from_secs(1);
        (0..requests).for_each(|_| tally.add(JobId(0), Nanos(1), Nanos(1)));
        tally
    }

    #[test]
    fn it_doubles_as_long_as_that_helps_much() {
        let mut ramp = Ramp::up(8, None);
        assert_eq!(ramp.learn(&done(80), 8, 128), Some(16));
        assert_eq!(ramp.learn(&done(160), 16, 128), Some(32));
        assert_eq!((ramp.learn(&done(180), 32, 128), ramp.found()), (None, 16));
        assert!((ramp.gain().unwrap() - 180.0 / 160.0).abs() < 1e-9);
    }

    #[test]
    fn it_reverses_once_and_halves_as_long_as_that_costs_little() {
        let mut ramp = Ramp::up(8, None);
        assert_eq!(ramp.learn(&done(80), 8, 128), Some(16));
        assert_eq!((ramp.learn(&done(80), 16, 128), ramp.found()), (Some(4), 8));
        assert_eq!((ramp.learn(&done(79), 4, 128), ramp.found()), (Some(2), 4));
        assert_eq!((ramp.learn(&done(40), 2, 128), ramp.found()), (None, 4));
        assert!((ramp.kept() - 79.0 / 80.0).abs() < 1e-9, "{}", ramp.kept());
    }

    #[test]
    fn a_moment_without_work_leads_neither_up_nor_down() {
        let mut ramp = Ramp::up(8, None);
        assert_eq!(ramp.learn(&done(80), 8, 128), Some(16));
        ramp.nobody_waited(&done(90), 16);
        assert_eq!(ramp.found(), 8);
        let mut ramp = Ramp::down(8, 8, done(80));
        ramp.nobody_waited(&done(10), 4);
        assert_eq!((ramp.learn(&done(40), 4, 128), ramp.found()), (None, 8), "half of them do half of the work");
    }
}
