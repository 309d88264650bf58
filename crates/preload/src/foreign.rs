//! Arguments that come from C.
//!
//! Values of these types are made by C callers only (each is its pointer, `repr(transparent)`), and the callers
//! vouch for what the C library's interface asks of them: strings end in NUL, buffers are as long as said and
//! stay put during the call. That promise is the safety argument of every method here. Null is checked.

use crate::direct::{Answer, Word};
use libc::c_long;
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_int, c_void};

/// A path or another string.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct CPath(*const c_char);

/// Room for one `T` that the call fills.
#[repr(transparent)]
pub struct Out<T>(*mut T);

/// An array of `T`, or one, that the call reads.
#[repr(transparent)]
pub struct In<T>(*const T);

/// A buffer that the call fills.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Buffer(*mut c_void);

/// A buffer that the call reads.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Data(*const c_void);

/// A pointer that is only handed on.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Opaque(pub *mut c_void);

macro_rules! words {
    ($($pointer:ty),*) => {$(
        impl Word for $pointer {
            fn word(self) -> c_long {
                self.0 as c_long
            }
        }
    )*};
}
words!(CPath, Buffer, Data, Opaque);

impl<T> Word for Out<T> {
    fn word(self) -> c_long {
        self.0 as c_long
    }
}

impl Answer for Opaque {
    fn from_kernel(value: isize) -> Self {
        Self(value as *mut c_void)
    }
}

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl CPath {
    /// `text` as C sees it.
    pub fn new(text: &CStr) -> Self {
        Self(text.as_ptr())
    }

    pub fn as_ptr(self) -> *const c_char {
        self.0
    }

    /// The bytes without the NUL; `None` for a null pointer.
    pub fn bytes<'a>(self) -> Option<&'a [u8]> {
        // SAFETY: the caller's promise.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }
}

impl<T> Out<T> {
    pub fn new(target: &mut T) -> Self {
        Self(target)
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn as_ptr(self) -> *mut T {
        self.0
    }

    /// Stores `value`; EFAULT for a null pointer.
    pub fn put(self, value: T) -> Result<(), isonomia_client::Error> {
        if self.0.is_null() {
            return Err(isonomia_client::Error::Argument(Errno::FAULT));
        }
        // SAFETY: the caller's promise.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

impl<T: Copy> Out<T> {
    /// The value that is there; EFAULT for a null pointer.
    pub fn get(self) -> Result<T, isonomia_client::Error> {
        // SAFETY: the caller's promise.
        (!self.0.is_null()).then(|| unsafe { self.0.read() }).ok_or(isonomia_client::Error::Argument(Errno::FAULT))
    }
}

impl<T: Copy> In<T> {
    pub fn new(value: &T) -> Self {
        Self(value)
    }

    /// The first value.
    pub fn get(self) -> Option<T> {
        // SAFETY: the caller's promise.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// The first `count` values.
    pub fn slice<'a>(self, count: usize) -> Option<&'a [T]> {
        // SAFETY: the caller's promise.
        (!self.0.is_null()).then(|| unsafe { std::slice::from_raw_parts(self.0, count) })
    }
}

impl Opaque {
    /// The same pointer, to what the call fills.
    pub fn to_fill(self) -> Buffer {
        Buffer(self.0)
    }

    /// The same pointer, to what the call reads.
    pub fn to_read(self) -> Data {
        Data(self.0)
    }
}

impl Buffer {
    /// The buffer's `len` bytes. Transfers only write to them, so it does not matter that they may not have been
    /// initialised.
    pub fn bytes<'a>(self, len: usize) -> Option<&'a mut [u8]> {
        match (self.0.is_null(), len) {
            (_, 0) => Some(&mut []),
            (true, _) => None,
            // SAFETY: the caller's promise.
            (false, _) => Some(unsafe { std::slice::from_raw_parts_mut(self.0.cast(), len) }),
        }
    }
}

impl Data {
    /// The buffer's `len` bytes.
    pub fn bytes<'a>(self, len: usize) -> Option<&'a [u8]> {
        match (self.0.is_null(), len) {
            (_, 0) => Some(&[]),
            (true, _) => None,
            // SAFETY: the caller's promise.
            (false, _) => Some(unsafe { std::slice::from_raw_parts(self.0.cast(), len) }),
        }
    }
}

/// The parts of a vectored transfer; EINVAL when there are more than the kernel takes, or their sum overflows.
pub fn parts<'a>(iov: In<libc::iovec>, count: c_int) -> Result<&'a [libc::iovec], isonomia_client::Error> {
    let invalid = isonomia_client::Error::Argument(Errno::INVAL);
    let count = usize::try_from(count).ok().filter(|n| *n <= libc::UIO_MAXIOV as usize).ok_or(invalid.clone())?;
    if count == 0 {
        return Ok(&[]);
    }
    let parts = iov.slice(count).ok_or(isonomia_client::Error::Argument(Errno::FAULT))?;
    let total = parts.iter().try_fold(0isize, |sum, part| sum.checked_add(isize::try_from(part.iov_len).ok()?));
    total.map(|_| parts).ok_or(invalid)
}

/// One part of a vectored read.
pub fn part_buffer(part: &libc::iovec) -> Buffer {
    Buffer(part.iov_base)
}

/// One part of a vectored write.
pub fn part_data(part: &libc::iovec) -> Data {
    Data(part.iov_base)
}

/// Copies `bytes` and a NUL to memory from `malloc`, for results that programs free.
pub fn malloc_string(bytes: &[u8]) -> *mut c_char {
    // SAFETY: the length is that of a slice, plus one.
    let memory = unsafe { libc::malloc(bytes.len() + 1) }.cast::<u8>();
    if memory.is_null() {
        return crate::hook::fail(Errno::NOMEM);
    }
    // SAFETY: the memory is fresh and one byte longer than `bytes`.
    unsafe {
        memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        memory.add(bytes.len()).write(0);
    }
    memory.cast()
}
