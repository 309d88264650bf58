//! What every hook is made of: the macro that defines one, the real function behind it, and how it fails.
//!
//! Every hook has the same shape: `hook!` exports a function under libc's name and binds a closure to the
//! real one; the body decides between "ours" and "theirs". Arguments from C are wrapped in the types of
//! [`crate::foreign`], so that bodies need no `unsafe`.

use rustix::io::Errno;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next definition of a function in the search order: libc's, or another preloaded library's.
pub struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Null when no other library defines the function.
    #[inline]
    pub fn address(&self) -> *mut c_void {
        // Acquire is not needed: the address is all there is to see.
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: the name is NUL-terminated.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// A result type of libc and the value that stands for failure.
pub trait Failure {
    const FAILED: Self;
}

macro_rules! failure {
    ($($ty:ty = $value:expr),* $(,)?) => {$(
        impl Failure for $ty {
            const FAILED: Self = $value;
        }
    )*};
}
failure!(i32 = -1, i64 = -1, isize = -1, u32 = 0, () = ());

impl<T> Failure for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

/// Sets `errno`.
pub fn set_errno(errno: Errno) {
    set_errno_number(errno.raw_os_error());
}

/// Sets `errno` to a number, perhaps 0.
pub fn set_errno_number(number: c_int) {
    // SAFETY: the location is this thread's own and always valid.
    unsafe { *libc::__errno_location() = number };
}

/// The calling thread's `errno`: a number, because programs may set it to what is no [`Errno`], such as 0.
pub fn errno_number() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// Whether the last failed call failed with `errno`.
pub fn failed_with(errno: Errno) -> bool {
    errno_number() == errno.raw_os_error()
}

/// Fails as libc functions do: `errno` and the failure value.
#[cold]
pub fn fail<T: Failure>(errno: Errno) -> T {
    set_errno(errno);
    T::FAILED
}

/// What becomes of a served operation in the program's eyes.
pub fn returned<T: Failure>(result: Result<T, isonomia_client::Error>) -> T {
    result.unwrap_or_else(|error| fail(error.errno()))
}

/// Defines a hook: `fn name(arguments) -> type, real { body }`. In the body `real(arguments)` is the function that
/// the hook stands before. In unit tests nothing is exported, so that the test program keeps its own libc.
macro_rules! hook {
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty, $real:ident $body:block) => {
        $(#[$meta])*
        #[cfg_attr(not(any(test, feature = "wrap")), unsafe(no_mangle))]
        #[cfg_attr(all(feature = "wrap", not(test)), unsafe(export_name = concat!("__wrap_", stringify!($name))))]
        #[cfg_attr(test, allow(dead_code))]
        #[allow(clippy::too_many_arguments, non_snake_case)]
        pub extern "C" fn $name($($arg: $ty),*) -> $ret {
            real!($name($($arg: $ty),*) -> $ret, $real);
            $body
        }
    };
}

/// Defines `$real`, which calls the function that the hook `$name` stands before: the next in the search order.
#[cfg(not(feature = "wrap"))]
macro_rules! real {
    ($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $real:ident) => {
            static SYMBOL: $crate::hook::Symbol = $crate::hook::Symbol::new(
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                },
            );
            #[allow(unused_variables, clippy::too_many_arguments)]
            #[inline(always)]
            fn $real($($arg: $ty),*) -> $ret {
                let address = SYMBOL.address();
                if address.is_null() {
                    return $crate::hook::fail(rustix::io::Errno::NOSYS);
                }
                // SAFETY: the symbol of this name has this signature in the C library's interface.
                let function: extern "C" fn($($ty),*) -> $ret = unsafe { std::mem::transmute(address) };
                function($($arg),*)
            }
    };
}

/// As above: what the linker calls `__real_…`.
#[cfg(feature = "wrap")]
macro_rules! real {
    ($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $real:ident) => {
        #[allow(unused_variables, dead_code, clippy::too_many_arguments)]
        #[inline(always)]
        fn $real($($arg: $ty),*) -> $ret {
            unsafe extern "C" {
                #[link_name = concat!("__real_", stringify!($name))]
                fn wrapped($($arg: $ty),*) -> $ret;
            }
            // SAFETY: the symbol of this name has this signature in the C library's interface.
            unsafe { wrapped($($arg),*) }
        }
    };
}
