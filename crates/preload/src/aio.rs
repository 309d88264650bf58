//! POSIX AIO: `aio_read`, `aio_write`, `aio_fsync`, `lio_listio`, `aio_cancel`.
//!
//! The C library does these in threads of its own, whose calls no hook sees. On a descriptor of ours the operation is
//! done before the call returns: POSIX asks that a request be queued *or done*, and a program cannot tell the two apart
//! but by the time that the call takes. Nothing overlaps within one thread, then; in return there is no thread of this
//! library's in the program, and an operation that was submitted before a `fork` or an `exec` is never lost.
//!
//! The result goes where the C library keeps it, into the control block: its two fields have been where they are since
//! glibc 2.1, because programs allocate the block. `aio_error`, `aio_return`, and `aio_suspend` of the C library read
//! them there, find the operation ended, and need no hooks.

use crate::calls::real;
use crate::foreign::Opaque;
use crate::hook::{self, fail};
use crate::{rw, sync, table};
use libc::{off64_t, pthread_attr_t, pthread_t, ssize_t};
use rustix::io::Errno;
use std::ffi::{c_int, c_void};

/// `struct aiocb`, which is `struct aiocb64` as well.
#[repr(C)]
pub struct ControlBlock {
    fd: c_int,
    operation: c_int,
    priority: c_int,
    buffer: Opaque,
    len: usize,
    event: Event,
    internal: [usize; 2],
    error: c_int,
    result: ssize_t,
    offset: off64_t,
    unused: [u8; 32],
}

/// `struct sigevent`, with the members for a notification by a thread.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Event {
    value: *mut c_void,
    signal: c_int,
    how: c_int,
    function: Option<extern "C" fn(*mut c_void)>,
    attributes: *const pthread_attr_t,
    unused: [u64; 4],
}

/// The beginning of `siginfo_t` as the kernel takes it for a queued signal.
#[repr(C)]
struct SignalInfo {
    signal: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: *mut c_void,
    unused: [u64; 12],
}

const _: () = assert!(size_of::<ControlBlock>() == size_of::<libc::aiocb>());
const _: () = assert!(std::mem::offset_of!(ControlBlock, offset) == std::mem::offset_of!(libc::aiocb, aio_offset));
const _: () = assert!(size_of::<Event>() == size_of::<libc::sigevent>());
const _: () = assert!(size_of::<SignalInfo>() == size_of::<libc::siginfo_t>());

/// What `aio_cancel` says when nothing is under way any more.
const ALL_DONE: c_int = libc::AIO_ALLDONE;
/// What a signal says of its origin.
const SI_ASYNCIO: c_int = -4;
/// How far requests may lower their priority (`AIO_PRIO_DELTA_MAX` of the C library).
const PRIORITY_DELTA_MAX: c_int = 20;

/// What to do, as the C library's threads do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Sync { data_only: bool },
}

impl Operation {
    /// The operation of an entry of `lio_listio`.
    fn of_list_entry(code: c_int) -> Option<Self> {
        match code {
            libc::LIO_READ => Some(Self::Read),
            libc::LIO_WRITE => Some(Self::Write),
            _ => None,
        }
    }

    fn perform(self, block: &ControlBlock) -> ssize_t {
        match self {
            Self::Read => rw::pread(block.fd, block.buffer.to_fill(), block.len, block.offset),
            Self::Write => rw::pwrite(block.fd, block.buffer.to_read(), block.len, block.offset),
            Self::Sync { data_only: false } => sync::fsync(block.fd) as ssize_t,
            Self::Sync { data_only: true } => sync::fdatasync(block.fd) as ssize_t,
        }
    }
}

/// The block behind the pointer that a program gave.
fn block<'a>(pointer: *mut ControlBlock) -> Option<&'a mut ControlBlock> {
    // SAFETY: the caller vouches for a block that is its own until the operation has ended.
    unsafe { pointer.as_mut() }
}

fn is_ours(pointer: *mut ControlBlock) -> bool {
    block(pointer).is_some_and(|block| table::is_ours(block.fd))
}

/// Does the operation and leaves its result in the block; the errno of the submission is untouched. Whether it
/// succeeded.
fn complete(block: &mut ControlBlock, operation: Operation) -> bool {
    let before = hook::errno_number();
    let result = operation.perform(block);
    let error = if result < 0 { hook::errno_number() } else { 0 };
    hook::set_errno_number(before);
    (block.error, block.result) = (error, result);
    if let Err(errno) = notify(&block.event) {
        (block.error, block.result) = (errno.raw_os_error(), -1);
    }
    error == 0
}

fn submit(pointer: *mut ControlBlock, operation: Operation) -> c_int {
    let Some(block) = block(pointer) else { return fail(Errno::INVAL) };
    if !(0..=PRIORITY_DELTA_MAX).contains(&block.priority) {
        (block.error, block.result) = (libc::EINVAL, -1);
        return fail(Errno::INVAL);
    }
    complete(block, operation);
    0
}

/// Tells the program that an operation has ended, in the way that it asked for.
fn notify(event: &Event) -> Result<(), Errno> {
    match event.how {
        libc::SIGEV_SIGNAL => queue_signal(event),
        libc::SIGEV_THREAD => start_thread(event),
        _ => Ok(()),
    }
}

fn queue_signal(event: &Event) -> Result<(), Errno> {
    // SAFETY: zeros are a value of this structure of numbers and a pointer.
    let mut info: SignalInfo = unsafe { std::mem::zeroed() };
    info.signal = event.signal;
    info.code = SI_ASYNCIO;
    info.pid = rustix::process::getpid().as_raw_nonzero().get();
    info.uid = rustix::process::getuid().as_raw();
    info.value = event.value;
    // SAFETY: the structure is as long as the kernel reads.
    let queued = unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, info.pid, info.signal, &raw const info) };
    if queued == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(hook::errno_number())) }
}

extern "C" fn run_notification(event: *mut c_void) -> *mut c_void {
    // SAFETY: `start_thread` gave the box to this thread.
    let event = unsafe { Box::from_raw(event.cast::<Event>()) };
    if let Some(function) = event.function {
        function(event.value);
    }
    std::ptr::null_mut()
}

fn start_thread(event: &Event) -> Result<(), Errno> {
    let given = Box::into_raw(Box::new(*event));
    let mut thread: pthread_t = 0;
    // SAFETY: attributes are the caller's or none; the thread takes over the box if it starts.
    let started = unsafe { libc::pthread_create(&raw mut thread, event.attributes, run_notification, given.cast()) };
    if started != 0 {
        // SAFETY: no thread has taken it.
        drop(unsafe { Box::from_raw(given) });
        return Err(Errno::from_raw_os_error(started));
    }
    if event.attributes.is_null() {
        // SAFETY: the thread was just made, joinable, and nobody else knows it.
        unsafe { libc::pthread_detach(thread) };
    }
    Ok(())
}

fn submit_sync(operation: c_int, pointer: *mut ControlBlock) -> c_int {
    match operation {
        libc::O_SYNC => submit(pointer, Operation::Sync { data_only: false }),
        libc::O_DSYNC => submit(pointer, Operation::Sync { data_only: true }),
        _ => fail(Errno::INVAL),
    }
}

/// Completes the entries of ours and leaves the others, and the notification for the whole list, to the C library:
/// null entries count for nothing there.
fn submit_list(
    mode: c_int,
    list: *const *mut ControlBlock,
    count: c_int,
    real: impl FnOnce(*const *mut ControlBlock) -> c_int,
) -> c_int {
    let len = usize::try_from(count).unwrap_or(0);
    let is_known = matches!(mode, libc::LIO_WAIT | libc::LIO_NOWAIT);
    if list.is_null() || len == 0 || !is_known {
        return real(list);
    }
    // SAFETY: the caller vouches for `count` entries.
    let entries = unsafe { std::slice::from_raw_parts(list, len) };
    if !entries.iter().copied().any(is_ours) {
        return real(list);
    }
    let mut theirs = entries.to_vec();
    let mut all_succeeded = true;
    for entry in theirs.iter_mut().filter(|entry| is_ours(**entry)) {
        if let Some(block) = block(std::mem::replace(entry, std::ptr::null_mut())) {
            all_succeeded &= match Operation::of_list_entry(block.operation) {
                Some(operation) => complete(block, operation),
                None if block.operation == libc::LIO_NOP => true,
                None => {
                    (block.error, block.result) = (libc::EINVAL, -1);
                    false
                }
            };
        }
    }
    let submitted = real(theirs.as_ptr());
    if submitted == 0 && !all_succeeded && mode == libc::LIO_WAIT { fail(Errno::IO) } else { submitted }
}

/// What was submitted on a descriptor of ours has ended.
fn cancel(fd: c_int, pointer: *mut ControlBlock) -> c_int {
    match block(pointer) {
        Some(block) if block.fd != fd => fail(Errno::INVAL),
        _ => ALL_DONE,
    }
}

pub fn aio_read(block: *mut ControlBlock) -> c_int {
    if is_ours(block) { submit(block, Operation::Read) } else { real::aio_read(block) }
}

pub fn aio_write(block: *mut ControlBlock) -> c_int {
    if is_ours(block) { submit(block, Operation::Write) } else { real::aio_write(block) }
}

pub fn aio_fsync(operation: c_int, block: *mut ControlBlock) -> c_int {
    if is_ours(block) { submit_sync(operation, block) } else { real::aio_fsync(operation, block) }
}

pub fn lio_listio(mode: c_int, list: *const *mut ControlBlock, count: c_int, event: *mut Event) -> c_int {
    submit_list(mode, list, count, |list| real::lio_listio(mode, list, count, event))
}

pub fn aio_cancel(fd: c_int, block: *mut ControlBlock) -> c_int {
    if table::is_ours(fd) { cancel(fd, block) } else { real::aio_cancel(fd, block) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C library's `aio_error` and `aio_return` must find what this module stores.
    #[test]
    fn results_lie_where_the_c_library_looks() {
        // SAFETY: zeros are a value of this structure of numbers and pointers.
        let mut stored: ControlBlock = unsafe { std::mem::zeroed() };
        (stored.error, stored.result) = (libc::ENOSPC, -7);
        let seen = (&raw mut stored).cast::<libc::aiocb>();
        // SAFETY: a block of the C library's layout, as asserted above.
        assert_eq!(unsafe { (libc::aio_error(seen), libc::aio_return(seen)) }, (libc::ENOSPC, -7));
    }
}
