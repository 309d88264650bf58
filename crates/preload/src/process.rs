//! The life of a process: start, fork, and what was inherited. [`crate::exec`] is about its next program,
//! [`crate::spawn`] about children that are other programs at once.

use crate::calls::real;
use crate::description::Description;
use crate::foreign::CPath;
use crate::{
    calls, connection, cwd, description, heap, hint, hook, library, lock, mapping, number, placeholder, recycle, spawn,
    standard, stdio, table,
};
use rustix::io::Errno;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Inherited descriptors that are looked at; a program that leaves more of ours open loses the rest with EBADF.
const INHERITED_MAX: usize = 4096;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Runs before the program, but perhaps after other libraries made their first calls.
#[cfg_attr(test, allow(dead_code))]
extern "C" fn start() {
    #[cfg(not(feature = "wrap"))]
    {
        calls::look_up_all();
        hook::resolved();
        // What this C library does not have is no error of the program's.
        // SAFETY: no precondition.
        unsafe { libc::dlerror() };
    }
    adopt_inherited();
    standard::adopt_inherited();
    register_handlers();
}

/// What the C library calls around a fork.
pub type Handler = Option<extern "C" fn()>;

/// Before any other library's handlers, so that they run outside of these: they may use files, and what they do in the
/// child must find that this is another process now.
fn register_handlers() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if !IS_DONE.swap(true, Ordering::Relaxed) {
        // The functions stay as long as the process: this library is never unloaded.
        // Without the handlers forks would still work for programs of one thread that use no file across them.
        let no_library = std::ptr::null_mut();
        real::__register_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child), no_library);
    }
}

pub fn __register_atfork(before: Handler, in_parent: Handler, in_child: Handler, library: *mut c_void) -> c_int {
    register_handlers();
    real::__register_atfork(before, in_parent, in_child, library)
}

/// Finds the placeholders and the working directory that the program before left, the first time that it is called.
pub fn adopt_inherited() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut fds = [-1; INHERITED_MAX];
    let count = placeholder::list_descriptors(&mut fds).unwrap_or(0);
    // Descriptors of one open file share one description; the number of the open file tells.
    let mut known: Vec<(u64, RawFd)> = Vec::new();
    for fd in fds.iter().take(count).copied() {
        if cwd::found(fd) {
            continue;
        }
        let Some((file, mapping)) = placeholder::adopt(fd) else { continue };
        let number = mapping.number();
        let earlier = known.iter().find(|(other, _)| *other == number);
        let file_ref = match earlier.and_then(|(_, fd)| table::find(*fd)) {
            Some(file_ref) => file_ref,
            None => Description::publish(file, mapping, None),
        };
        known.push((number, fd));
        // A descriptor beyond the table stays a placeholder that refuses everything.
        let _: Result<(), Errno> = table::install(fd, file_ref);
    }
    cwd::adopt();
    table::take_locked();
}

extern "C" fn before_fork() {
    table::expect_heir();
    stdio::lock_before_fork();
    connection::lock_before_fork();
    lock::lock_before_fork();
    spawn::lock_before_fork();
    description::lock_before_fork();
    mapping::lock_before_fork();
    recycle::lock_before_fork();
    hint::lock_before_fork();
    library::lock_before_fork();
    heap::lock_before_fork();
}

extern "C" fn after_fork() {
    heap::unlock_after_fork();
    library::unlock_after_fork();
    hint::unlock_after_fork();
    recycle::unlock_after_fork();
    mapping::unlock_after_fork();
    description::unlock_after_fork();
    spawn::unlock_after_fork();
    lock::unlock_after_fork();
    connection::unlock_after_fork();
    stdio::unlock_after_fork();
}

extern "C" fn after_fork_in_child() {
    begin_as_child();
    table::inherit_locked();
}

/// What was the parent's alone is forgotten. Locks are free: whoever had one is not here.
fn begin_as_child() {
    after_fork();
    number::begin_anew();
    placeholder::forget_spares();
    table::forget_references();
    connection::begin_as_child();
    lock::forget_inherited();
}

/// Served as `fork`: in the memory that a child of `vfork` shares with its parent, its `dup2` and `close` would change
/// the parent's table.
pub fn vfork() -> c_int {
    // SAFETY: no precondition; the child of a vfork does less than that of a fork may.
    unsafe { libc::fork() }
}

pub fn daemon(keep_directory: c_int, keep_streams: c_int) -> c_int {
    let result = real::daemon(keep_directory, keep_streams);
    if result == 0 {
        // Both are done inside the C library.
        if keep_directory == 0 {
            cwd::forget();
        }
        if keep_streams == 0 {
            (0..3).for_each(|fd| drop(table::remove(fd)));
        }
    }
    result
}

pub fn system(command: CPath) -> c_int {
    // A child that is made without the handlers above, with the descriptors of this process; so are those below.
    recycle::begin_generation();
    real::system(command)
}

pub fn popen(command: CPath, mode: CPath) -> *mut libc::FILE {
    recycle::begin_generation();
    real::popen(command, mode)
}

pub fn wordexp(words: CPath, expansion: *mut c_void, flags: c_int) -> c_int {
    recycle::begin_generation();
    real::wordexp(words, expansion, flags)
}

/// What the child of a `clone` is to run.
struct Start {
    function: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

/// Runs in a child that has a copy of the memory of its parent.
extern "C" fn start_copy(start: *mut c_void) -> c_int {
    // SAFETY: `clone` passed the address of one on the stack of its caller, of which this child has a copy.
    let start = unsafe { &*start.cast::<Start>() };
    begin_as_child();
    (start.function)(start.argument)
}

pub fn clone(
    function: Option<extern "C" fn(*mut c_void) -> c_int>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut c_void,
    tls: *mut c_void,
    child_tid: *mut c_void,
) -> c_int {
    recycle::begin_generation();
    match function {
        Some(function) if flags & libc::CLONE_VM == 0 => {
            let mut start = Start { function, argument };
            real::clone(Some(start_copy), stack, flags, (&raw mut start).cast(), parent_tid, tls, child_tid)
        }
        _ => real::clone(function, stack, flags, argument, parent_tid, tls, child_tid),
    }
}

pub fn fork_without_handlers() -> libc::pid_t {
    // This may be a signal handler: no locks are taken before, as for a fork.
    recycle::begin_generation();
    let child = real::_Fork();
    if child == 0 {
        begin_as_child();
    }
    child
}
