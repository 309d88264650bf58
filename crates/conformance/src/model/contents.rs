//! The bytes of a file, as the history of what was written.

use std::ops::Range;

/// A file's bytes: all writes, the oldest first. Reading paints them one over the other onto zeros.
#[derive(Debug, Default)]
pub struct Contents {
    size: u64,
    written: Vec<(Range<u64>, u8)>,
}

impl Contents {
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes `len` times `fill`; what was not there before `at` is a hole. Nothing written changes nothing.
    pub fn write(&mut self, at: u64, len: u64, fill: u8) {
        if len > 0 {
            self.written.push((at..at + len, fill));
            self.size = self.size.max(at + len);
        }
    }

    /// Cuts what is behind `size` off, or adds a hole.
    pub fn resize(&mut self, size: u64) {
        for (range, _) in &mut self.written {
            *range = range.start.min(size)..range.end.min(size);
        }
        self.size = size;
    }

    /// At most `len` bytes from `at` on.
    pub fn read(&self, at: u64, len: u64) -> Vec<u8> {
        let end = (at + len).min(self.size);
        let mut bytes = vec![0; end.saturating_sub(at) as usize];
        for (range, fill) in &self.written {
            let (from, to) = (range.start.max(at), range.end.min(end));
            if from < to {
                bytes[(from - at) as usize..(to - at) as usize].fill(*fill);
            }
        }
        bytes
    }
}
