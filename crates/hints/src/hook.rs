//! The hooks. Arguments and results go through as they are; all of them fit in registers as wide as a pointer.

use crate::collective::{Language, is_served, opened};
use crate::hint::{Client, bytes_of_c, bytes_of_fortran};
use crate::mpi::{Handle, Mpi};
use crate::symbol::Scope;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::transmute;

/// An error class of MPI that no library knows is an error of its own: that the function is nowhere cannot be said better.
pub const NO_FUNCTION: c_int = c_int::MAX;

/// Exports `$name`, which does what `$function` does with the same arguments and, in the register after them, the address
/// of the caller.
macro_rules! with_caller {
    ($($name:ident by $function:path, $x86:literal or $arm:literal;)*) => {$(
        /// Exported under the library's name; never called from here.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[allow(non_snake_case)]
        pub extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(concat!("mov ", $x86, ", [rsp]"), "jmp {function}", function = sym $function);
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(concat!("mov ", $arm, ", x30"), "b {function}", function = sym $function);
        }
    )*};
}

with_caller! {
    MPI_File_open by mpi_file_open_in_c, "r9" or "x5";
    H5Fcreate by hdf5_create, "r8" or "x4";
}

extern "C" fn mpi_file_open_in_c(
    comm: Handle,
    path: *const c_char,
    mode: c_int,
    info: Handle,
    file: *mut c_void,
    caller: *const c_void,
) -> c_int {
    type Open = extern "C" fn(Handle, *const c_char, c_int, Handle, *mut c_void) -> c_int;
    let scope = Scope::of(caller);
    let given = Client::find().and_then(|client| {
        // SAFETY: MPI's callers pass a string of C.
        let path = unsafe { bytes_of_c(path) }?;
        client.tell_of_mpi_file(path, &Mpi::running(scope)?, comm, info)
    });
    let mut address = scope.find(c"MPI_File_open");
    if address.is_null() {
        address = scope.find(c"PMPI_File_open");
    }
    if address.is_null() {
        return NO_FUNCTION;
    }
    // SAFETY: the MPI standard gives it this signature, with handles as wide as a register.
    let open = unsafe { transmute::<*mut c_void, Open>(address) };
    let result = open(comm, path, mode, info, file);
    let is_served = given.as_ref().is_some_and(|given| is_served(given.path()));
    // SAFETY: MPI's callers pass the address of a handle, which is a pointer, and which a successful call has set.
    if let Some(handle) = unsafe { file.cast::<usize>().as_ref() }.filter(|_| result == 0) {
        opened(Language::C, *handle, is_served);
    }
    drop(given);
    result
}

extern "C" fn hdf5_create(
    path: *const c_char,
    flags: c_uint,
    creation: i64,
    access: i64,
    caller: *const c_void,
) -> i64 {
    type Create = extern "C" fn(*const c_char, c_uint, i64, i64) -> i64;
    let scope = Scope::of(caller);
    let given = Client::find().and_then(|client| {
        // SAFETY: HDF5's callers pass a string of C.
        let path = unsafe { bytes_of_c(path) }?;
        // A file that HDF5 opens by MPI is opened by `MPI_File_open` in the call below, which knows more. To ask the
        // access property list for its communicator would duplicate that, which all processes have to do together.
        client.tell_of_own_file(path, Mpi::running(scope))
    });
    let address = scope.find(c"H5Fcreate");
    if address.is_null() {
        return -1;
    }
    // SAFETY: HDF5 gives it this signature; identifiers have 64 bits since 1.10.
    let create = unsafe { transmute::<*mut c_void, Create>(address) };
    let result = create(path, flags, creation, access);
    drop(given);
    result
}

/// Exports `$name`: `MPI_FILE_OPEN` of Fortran, in one of the spellings of compilers and bindings. Arguments are passed
/// by address; the length of the path comes last.
macro_rules! fortran {
    ($($name:ident = $real:literal;)*) => {$(
        /// Exported under the library's name; never called from here.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub extern "C" fn $name(
            comm: *const c_int, path: *const c_char, mode: *const c_int, info: *const c_int, file: *mut c_int,
            error: *mut c_int, path_len: usize,
        ) {
            mpi_file_open_in_fortran(Scope::of(std::ptr::null()).find($real), [comm, info], path, path_len, |open| {
                open(comm, path, mode, info, file, error, path_len);
                file
            });
        }
    )*};
}

type FortranOpen =
    extern "C" fn(*const c_int, *const c_char, *const c_int, *const c_int, *mut c_int, *mut c_int, usize);

fortran! {
    mpi_file_open = c"mpi_file_open";
    mpi_file_open_ = c"mpi_file_open_";
    mpi_file_open__ = c"mpi_file_open__";
    MPI_FILE_OPEN = c"MPI_FILE_OPEN";
    mpi_file_open_f08_ = c"mpi_file_open_f08_";
}

/// `call` is given the function at `address`, if there is one; handles are those of the communicator and the info.
fn mpi_file_open_in_fortran(
    address: *mut c_void,
    handles: [*const c_int; 2],
    path: *const c_char,
    path_len: usize,
    call: impl FnOnce(FortranOpen) -> *const c_int,
) {
    let given = Client::find().and_then(|client| {
        let mpi = Mpi::running(Scope::of(std::ptr::null()))?;
        // SAFETY: compilers pass a string of this length.
        let path = unsafe { bytes_of_fortran(path, path_len) }?;
        // SAFETY: compilers pass the addresses of two numbers.
        let [comm, info] = handles.map(|handle| unsafe { handle.as_ref() }.copied());
        client.tell_of_mpi_file(path, &mpi, mpi.comm_from_fortran(comm?), mpi.info_from_fortran(info?))
    });
    if !address.is_null() {
        // SAFETY: the MPI standard and the compilers' conventions give it this signature.
        let file = call(unsafe { transmute::<*mut c_void, FortranOpen>(address) });
        let is_served = given.as_ref().is_some_and(|given| is_served(given.path()));
        // SAFETY: compilers pass the address of a number.
        if let Some(handle) = unsafe { file.as_ref() } {
            opened(Language::Fortran, *handle as u32 as usize, is_served);
        }
    }
    drop(given);
}
