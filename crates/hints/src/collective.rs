//! Collective reads and writes of MPI-IO: each is an I/O phase of the job, which is told to the preload client.
//!
//! Only of files that are the client's: which handles those are is noted when they are opened. A handle that MPI gives out again is
//! noted anew then, so that nothing has to be known of closing.

use crate::hook::NO_FUNCTION;
use crate::symbol::{Scope, of_process};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::{Mutex, PoisonError};

/// Open files that are known at a time; of one beyond that its phases are found by their requests.
const FILES_MAX: usize = 4_096;

/// `int isonomia_phase_begin(uint64_t bytes, double remaining_s)`.
type Begin = extern "C" fn(u64, f64) -> c_int;
/// `int isonomia_phase_end(void)`.
type End = extern "C" fn() -> c_int;
/// `int isonomia_serves(const char *path)`: whether files of this path are the client's.
type Serves = extern "C" fn(*const c_char) -> c_int;

/// Handles of C, which are pointers, and of Fortran, which are numbers.
static OPEN: [Mutex<Vec<usize>>; 2] = [Mutex::new(Vec::new()), Mutex::new(Vec::new())];

/// Whose handle it is.
#[derive(Clone, Copy)]
pub enum Language {
    /// C's.
    C = 0,
    /// Fortran's.
    Fortran = 1,
}

/// Whether files of this path are the client's.
pub fn is_served(path: &CStr) -> bool {
    let address = of_process(c"isonomia_serves");
    // SAFETY: the preload client's function of this name has this signature.
    !address.is_null() && unsafe { transmute::<*mut c_void, Serves>(address) }(path.as_ptr()) != 0
}

/// A file was opened as `handle`.
pub fn opened(language: Language, handle: usize, is_served: bool) {
    let mut open = OPEN[language as usize].lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|other| *other != handle);
    if is_served && open.len() < FILES_MAX {
        open.push(handle);
    }
}

/// A phase, from when it is made until it is dropped.
struct Phase(End);

impl Phase {
    fn of(language: Language, handle: usize) -> Option<Self> {
        let open = OPEN[language as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if !open.contains(&handle) {
            return None;
        }
        drop(open);
        let (begin, end) = (of_process(c"isonomia_phase_begin"), of_process(c"isonomia_phase_end"));
        if begin.is_null() || end.is_null() {
            return None;
        }
        // SAFETY: the preload client's functions of these names have these signatures.
        let (begin, end) = unsafe { (transmute::<*mut c_void, Begin>(begin), transmute::<*mut c_void, End>(end)) };
        // What a rank writes says little of what all do; earlier phases say more.
        (begin(0, 0.0) == 0).then_some(Self(end))
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Exports `$name`, a function of MPI's in C with these arguments, all of which fit in registers.
macro_rules! in_c {
    ($($name:ident or $profiled:literal as $real:literal ($($argument:ident),*);)*) => {$(
        /// Exported under the library's name; never called from here.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn $name(file: usize, $($argument: usize),*) -> c_int {
            type Call = extern "C" fn(usize, $(in_c!(@register $argument)),*) -> c_int;
            let scope = Scope::of(std::ptr::null());
            let mut address = scope.find($real);
            if address.is_null() {
                address = scope.find($profiled);
            }
            if address.is_null() {
                return NO_FUNCTION;
            }
            let phase = Phase::of(Language::C, file);
            // SAFETY: the MPI standard gives it as many arguments, and each is passed on as wide as a register.
            let call = unsafe { transmute::<*mut c_void, Call>(address) };
            let result = call(file, $($argument),*);
            drop(phase);
            result
        }
    )*};
    (@register $argument:ident) => { usize };
}

in_c! {
    MPI_File_write_all or c"PMPI_File_write_all" as c"MPI_File_write_all" (buffer, count, kind, status);
    MPI_File_read_all or c"PMPI_File_read_all" as c"MPI_File_read_all" (buffer, count, kind, status);
    MPI_File_write_at_all or c"PMPI_File_write_at_all" as c"MPI_File_write_at_all" (offset, buffer, count, kind, status);
    MPI_File_read_at_all or c"PMPI_File_read_at_all" as c"MPI_File_read_at_all" (offset, buffer, count, kind, status);
}

/// Exports `$name`, a subroutine of MPI's in Fortran with these arguments, which are passed by address.
macro_rules! in_fortran {
    ($($name:ident = $real:literal ($($argument:ident),*);)*) => {$(
        /// Exported under the library's name; never called from here.
        ///
        /// # Safety
        /// Compilers pass addresses.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(file: *const c_int, $($argument: usize),*) {
            type Call = extern "C" fn(*const c_int, $(in_fortran!(@register $argument)),*);
            let address = Scope::of(std::ptr::null()).find($real);
            // SAFETY: compilers pass the address of a number.
            let handle = unsafe { file.as_ref() }.copied();
            let phase = handle.and_then(|handle| Phase::of(Language::Fortran, handle as u32 as usize));
            if !address.is_null() {
                // SAFETY: the MPI standard and the compilers' conventions give it as many arguments.
                let call = unsafe { transmute::<*mut c_void, Call>(address) };
                call(file, $($argument),*);
            }
            drop(phase);
        }
    )*};
    (@register $argument:ident) => { usize };
}

in_fortran! {
    mpi_file_write_all_ = c"mpi_file_write_all_" (buffer, count, kind, status, error);
    mpi_file_read_all_ = c"mpi_file_read_all_" (buffer, count, kind, status, error);
    mpi_file_write_at_all_ = c"mpi_file_write_at_all_" (offset, buffer, count, kind, status, error);
    mpi_file_read_at_all_ = c"mpi_file_read_at_all_" (offset, buffer, count, kind, status, error);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_what_it_was_opened_as_last() {
        let has = |handle| OPEN[Language::C as usize].lock().unwrap().contains(&handle);
        opened(Language::C, 7, true);
        assert!(has(7));
        opened(Language::C, 7, false);
        assert!(!has(7) && Phase::of(Language::C, 7).is_none());
        opened(Language::C, 8, true);
        assert!(Phase::of(Language::C, 8).is_none(), "without the client there is nobody to tell");
        assert!(!is_served(c"/x"));
    }
}
