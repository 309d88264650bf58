//! Bytes over time, in slices of equal length from a common start. A call counts in the slice in which it ends.

/// More slices than this are refused: 100 s of 10 ms.
pub const SLICES_MAX: u64 = 10_000;

/// The bytes of one process.
#[derive(Clone, Debug)]
pub struct Slices {
    origin_ns: u64,
    slice_ns: u64,
    bytes: Vec<u64>,
}

impl Slices {
    /// Slices of `slice_ns` from `origin_ns` on, for `span_ns`; nothing is allocated later.
    pub fn new(origin_ns: u64, slice_ns: u64, span_ns: u64) -> Self {
        let count = span_ns.div_ceil(slice_ns).min(SLICES_MAX);
        Self { origin_ns, slice_ns, bytes: vec![0; count as usize] }
    }

    /// Counts a call that ended `at_ns`; one beyond the span is left out.
    #[inline]
    pub fn count(&mut self, at_ns: u64, bytes: u64) {
        let index = at_ns.saturating_sub(self.origin_ns) / self.slice_ns;
        if let Some(slice) = self.bytes.get_mut(index as usize) {
            *slice += bytes;
        }
    }

    /// Bytes of every slice.
    pub fn into_bytes(self) -> Vec<u64> {
        self.bytes
    }
}

/// The processes of a job together.
pub fn add(slices: impl IntoIterator<Item = Vec<u64>>) -> Vec<u64> {
    let mut sum = Vec::new();
    for one in slices {
        sum.resize(sum.len().max(one.len()), 0);
        for (total, bytes) in sum.iter_mut().zip(one) {
            *total += bytes;
        }
    }
    sum
}

/// `count` slices made into one; an incomplete rest is left out.
pub fn coarser(slices: &[u64], count: usize) -> Vec<u64> {
    slices.chunks_exact(count).map(|chunk| chunk.iter().sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_where_it_ends() {
        let mut slices = Slices::new(1_000, 10, 35);
        for (at, bytes) in [(1_000, 1), (1_009, 2), (1_010, 4), (1_039, 8), (1_040, 16), (990, 32)] {
            slices.count(at, bytes);
        }
        assert_eq!(slices.into_bytes(), [35, 4, 0, 8]);
    }

    #[test]
    fn slices_add_up_and_coarsen() {
        let sum = add([vec![1, 2, 3, 4, 5], vec![10, 20]]);
        assert_eq!(sum, [11, 22, 3, 4, 5]);
        assert_eq!(coarser(&sum, 2), [33, 7]);
    }
}
