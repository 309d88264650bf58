//! What hooks are made of: the macros that define them by the table of [`crate::calls`], the way to the real functions,
//! and how calls fail.
//!
//! Every hook has the same shape: `entry::NAME`, exported under the C library's name, calls the function of a family, which
//! decides between "ours" and "theirs" and for the latter calls `real::NAME`. Arguments from C are wrapped in the types
//! of [`crate::foreign`], so that families need no `unsafe`.

use rustix::io::Errno;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The next definition of a function in the search order: libc's, or another preloaded library's.
pub struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

/// Set when all functions behind the hooks have been looked up.
static ARE_RESOLVED: AtomicBool = AtomicBool::new(false);

/// Whether all functions behind the hooks have been looked up, which this library's start does. Calls before it come from
/// the starts of other libraries, or from an allocator that is being used for the first time and must not be asked for memory.
#[inline]
pub fn are_resolved() -> bool {
    ARE_RESOLVED.load(Ordering::Relaxed)
}

/// Says that all functions behind the hooks have been looked up.
#[cfg_attr(any(test, feature = "wrap"), allow(dead_code, reason = "nothing is looked up"))]
pub fn resolved() {
    ARE_RESOLVED.store(true, Ordering::Relaxed);
}

#[cfg_attr(feature = "wrap", allow(dead_code, reason = "the linker knows the functions"))]
impl Symbol {
    /// A function by its name, which ends in NUL.
    pub const fn new(name: &'static str) -> Self {
        let name = match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        };
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Null until it was looked up.
    #[inline]
    pub fn known(&self) -> *mut c_void {
        // Acquire is not needed: the address is all there is to see.
        self.address.load(Ordering::Relaxed)
    }

    /// Null when no other library defines the function.
    #[inline]
    pub fn address(&self) -> *mut c_void {
        let known = self.known();
        if known.is_null() { self.look_up() } else { known }
    }

    /// As [`Self::address`]. The dynamic linker may take locks and memory of the program's: not to be done where a program
    /// cannot expect that, so the start of this library does it for every function.
    #[cold]
    pub fn look_up(&self) -> *mut c_void {
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

/// Defines what the table of [`crate::calls`] says:
///
/// * `entry`: the functions that programs call, exported under their names, or `__wrap_NAME` with the feature `wrap`.
///   In unit tests nothing is exported, so that the test program keeps its own libc.
/// * `real`: the functions that they stand before, the next of the name in the search order, or `__real_NAME`.
/// * `symbol`: where those are, and `look_up_all`, which finds them.
/// * `TABLE`: what the page of calls says.
macro_rules! calls {
    (
        $(served $served:literal { $($served_row:tt)* })*
        $(refused $refused:literal { $($refused_row:tt)* })*
        $(passed $passed:literal { $($passed_name:ident)* })*
    ) => {
        /// What programs call.
        #[cfg_attr(test, allow(dead_code, reason = "called by programs only"))]
        pub mod entry {
            use super::*;
            $(rows! { entry $($served_row)* })*
            $(rows! { entry $($refused_row)* })*
        }

        /// What these would have called without this library: the next library's functions.
        #[allow(dead_code, reason = "some calls are done without them")]
        pub mod real {
            use super::*;
            $(rows! { real $($served_row)* })*
            $(rows! { real $($refused_row)* })*
        }

        /// Where the functions of [`real`](mod@real) are.
        #[cfg(not(feature = "wrap"))]
        #[allow(non_upper_case_globals, reason = "each has the name of its function")]
        pub mod symbol {
            $(rows! { symbol $($served_row)* })*
            $(rows! { symbol $($refused_row)* })*
        }

        /// Looks up all of them.
        #[cfg_attr(any(test, feature = "wrap"), allow(dead_code, reason = "nothing is looked up"))]
        pub fn look_up_all() {
            $(rows! { look_up $($served_row)* })*
            $(rows! { look_up $($refused_row)* })*
        }

        #[cfg(test)]
        pub const TABLE: $crate::page::Table = $crate::page::Table {
            served: &[$($crate::page::Family { title: $served, rows: row_names! { $($served_row)* } }),*],
            refused: &[$($crate::page::Family { title: $refused, rows: row_names! { $($refused_row)* } }),*],
            passed: &[$(($passed, &[$(stringify!($passed_name)),*])),*],
        };
    };
}

/// Defines the entries of a family, or the real functions behind them, or where those are.
macro_rules! rows {
    ($side:ident $(
        $($name:ident)* $([$($dynamic:ident)+])? ($($args:tt)*) -> $ret:ty = $module:ident $(:: $function:ident)?
            $(| $call:ident $words:tt)?;
    )*) => {
        $(names! {
            $side ($($args)*) -> $ret = [$module $(:: $function)?] [$($call $words)?]; $($name)*; $($($dynamic)+)?
        })*
    };
}

macro_rules! names {
    (entry $args:tt -> $ret:ty = $what:tt $early:tt; $($name:ident)*; $($dynamic:ident)*) => {
        $(entry! { $name $args -> $ret = $what })*
        $(
            #[cfg(not(feature = "wrap"))]
            entry! { $dynamic $args -> $ret = $what }
        )*
    };
    (real $args:tt -> $ret:ty = $what:tt $early:tt; $($name:ident)*; $($dynamic:ident)*) => {
        $(real! { $name $args -> $ret = $early })*
        $(real! { $dynamic $args -> $ret = $early })*
    };
    // Functions with any number of arguments are done without the real ones.
    ($side:ident ($($arg:ident: $ty:ty),+, ...) -> $ret:ty = $what:tt $early:tt; $($name:ident)*; $($dynamic:ident)*) => {};
    (symbol $args:tt -> $ret:ty = $what:tt $early:tt; $($name:ident)*; $($dynamic:ident)*) => {
        $(pub static $name: $crate::hook::Symbol = $crate::hook::Symbol::new(concat!(stringify!($name), "\0"));)*
        $(pub static $dynamic: $crate::hook::Symbol = $crate::hook::Symbol::new(concat!(stringify!($dynamic), "\0"));)*
    };
    (look_up $args:tt -> $ret:ty = $what:tt $early:tt; $($name:ident)*; $($dynamic:ident)*) => {
        #[cfg(not(feature = "wrap"))]
        {
            $(symbol::$name.look_up();)*
            $(symbol::$dynamic.look_up();)*
        }
    };
}

/// The rows of a family for the page.
#[cfg(test)]
macro_rules! row_names {
    ($(
        $($name:ident)* $([$($dynamic:ident)+])? ($($args:tt)*) -> $ret:ty = $module:ident $(:: $function:ident)?
            $(| $call:ident $words:tt)?;
    )*) => {
        &[$($crate::page::Row {
            names: &[$(stringify!($name),)* $($(stringify!($dynamic)),+)?],
            what: concat!(stringify!($module) $(, "::", stringify!($function))?),
        }),*]
    };
}

/// Exports one name.
macro_rules! entry {
    ($name:ident ($($arg:ident: $ty:ty),*) -> $ret:ty = [$module:ident::$function:ident]) => {
        #[cfg_attr(not(any(test, feature = "wrap")), unsafe(no_mangle))]
        #[cfg_attr(all(feature = "wrap", not(test)), unsafe(export_name = concat!("__wrap_", stringify!($name))))]
        #[allow(clippy::too_many_arguments, non_snake_case)]
        pub extern "C" fn $name($($arg: $ty),*) -> $ret {
            $crate::$module::$function($($arg),*)
        }
    };
    ($name:ident ($fd:ident: c_int $(, $arg:ident: $ty:ty)*) -> $ret:ty = [$errno:ident]) => {
        #[cfg_attr(not(any(test, feature = "wrap")), unsafe(no_mangle))]
        #[cfg_attr(all(feature = "wrap", not(test)), unsafe(export_name = concat!("__wrap_", stringify!($name))))]
        pub extern "C" fn $name($fd: c_int $(, $arg: $ty)*) -> $ret {
            if $crate::table::is_ours($fd) {
                $crate::hook::fail(rustix::io::Errno::$errno)
            } else {
                super::real::$name($fd $(, $arg)*)
            }
        }
    };
    ($name:ident ($($arg:ident: $ty:ty),+, ...) -> $ret:ty = [$module:ident::$function:ident]) => {
        mod $name {
            use super::*;
            /// What the instructions below call.
            pub extern "C" fn with_list($($arg: $ty,)+ rest: *mut Arguments) -> $ret {
                $crate::$module::$function($($arg,)+ rest)
            }
        }
        variadic! { $name($($arg)+) by $name::with_list }
    };
    ($name:ident ($($arg:ident: $ty:ty),+; caller) -> $ret:ty = [$module:ident::$function:ident]) => {
        mod $name {
            use super::*;
            /// What the instructions below call.
            pub extern "C" fn ask($($arg: $ty),+) -> $crate::library::Onward {
                $crate::$module::$function($($arg),+)
            }
        }
        onward! { $name by $name::ask }
    };
}

/// Defines the function that the entry of one name stands before; those with any number of arguments need none.
#[cfg(not(feature = "wrap"))]
macro_rules! real {
    ($name:ident ($($arg:ident: $ty:ty),*) -> $ret:ty = $early:tt) => {
        #[allow(clippy::too_many_arguments, non_snake_case)]
        #[inline(always)]
        pub fn $name($($arg: $ty),*) -> $ret {
            let mut address = symbol::$name.known();
            if address.is_null() {
                early! { $early }
                address = symbol::$name.look_up();
                if address.is_null() {
                    return $crate::hook::fail(rustix::io::Errno::NOSYS);
                }
            }
            // SAFETY: the symbol of this name has this signature in the C library's interface.
            let function: extern "C" fn($($ty),*) -> $ret = unsafe { std::mem::transmute(address) };
            function($($arg),*)
        }
    };
    ($name:ident ($($arg:ident: $ty:ty),+, ...) -> $ret:ty = $early:tt) => {};
    ($name:ident ($($arg:ident: $ty:ty),+; caller) -> $ret:ty = $early:tt) => {
        /// Where it is.
        pub fn $name() -> *mut c_void {
            symbol::$name.address()
        }
    };
}

/// What a function does that is called before it was looked up: the system call that it stands for, if it is one.
#[cfg(not(feature = "wrap"))]
macro_rules! early {
    ([]) => {};
    ([by_number($number:ident, $($word:ident),*)]) => {
        if !$crate::hook::are_resolved() {
            // SAFETY: the arguments are the caller's, for the kernel to check.
            return unsafe { $crate::direct::call($number, &[$($word),*]) };
        }
    };
    ([$call:ident($($word:expr),*)]) => {
        if !$crate::hook::are_resolved() {
            // SAFETY: the arguments are those of the C library's function, which does nothing else with them.
            return unsafe { $crate::direct::call(libc::$call, &[$($crate::direct::Word::word($word)),*]) };
        }
    };
}

/// As above: what the linker calls `__real_…`.
#[cfg(feature = "wrap")]
macro_rules! real {
    ($name:ident ($($arg:ident: $ty:ty),*) -> $ret:ty = $early:tt) => {
        #[allow(clippy::too_many_arguments, non_snake_case)]
        #[inline(always)]
        pub fn $name($($arg: $ty),*) -> $ret {
            unsafe extern "C" {
                #[link_name = concat!("__real_", stringify!($name))]
                fn wrapped($($arg: $ty),*) -> $ret;
            }
            // SAFETY: the symbol of this name has this signature in the C library's interface.
            unsafe { wrapped($($arg),*) }
        }
    };
    ($name:ident ($($arg:ident: $ty:ty),+, ...) -> $ret:ty = $early:tt) => {};
    ($name:ident ($($arg:ident: $ty:ty),+; caller) -> $ret:ty = $early:tt) => {
        /// Where it is.
        pub fn $name() -> *mut c_void {
            unsafe extern "C" {
                #[link_name = concat!("__real_", stringify!($name))]
                fn wrapped();
            }
            wrapped as *mut c_void
        }
    };
}
