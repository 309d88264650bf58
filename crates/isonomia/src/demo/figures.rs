//! From counters that only grow to shares and throughputs.

use serde::Serialize;

/// The server's counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The server's clock, in seconds since its start.
    pub time_s: f64,
    /// In the order of [`super::JOBS`].
    pub jobs: [JobSample; 2],
}

/// One job's part of a [`Sample`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct JobSample {
    /// As the server says.
    pub share_due: f64,
    /// Read and written since the server's start.
    pub bytes_total: u64,
    /// Service since the server's start.
    pub service_ns_total: u64,
}

/// What a job was due and had over a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Mean of what the samples say.
    pub share_due: f64,
    /// Part of the service that both jobs had, 0 to 1; 0 when there was none.
    pub share_received: f64,
    /// Mean over the span.
    pub throughput_bytes_per_s: f64,
}

/// What happened between two neighbouring samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slice {
    /// End of the slice, in seconds since the first sample.
    pub time_s: f64,
    /// In the order of [`super::JOBS`].
    pub throughput_bytes_per_s: [f64; 2],
}

/// The figures of the span that begins with the first sample at or after `from_s`; `None` if fewer than two
/// moments are left.
pub fn figures(samples: &[Sample], from_s: f64) -> Option<[Figures; 2]> {
    let span = &samples[samples.iter().position(|sample| sample.time_s >= from_s)?..];
    let (first, last) = (span.first()?, span.last()?);
    let seconds = last.time_s - first.time_s;
    if seconds <= 0.0 {
        return None;
    }
    let service = |job: usize| last.jobs[job].service_ns_total.saturating_sub(first.jobs[job].service_ns_total) as f64;
    let total = service(0) + service(1);
    Some([0, 1].map(|job| Figures {
        share_due: span.iter().map(|sample| sample.jobs[job].share_due).sum::<f64>() / span.len() as f64,
        share_received: if total > 0.0 { service(job) / total } else { 0.0 },
        throughput_bytes_per_s: last.jobs[job].bytes_total.saturating_sub(first.jobs[job].bytes_total) as f64 / seconds,
    }))
}

/// Throughput between neighbouring samples; pairs without time between them are left out.
pub fn slices(samples: &[Sample]) -> Vec<Slice> {
    let start_s = samples.first().map_or(0.0, |first| first.time_s);
    let pairs = samples.iter().zip(samples.iter().skip(1));
    pairs
        .filter(|(a, b)| b.time_s > a.time_s)
        .map(|(a, b)| Slice {
            time_s: b.time_s - start_s,
            throughput_bytes_per_s: [0, 1].map(|job| {
                b.jobs[job].bytes_total.saturating_sub(a.jobs[job].bytes_total) as f64 / (b.time_s - a.time_s)
            }),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time_s: f64, [small, large]: [(f64, u64, u64); 2]) -> Sample {
        let job = |(share_due, bytes_total, service_ns_total)| JobSample { share_due, bytes_total, service_ns_total };
        Sample { time_s, jobs: [job(small), job(large)] }
    }

    #[test]
    fn figures_are_those_of_the_span_alone() {
        let samples = [
            sample(10.0, [(0.0, 0, 0), (1.0, 5_000, 5_000)]),
            sample(11.0, [(0.2, 100, 1_000), (0.8, 9_000, 9_000)]),
            sample(12.0, [(0.2, 200, 2_000), (0.8, 9_400, 12_000)]),
            sample(13.0, [(0.5, 300, 3_000), (0.5, 9_800, 15_000)]),
        ];
        let [small, large] = figures(&samples, 10.5).unwrap();
        assert!((small.share_due - 0.3).abs() < 1e-12);
        assert_eq!((small.share_received, large.share_received), (0.25, 0.75));
        assert_eq!((small.throughput_bytes_per_s, large.throughput_bytes_per_s), (100.0, 400.0));
    }

    #[test]
    fn no_time_and_no_service_give_no_nonsense() {
        let still = sample(1.0, [(0.5, 7, 7), (0.5, 7, 7)]);
        assert_eq!(figures(&[still, still], 0.0), None);
        assert_eq!(figures(&[still], 2.0), None);
        let later = Sample { time_s: 2.0, ..still };
        let [small, _] = figures(&[still, later], 0.0).unwrap();
        assert_eq!((small.share_received, small.throughput_bytes_per_s), (0.0, 0.0));
    }

    #[test]
    fn slices_begin_at_zero_and_skip_repeated_moments() {
        let samples = [
            sample(5.0, [(0.0, 100, 0), (0.0, 0, 0)]),
            sample(5.0, [(0.0, 100, 0), (0.0, 0, 0)]),
            sample(5.5, [(0.0, 150, 0), (0.0, 10, 0)]),
        ];
        assert_eq!(slices(&samples), [Slice { time_s: 0.5, throughput_bytes_per_s: [100.0, 20.0] }]);
        assert_eq!(slices(&[]), []);
    }
}
