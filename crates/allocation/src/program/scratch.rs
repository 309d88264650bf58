//! Memory for the large arrays of one program after the other.

/// Arrays that are kept between decisions. Some are hundreds of KiB large: to have them anew from the operating system, which
/// clears them first, takes a tenth of a decision of a thousand applications.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Vec<Vec<f64>>);

/// Arrays that are kept at most: those of two programs at once, and of a factor.
const ARRAYS_MAX: usize = 3;
/// The longest array that is kept: 8 MiB.
const LEN_MAX: usize = 1 << 20;

impl Scratch {
    /// So many zeros.
    pub(crate) fn zeros(&mut self, len: usize) -> Vec<f64> {
        let mut array = self.0.pop().unwrap_or_default();
        array.clear();
        array.resize(len, 0.0);
        array
    }

    /// Takes back an array that is not needed any more.
    pub(crate) fn keep(&mut self, array: Vec<f64>) {
        if self.0.len() < ARRAYS_MAX && array.capacity() <= LEN_MAX {
            self.0.push(array);
        }
    }
}

/// A copy begins with none: what arrays hold means nothing.
impl Clone for Scratch {
    fn clone(&self) -> Self {
        Self::default()
    }
}
