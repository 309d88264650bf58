//! `libisonomia_hints.so`: tells the preload client what MPI and HDF5 know of a file that is about to be created.
//!
//! Preloaded beside `libisonomia_preload.so`, it stands before `MPI_File_open` (C and Fortran) and `H5Fcreate`. Each
//! hook finds out which process of how many opens the file and how long it is to be, says so through `isonomia_hint`
//! for as long as the call lasts, and does the call. Without that function in the process it does the call only.
//!
//! Hints are all there is here: what becomes of the file is decided by the C library's calls that follow. So a hook never
//! fails, and never asks MPI what MPI might take for an error. No MPI and no HDF5 is linked, handles are opaque: the
//! same library serves MPICH (handles are 32-bit numbers) and Open MPI (pointers).
//!
//! It stands before the collective reads and writes of MPI-IO as well, and says where such a phase begins and ends ([`collective`]).
//!
//! * [`symbol`] finds what a hook stands before, and [`mpi`] asks it.
//! * [`hook`] has the hooks, [`hint`] what they say.

mod collective;
mod hint;
mod hook;
mod mpi;
mod symbol;
