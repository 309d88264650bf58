//! How much longer requests take on the channels of a device that get in each other's way.

/// Measured are 1, 2, 4, … requests at once, so many times.
const STEPS: usize = 9;

/// How much longer a request takes on its channel where so many are on channels, itself included, than alone.
///
/// A device that serves n requests at once, each of which takes f(n) times what one alone takes, does n / f(n) times as many of them
/// in a second: a server whose rate depends on how many it has (a *load-dependent* one in queueing networks). How long a request
/// takes is settled when it begins, so what comes later slows those down that come later still.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadDependence([f32; STEPS]);

impl LoadDependence {
    /// Channels that leave each other alone.
    pub const NONE: Self = Self([1.0; STEPS]);

    /// Of how much longer a request takes where so many (1, 2, 4, …) are on channels. It takes as long as with fewer where that is not
    /// known, and never less time than alone.
    pub fn new(longer: impl Fn(u32) -> Option<f64>) -> Self {
        let mut latest = 1.0_f32;
        Self(std::array::from_fn(|step| {
            latest = longer(1 << step).map_or(latest, |longer| longer.max(1.0) as f32);
            latest
        }))
    }

    /// Where `count` are on channels: between what is known of the nearest fewer and more, in proportion.
    pub fn factor(&self, count: u32) -> f64 {
        let step = count.max(1).ilog2() as usize;
        let [Some(fewer), Some(more)] = [step, step + 1].map(|step| self.0.get(step).map(|factor| f64::from(*factor)))
        else {
            return f64::from(self.0[STEPS - 1]);
        };
        let fewest = f64::from(1_u32 << step);
        fewer + (more - fewer) * (f64::from(count.max(1)) - fewest) / fewest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_lies_between_what_was() {
        let load_dependence = LoadDependence::new(|count| (count != 4).then(|| f64::from(count) / 2.0));
        for (count, factor) in
            [(0, 1.0), (1, 1.0), (2, 1.0), (4, 1.0), (6, 2.5), (8, 4.0), (12, 6.0), (256, 128.0), (999, 128.0)]
        {
            assert!(
                (load_dependence.factor(count) - factor).abs() < 1e-9,
                "{count}: {}",
                load_dependence.factor(count)
            );
        }
        assert!((0..1000).all(|count| LoadDependence::NONE.factor(count) == 1.0));
    }
}
