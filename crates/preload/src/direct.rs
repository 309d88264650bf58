//! System calls by their instruction, for calls of a program's that come before the C library's functions were looked up.
//!
//! An allocator that is used for the first time opens files and maps memory. At that time nobody may be asked for memory,
//! which looking up a function may do; so the hook does what the function would.

use crate::hook::{Failure, fail};
use libc::c_long;
use rustix::io::Errno;
use std::ffi::{c_int, c_uint, c_void};

/// The kernel returns errors as -4095 to -1.
const ERRNO_LAST: isize = -4095;

/// What fits into a register, as an argument of a system call.
pub trait Word {
    /// The register's value.
    fn word(self) -> c_long;
}

/// What the C library's function makes of the kernel's answer when that is no error.
pub trait Answer: Failure {
    /// The function's result.
    fn from_kernel(value: isize) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Word for $number {
            fn word(self) -> c_long {
                self as c_long
            }
        }

        impl Answer for $number {
            fn from_kernel(value: isize) -> Self {
                value as Self
            }
        }
    )*};
}
numbers!(c_int, c_long, isize);

macro_rules! words {
    ($($word:ty),*) => {$(
        impl Word for $word {
            fn word(self) -> c_long {
                self as c_long
            }
        }
    )*};
}
words!(c_uint, usize, *mut c_void, *const c_void);

/// Makes a system call of at most six arguments.
///
/// # Safety
/// The arguments are as the call of this number asks for.
#[cold]
pub unsafe fn call<T: Answer>(number: c_long, words: &[c_long]) -> T {
    let mut all = [0; 6];
    all.iter_mut().zip(words).for_each(|(into, word)| *into = *word);
    // SAFETY: the caller's promise.
    let answer = unsafe { instruction(number, all) };
    match answer {
        ERRNO_LAST..=-1 => fail(Errno::from_raw_os_error(-answer as i32)),
        _ => T::from_kernel(answer),
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn instruction(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> isize {
    let answer;
    // SAFETY: the caller's promise; the kernel changes no other registers than these.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

#[cfg(target_arch = "aarch64")]
unsafe fn instruction(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> isize {
    let answer;
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => answer,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hook::failed_with;

    #[test]
    fn the_kernel_answers_as_the_c_library_does() {
        let mut ends = [0 as c_int; 2];
        // SAFETY: arguments as `pipe2`, `write`, `read`, `lseek` and `close` ask for.
        unsafe {
            assert_eq!(call::<c_int>(libc::SYS_pipe2, &[ends.as_mut_ptr() as c_long, 0]), 0);
            let text = b"six arguments";
            let mut read = [0u8; 32];
            let (reader, writer) = (ends[0].word(), ends[1].word());
            assert_eq!(call::<isize>(libc::SYS_write, &[writer, text.as_ptr() as c_long, text.len().word()]), 13);
            assert_eq!(call::<isize>(libc::SYS_read, &[reader, read.as_mut_ptr() as c_long, read.len().word()]), 13);
            assert_eq!(&read[..13], text);
            assert_eq!(call::<c_long>(libc::SYS_lseek, &[reader, 0, 0]), -1);
            assert!(failed_with(Errno::SPIPE));
            assert_eq!((call::<c_int>(libc::SYS_close, &[reader]), call::<c_int>(libc::SYS_close, &[writer])), (0, 0));
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory: isize = call(libc::SYS_mmap, &[0, 4096, libc::PROT_READ.into(), flags.into(), -1, 0]);
            assert!(memory > 0);
            assert_eq!(call::<c_int>(libc::SYS_munmap, &[memory as c_long, 4096]), 0);
        }
    }
}
