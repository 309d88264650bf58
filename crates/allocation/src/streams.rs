//! Streams that each pass through several resources, and their max-min fair rates.

use crate::filling::fill;
use crate::program::Matrix;

/// Why streams have no rates.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum StreamError {
    /// A capacity that is none.
    #[error("resource {resource}: capacity {capacity} (allowed: a finite number that is not negative)")]
    BadCapacity {
        /// Its position.
        resource: usize,
        /// What was given.
        capacity: f64,
    },
    /// A weight that is none.
    #[error("stream {stream}: weight {weight} (allowed: a positive number)")]
    BadWeight {
        /// Its position.
        stream: usize,
        /// What was given.
        weight: f64,
    },
    /// A stream through nothing, through what is not there, or twice through the same.
    #[error("stream {stream}: allowed are resources that exist, each once, and at least one")]
    BadWay {
        /// Its position.
        stream: usize,
    },
}

/// The max-min fair rates of streams: `streams` has for each its weight and the resources on its way, each once, as
/// positions in `capacities`; a stream takes its rate of all of them. A rate over its weight can only be raised by
/// taking from one that is no higher.
///
/// Bertsekas and Gallager, Data Networks, §6.5.2. Capacities should be of the order of one: what is within 1e-10 of
/// none is none. O((n + m) m + entries) for n streams and m resources.
///
/// # Errors
/// A capacity is negative or no number, a weight is no positive number, or a stream passes through nothing, or through
/// what is not there, or twice through the same.
///
/// ```
/// // Two streams share the first resource; the second stream has a narrow second one.
/// let rates = isonomia_allocation::max_min_rates(&[1.0, 0.25], &[(1.0, &[0][..]), (1.0, &[0, 1])])?;
/// assert_eq!(rates, [0.75, 0.25]);
/// # Ok::<(), isonomia_allocation::StreamError>(())
/// ```
pub fn max_min_rates(capacities: &[f64], streams: &[(f64, &[u32])]) -> Result<Vec<f64>, StreamError> {
    for (resource, &capacity) in capacities.iter().enumerate() {
        if !(capacity.is_finite() && capacity >= 0.0) {
            return Err(StreamError::BadCapacity { resource, capacity });
        }
    }
    for (stream, &(weight, way)) in streams.iter().enumerate() {
        if !(weight.is_finite() && weight > 0.0) {
            return Err(StreamError::BadWeight { stream, weight });
        }
        let is_good =
            |(at, resource): (usize, &u32)| (*resource as usize) < capacities.len() && !way[..at].contains(resource);
        if way.is_empty() || !way.iter().enumerate().all(is_good) {
            return Err(StreamError::BadWay { stream });
        }
    }
    let columns = streams.iter().map(|(_, way)| way.iter().map(|&at| (at, 1.0)));
    let matrix = Matrix::new(capacities.len(), columns);
    let weights: Vec<f64> = streams.iter().map(|stream| stream.0).collect();
    let mut rates = vec![0.0; streams.len()];
    fill(&matrix, &mut capacities.to_vec(), &weights, &mut rates);
    Ok(rates)
}
