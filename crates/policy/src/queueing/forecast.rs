//! When a fair clock will have done how much, if nobody comes and nothing more is told.
//!
//! Virtual times of two targets cannot be compared: each passes with its own target's service, and the slower the more jobs there are. So
//! what one target tells another of a job's fair end is how long it takes until then, which both understand; and the other brings it to
//! its own virtual time. Both ways go along one line: in the clock everybody is served at his present pace until he has what was told, so
//! the time that is left grows with virtual time, evenly between two ends.

/// A job that a clock serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    /// The virtual time at which it has what was told.
    pub(crate) end: f64,
    /// What it has still to get, in nanoseconds of service.
    pub(crate) left: f64,
    /// What it gets while virtual time passes by one.
    pub(crate) pace: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Forecast {
    /// Virtual times, and how long from now the clock gets there, in nanoseconds; both ascend. The first is now.
    points: Vec<(f64, f64)>,
}

impl Forecast {
    /// Of a clock at the virtual time `now` that serves these. O(n log n).
    pub(crate) fn new(now: f64, served: impl Iterator<Item = Served>) -> Self {
        let mut served: Vec<Served> = served.filter(|job| job.end > now && job.left > 0.0).collect();
        served.sort_unstable_by(|a, b| a.end.total_cmp(&b.end));
        // What those get who have not ended by then; each adds what is left of it when it has.
        let mut pace: f64 = served.iter().map(|job| job.pace).sum();
        let mut done = 0.0;
        let mut points = vec![(now, 0.0)];
        for job in &served {
            pace = (pace - job.pace).max(0.0);
            done += job.left;
            let (before, time) = points[points.len() - 1];
            let at = done + pace * (job.end - now);
            // Paces that changed since an end was told must not reverse the line.
            points.push((job.end.max(before), at.max(time)));
        }
        Self { points }
    }

    /// How long from now the clock is at this virtual time, in nanoseconds; zero if it is past, and the time to the last end if it is later.
    /// O(log n).
    pub(crate) fn time_until(&self, at: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 < at);
        match (after.checked_sub(1).map(|before| self.points[before]), self.points.get(after)) {
            (Some((at_before, before)), Some(&(at_after, time_after))) => {
                before + (time_after - before) * (at - at_before) / (at_after - at_before)
            }
            (Some((_, last)), None) => last,
            (None, _) => 0.0,
        }
    }

    /// The virtual time so long from now; beyond the last end it passes with the time, so that who ends later is behind. O(log n).
    pub(crate) fn at(&self, time: f64) -> f64 {
        let after = self.points.partition_point(|point| point.1 < time);
        match (after.checked_sub(1).map(|before| self.points[before]), self.points.get(after)) {
            (Some((before, time_before)), Some(&(at_after, time_after))) => {
                before + (at_after - before) * (time - time_before) / (time_after - time_before)
            }
            (Some((last, time_last)), None) => last + time - time_last,
            (None, _) => self.points[0].0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of three jobs of weight 1, 1 and 2 with 10, 30 and 20 to do, the first and the third end at virtual time 10, when 40 are done,
    /// and the second at 30, when all 60 are.
    #[test]
    fn ends_are_where_fair_sharing_has_them() {
        let job = |end, left, pace| Served { end, left, pace };
        let forecast =
            Forecast::new(100.0, [job(130.0, 30.0, 1.0), job(110.0, 20.0, 2.0), job(110.0, 10.0, 1.0)].into_iter());
        for (virtual_time, time) in [(100.0, 0.0), (105.0, 20.0), (110.0, 40.0), (120.0, 50.0), (130.0, 60.0)] {
            assert!((forecast.time_until(virtual_time) - time).abs() < 1e-9, "{virtual_time}");
            assert!((forecast.at(time) - virtual_time).abs() < 1e-9, "{time}");
        }
        assert_eq!(
            (forecast.time_until(99.0), forecast.time_until(131.0)),
            (0.0, 60.0),
            "past, and after the last end"
        );
        assert_eq!((forecast.at(0.0), forecast.at(67.0)), (100.0, 137.0), "later than all, in the order of the times");
    }

    #[test]
    fn a_clock_that_serves_nobody_passes_with_the_time() {
        let forecast = Forecast::new(7.0, std::iter::empty());
        assert_eq!((forecast.time_until(3.0), forecast.time_until(9.0), forecast.at(5.0)), (0.0, 0.0, 12.0));
    }
}
