//! Questions to whichever MPI library the caller has.
//!
//! Its profiling names (`PMPI_…`) are called, so that tools do not count the questions. A handle that cannot be one is not
//! asked about: MPI would end the program, where `MPI_File_open` returns an error.

use crate::symbol::Scope;
use std::ffi::{CStr, c_char, c_int};
use std::mem::transmute;

/// A handle of MPI: a 32-bit number or a pointer. The upper half of a number is undefined, as in any register.
pub type Handle = usize;

/// The key of the length that a file is going to have.
const FILE_SIZE: &CStr = c"fileSize";
/// Room for its value: a number of 64 bits.
const VALUE_LEN_MAX: usize = 32;

/// MPICH's communicator of all processes, the same in every library of its ABI.
const MPICH_COMM_WORLD: Handle = 0x4400_0000;
/// The kinds of MPICH's handles, which bits 26 to 29 tell; bits 30 and 31 are 0 only in null handles.
const MPICH_COMM: usize = 1;
const MPICH_INFO: usize = 7;

/// The MPI of a caller.
pub struct Mpi {
    scope: Scope,
    /// Open MPI's communicator of all processes, an object; null in other MPIs.
    open_mpi_world: Handle,
}

/// Declares a question: its function if the library has it.
macro_rules! function {
    ($mpi:expr, $name:literal, fn($($argument:ty),*) -> $ret:ty) => {{
        let address = $mpi.scope.find($name);
        // SAFETY: the MPI standard gives functions of this name this signature, with handles as wide as a register.
        (!address.is_null()).then(|| unsafe { transmute::<*mut std::ffi::c_void, extern "C" fn($($argument),*) -> $ret>(address) })
    }};
}

impl Mpi {
    /// The library of the caller with this scope; `None` if it is not running.
    pub fn running(scope: Scope) -> Option<Self> {
        let mpi = Self { scope, open_mpi_world: scope.find_object(c"ompi_mpi_comm_world") as Handle };
        let is = |flag: Option<extern "C" fn(*mut c_int) -> c_int>| {
            let mut set = 0;
            flag.is_some_and(|flag| flag(&mut set) == 0 && set != 0)
        };
        let began = is(function!(mpi, c"PMPI_Initialized", fn(*mut c_int) -> c_int));
        (began && !is(function!(mpi, c"PMPI_Finalized", fn(*mut c_int) -> c_int))).then_some(mpi)
    }

    /// The communicator of all processes.
    pub fn world(&self) -> Handle {
        if self.open_mpi_world == 0 { MPICH_COMM_WORLD } else { self.open_mpi_world }
    }

    /// The handle in C for Fortran's: the same number, or what the library's table says.
    pub fn comm_from_fortran(&self, handle: c_int) -> Handle {
        function!(self, c"PMPI_Comm_f2c", fn(c_int) -> Handle).map_or(handle as u32 as Handle, |to_c| to_c(handle))
    }

    /// As [`Self::comm_from_fortran`].
    pub fn info_from_fortran(&self, handle: c_int) -> Handle {
        function!(self, c"PMPI_Info_f2c", fn(c_int) -> Handle).map_or(handle as u32 as Handle, |to_c| to_c(handle))
    }

    /// Whether `handle` may stand for an object: of MPICH's `kind`, or not Open MPI's null object.
    fn may_be(&self, handle: Handle, kind: usize, null: &CStr) -> bool {
        if self.open_mpi_world == 0 {
            let number = handle as u32 as usize;
            return number >> 30 != 0 && number >> 26 & 0xf == kind;
        }
        handle != 0 && handle != self.scope.find_object(null) as Handle
    }

    /// Which process of how many this one is in `comm`.
    pub fn rank_and_size(&self, comm: Handle) -> Option<(u32, u32)> {
        if !self.may_be(comm, MPICH_COMM, c"ompi_mpi_comm_null") {
            return None;
        }
        let ask = |function: Option<extern "C" fn(Handle, *mut c_int) -> c_int>| {
            let mut number = 0;
            function.filter(|function| function(comm, &mut number) == 0).and_then(|_| u32::try_from(number).ok())
        };
        let rank = ask(function!(self, c"PMPI_Comm_rank", fn(Handle, *mut c_int) -> c_int))?;
        let size = ask(function!(self, c"PMPI_Comm_size", fn(Handle, *mut c_int) -> c_int))?;
        Some((rank, size))
    }

    /// How long the file is to be by `info`, if that says so.
    pub fn file_size(&self, info: Handle) -> Option<u64> {
        type Get = extern "C" fn(Handle, *const c_char, c_int, *mut c_char, *mut c_int) -> c_int;
        if !self.may_be(info, MPICH_INFO, c"ompi_mpi_info_null") {
            return None;
        }
        let address = self.scope.find(c"PMPI_Info_get");
        // SAFETY: as in `function!`.
        let get: Get = (!address.is_null()).then(|| unsafe { transmute::<*mut std::ffi::c_void, Get>(address) })?;
        // One more for the NUL, which MPI does not count.
        let mut value: [c_char; VALUE_LEN_MAX + 1] = [0; VALUE_LEN_MAX + 1];
        let mut is_there = 0;
        let failed = get(info, FILE_SIZE.as_ptr(), VALUE_LEN_MAX as c_int, value.as_mut_ptr(), &mut is_there) != 0;
        if failed || is_there == 0 {
            return None;
        }
        value[VALUE_LEN_MAX] = 0;
        // SAFETY: the array ends in NUL, at its last element if not before.
        unsafe { CStr::from_ptr(value.as_ptr()) }.to_str().ok()?.trim().parse().ok()
    }
}
