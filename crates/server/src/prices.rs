//! What requests are charged ahead at a target whose device is real: a prediction, learnt while running.
//!
//! What a request did cost is known when it ends: [`Dispatcher`](isonomia_policy::Dispatcher) attributes the device's time to
//! those in service, and corrects the accounts. The better the prediction, the less there is to correct: see
//! [`attribution`](isonomia_policy::device::attribution). It applies to what reads and writes and is served by a thread
//! that may wait for the device. What is in memory costs what serving it costs the server, and a request of which nobody
//! knows yet is charged for the part of its job's latest ones that went to the device.

use crate::config::TargetConfig;
use isonomia_policy::device::profile::{DeviceProfile, PROFILE_NAME};
use isonomia_policy::{Access, CostLearner, CostModel, Worth};
use isonomia_proto::control::CostStatus;
use isonomia_units::{Bytes, Nanos, Rate};
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The prices of one target.
#[derive(Debug)]
pub struct Prices {
    /// The policy divides the device's time: see [`PolicySpec::divides_time`](isonomia_policy::PolicySpec::divides_time).
    is_by_time: AtomicBool,
    /// By access; what was learnt last, for those who ask without the lock.
    published: [Price; 4],
    /// [`Worth::rate`] of the device's time, as the bits of a number.
    worth: AtomicU64,
    learners: Mutex<[CostLearner; 4]>,
}

#[derive(Debug)]
struct Price {
    per_op_ns: AtomicU64,
    bytes_per_s: AtomicU64,
}

impl Price {
    fn new(model: CostModel) -> Self {
        let (per_op_ns, bytes_per_s) = (AtomicU64::new(model.per_op.0), AtomicU64::new(model.bandwidth.bytes_per_s()));
        Self { per_op_ns, bytes_per_s }
    }

    fn publish(&self, model: CostModel) {
        self.per_op_ns.store(model.per_op.0, Ordering::Relaxed);
        self.bytes_per_s.store(model.bandwidth.bytes_per_s(), Ordering::Relaxed);
    }

    fn model(&self) -> CostModel {
        let bandwidth = Rate::new(self.bytes_per_s.load(Ordering::Relaxed).max(1)).expect("at least 1");
        CostModel { per_op: Nanos(self.per_op_ns.load(Ordering::Relaxed)), bandwidth }
    }
}

impl Prices {
    /// Begins with a guess for each access, in the order of [`Access::ALL`].
    pub fn new(guesses: [CostModel; 4]) -> Self {
        Self {
            is_by_time: AtomicBool::new(false),
            published: guesses.map(Price::new),
            worth: AtomicU64::new(Worth::default().rate().to_bits()),
            learners: Mutex::new(guesses.map(CostLearner::new)),
        }
    }

    /// The same with other guesses.
    pub fn beginning_with(&self, guesses: [CostModel; 4]) -> Self {
        let prices = Self::new(guesses);
        prices.set_by_time(self.is_by_time());
        prices
    }

    /// Whether requests are charged for the device's time.
    pub fn is_by_time(&self) -> bool {
        self.is_by_time.load(Ordering::Relaxed)
    }

    /// Says whether they are.
    pub fn set_by_time(&self, is_by_time: bool) {
        self.is_by_time.store(is_by_time, Ordering::Relaxed);
    }

    /// What a request is likely to be charged for the device.
    pub fn predict(&self, access: Access, bytes: Bytes) -> Nanos {
        self.worth_of(self.time_of(access, bytes))
    }

    /// What the device is likely to take for a request.
    pub fn time_of(&self, access: Access, bytes: Bytes) -> Nanos {
        self.published[access.index()].model().cost(bytes)
    }

    /// What so much of the device's time is worth: what a request that was attributed as much is charged.
    pub fn worth_of(&self, time: Nanos) -> Nanos {
        Nanos((time.0 as f64 * f64::from_bits(self.worth.load(Ordering::Relaxed))) as u64)
    }

    /// What the device's time is worth.
    pub fn set_worth(&self, worth: Worth) {
        self.worth.store(worth.rate().to_bits(), Ordering::Relaxed);
    }

    /// What one was attributed.
    pub fn learn(&self, now: Nanos, access: Access, bytes: Bytes, attributed: Nanos) {
        let mut learners = self.learners.lock().unwrap_or_else(PoisonError::into_inner);
        let learner = &mut learners[access.index()];
        learner.learn(now, bytes, attributed);
        self.published[access.index()].publish(learner.model());
    }

    /// For operators.
    pub fn status(&self) -> Vec<CostStatus> {
        let learners = self.learners.lock().unwrap_or_else(PoisonError::into_inner);
        let status = |(access, learner): (Access, &CostLearner)| {
            let model = learner.model();
            CostStatus {
                access: access.name().to_owned(),
                per_op_ns: model.per_op.0,
                bandwidth_bytes_per_s: model.limited_bandwidth().map(Rate::bytes_per_s),
                error: learner.error(),
            }
        };
        Access::ALL.into_iter().zip(&*learners).filter(|(_, learner)| learner.is_trained()).map(status).collect()
    }
}

/// What was measured of the device of `target`, whose objects lie in `dir`, if anything was.
///
/// # Errors
/// With the reason why that cannot be read.
pub fn read_profile(target: &TargetConfig, dir: &Path) -> Result<Option<DeviceProfile>, String> {
    let path = target.profile.clone().unwrap_or_else(|| dir.join(PROFILE_NAME));
    let fail = |error: &dyn Display| format!("the device's profile {}: {error}", path.display());
    match std::fs::read_to_string(&path) {
        Ok(text) => toml::from_str(&text).map(Some).map_err(|error| fail(&error)),
        // What is wrong with the directory itself is told by who enters it.
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) && target.profile.is_none() =>
        {
            Ok(None)
        }
        Err(error) => Err(fail(&error)),
    }
}

/// The part of a job's latest reads that was not in memory.
#[derive(Debug)]
pub struct Misses(AtomicU32);

impl Misses {
    const ALL: u32 = 1 << 16;
    /// Of so many requests one changes the part by that much.
    const WEIGHT: u32 = 16;

    /// A read was in memory, or was not.
    pub fn note(&self, is_missed: bool) {
        let before = self.0.load(Ordering::Relaxed);
        let step = |left: u32| left / Self::WEIGHT + u32::from(left > 0);
        // Two threads may note at once; what one of them says is lost then.
        let after = if is_missed { before + step(Self::ALL - before) } else { before - step(before).min(before) };
        if after != before {
            self.0.store(after, Ordering::Relaxed);
        }
    }

    /// Whether all were in memory.
    pub fn are_none(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Whether some were not: one of the last ten, for instance.
    pub fn are_some(&self) -> bool {
        self.0.load(Ordering::Relaxed) > Self::ALL / 32
    }

    /// Whether most were not.
    pub fn are_most(&self) -> bool {
        self.0.load(Ordering::Relaxed) > Self::ALL / 2
    }

    /// Of what the device would take and of what memory does.
    pub fn between(&self, device: Nanos, memory: Nanos) -> Nanos {
        let part = u128::from(self.0.load(Ordering::Relaxed));
        let all = u128::from(Self::ALL);
        let sum = u128::from(device.0) * part + u128::from(memory.0) * (all - part);
        Nanos((sum / all) as u64)
    }
}

impl Default for Misses {
    /// Nobody knows: all are taken to come from the device.
    fn default() -> Self {
        Self(AtomicU32::new(Self::ALL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUESS: CostModel =
        CostModel { per_op: Nanos(2_000), bandwidth: Rate::new(8 << 30).expect("a constant that is not 0") };

    #[test]
    fn each_access_has_a_price_of_its_own() {
        let prices = Prices::new([GUESS; 4]);
        assert!(prices.status().is_empty(), "nothing is known yet");
        for at in 1..100 {
            prices.learn(Nanos::from_millis(5 * at), Access::ReadRandom, Bytes(4096), Nanos::from_millis(5));
        }
        let learnt = prices.predict(Access::ReadRandom, Bytes(4096)).0;
        assert!(learnt.abs_diff(5_000_000) < 5_000, "{learnt}");
        assert_eq!(prices.predict(Access::WriteRandom, Bytes(4096)), GUESS.cost(Bytes(4096)));
        let status = prices.status();
        assert_eq!((status.len(), status[0].access.as_str()), (1, "read-random"));
        assert!(status[0].error.unwrap() < 0.05, "{status:?}");
    }

    #[test]
    fn who_reads_from_memory_is_charged_for_memory_alone() {
        let misses = Misses::default();
        let between = |misses: &Misses| misses.between(Nanos(1_000_000), Nanos(10)).0;
        assert_eq!(between(&misses), 1_000_000);
        assert!(misses.are_most());
        (0..400).for_each(|_| misses.note(false));
        assert!(misses.are_none() && !misses.are_most() && between(&misses) == 10);
        misses.note(true);
        (0..9).for_each(|_| misses.note(false));
        assert!(misses.are_some() && !misses.are_most());
        (0..9).for_each(|_| misses.note(false));
        assert!(!misses.are_some() && !misses.are_none());
        (0..400).for_each(|at| misses.note(at % 2 == 0));
        assert!((300_000..700_000).contains(&between(&misses)), "{}", between(&misses));
        (0..400).for_each(|_| misses.note(true));
        assert_eq!(between(&misses), 1_000_000);
    }
}
