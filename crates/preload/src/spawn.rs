//! Children that are other programs at once: `posix_spawn`, with what it is told to do to their descriptors.
//!
//! The C library carries the actions out in the child, where no hook sees them. Actions on descriptors are right as they
//! are, because placeholders are descriptors. A file of ours is opened when the action is *added*, and the child gets a
//! duplicate; a working directory of ours is left as a message for the child (see [`crate::cwd`]). Both cost a descriptor
//! until the actions are destroyed.

use crate::calls::real;
use crate::connection::client;
use crate::exec::{List, candidates, may_be_elsewhere, shell_arguments};
use crate::foreign::CPath;
use crate::hook::set_errno_number;
use crate::image::{self, Image, Program};
use crate::placeholder::{Memory, proc_path};
use crate::serve::{Routed, by_path, route};
use crate::spin::Spin;
use crate::{cwd, descriptors, fcntl, hook, open, recycle, table};
use isonomia_client::{Capability, Error};
use std::ffi::{CString, c_int, c_void};

/// Descriptors kept here start at this number, out of the way of programs that choose numbers.
const DESCRIPTOR_MIN: i64 = 500;
/// Kept at once for actions; one more fails with EMFILE.
const KEPT_MAX: usize = 1024;

pub type Actions = *mut c_void;

unsafe extern "C" {
    fn posix_spawn_file_actions_adddup2(actions: Actions, from: c_int, to: c_int) -> c_int;
    fn posix_spawn_file_actions_addclose(actions: Actions, fd: c_int) -> c_int;
}

/// Descriptors by the actions that they are for.
static KEPT: Spin<Vec<(usize, c_int)>> = Spin::new(Vec::new());

/// The lock of the list, for [`crate::process`].
pub fn lock_before_fork() {
    KEPT.acquire();
}

/// See [`lock_before_fork`].
pub fn unlock_after_fork() {
    KEPT.release();
}

/// Keeps `fd` for `actions`, which make it `to` in the child; an errno, or 0.
fn keep(actions: Actions, fd: c_int, to: c_int) -> c_int {
    let mut kept = KEPT.lock();
    if kept.len() >= KEPT_MAX {
        drop(kept);
        descriptors::close(fd);
        return libc::EMFILE;
    }
    kept.push((actions as usize, fd));
    drop(kept);
    // SAFETY: the caller vouches for actions that were initialised.
    unsafe { posix_spawn_file_actions_adddup2(actions, fd, to) }
}

fn forget(actions: Actions) {
    let mut gone = Vec::new();
    KEPT.lock().retain(|(of, fd)| {
        let stays = *of != actions as usize;
        if !stays {
            gone.push(*fd);
        }
        stays
    });
    for fd in gone {
        descriptors::close(fd);
    }
}

/// The errno of a failed call, as the functions here return it.
fn returned_errno() -> c_int {
    hook::errno_number()
}

fn is_ours(path: CPath) -> bool {
    path.bytes().is_some_and(|text| matches!(route(libc::AT_FDCWD, text), Ok(Routed::Ours { .. }) | Err(_)))
}

fn add_open(actions: Actions, to: c_int, path: CPath, flags: c_int, mode: libc::mode_t) -> c_int {
    let opened = open::open(path, flags | libc::O_CLOEXEC, mode);
    if opened < 0 {
        return returned_errno();
    }
    let high = fcntl::fcntl(opened, libc::F_DUPFD_CLOEXEC, DESCRIPTOR_MIN);
    if high < 0 {
        // The limit is low; the number that was free will do.
        return keep(actions, opened, to);
    }
    descriptors::close(opened);
    keep(actions, high, to)
}

/// A message to the child, which gets it under the same number, and the directory where the kernel is meanwhile.
fn add_directory(actions: Actions, directory: Result<Capability, Error>, real: impl FnOnce(CPath) -> c_int) -> c_int {
    let message = directory.and_then(cwd::message);
    match message {
        Ok(fd) => {
            // Other children must not get it. The action clears the flag in the child.
            fcntl::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC.into());
            match keep(actions, fd, fd) {
                0 => real(CPath::new(cwd::NOWHERE)),
                errno => errno,
            }
        }
        Err(error) => error.errno().raw_os_error(),
    }
}

pub fn posix_spawn_file_actions_addopen(
    actions: Actions,
    fd: c_int,
    path: CPath,
    flags: c_int,
    mode: libc::mode_t,
) -> c_int {
    if is_ours(path) {
        add_open(actions, fd, path, flags, mode)
    } else {
        real::posix_spawn_file_actions_addopen(actions, fd, path, flags, mode)
    }
}

pub fn posix_spawn_file_actions_addchdir_np(actions: Actions, path: CPath) -> c_int {
    if !is_ours(path) {
        return real::posix_spawn_file_actions_addchdir_np(actions, path);
    }
    let before = hook::errno_number();
    let enter = |client: &isonomia_client::Client, at, path: &[u8]| {
        let directory = cwd::enterable(client, at, path);
        Ok(add_directory(actions, directory, |nowhere| real::posix_spawn_file_actions_addchdir_np(actions, nowhere)))
    };
    let added =
        by_path(libc::AT_FDCWD, path, enter, |_, path| real::posix_spawn_file_actions_addchdir_np(actions, path));
    let added = if added < 0 { returned_errno() } else { added };
    set_errno_number(before);
    added
}

pub fn posix_spawn_file_actions_addfchdir_np(actions: Actions, fd: c_int) -> c_int {
    let Some(file_ref) = table::find(fd) else { return real::posix_spawn_file_actions_addfchdir_np(actions, fd) };
    let directory = client().and_then(|client| cwd::enterable(client, file_ref.capability()?, b""));
    add_directory(actions, directory, |nowhere| posix_spawn_file_actions_addchdir_np(actions, nowhere))
}

/// Closes around what tells the child of its working directory. The C library closes in the child, one after the other and
/// whether they are open or not, what is named, so numbers up to that descriptor are.
pub fn posix_spawn_file_actions_addclosefrom_np(actions: Actions, first: c_int) -> c_int {
    let of_actions = |(of, fd): &(usize, c_int)| (*of == actions as usize).then_some(*fd);
    let mut kept: Vec<c_int> = KEPT.lock().iter().filter_map(of_actions).chain(cwd::descriptor()).collect();
    kept.sort_unstable();
    let mut next = first;
    for fd in kept.into_iter().filter(|fd| *fd >= first) {
        for closed in next..fd {
            // SAFETY: the caller vouches for actions that were initialised.
            let added = unsafe { posix_spawn_file_actions_addclose(actions, closed) };
            if added != 0 {
                return added;
            }
        }
        next = fd + 1;
    }
    real::posix_spawn_file_actions_addclosefrom_np(actions, next)
}

pub fn posix_spawn_file_actions_destroy(actions: Actions) -> c_int {
    forget(actions);
    real::posix_spawn_file_actions_destroy(actions)
}

/// Spawns what was found: a copy in memory has a name in the child too, because it is closed by the exec only.
fn spawn(program: Result<Program, Error>, arguments: List, real: impl FnOnce(CPath, List) -> c_int) -> c_int {
    let program = match program {
        Ok(program) => program,
        Err(error) => return error.errno().raw_os_error(),
    };
    let list = program.arguments(arguments);
    let list = list.as_ref().map_or(arguments, |list| list.as_ptr());
    match &program.image {
        Image::Path(path) => real(CPath::new(path), list),
        Image::Memory(memory) => {
            let number = |memory: &Memory| rustix::fd::AsRawFd::as_raw_fd(&memory.fd());
            let Ok(high) = rustix::io::fcntl_dupfd_cloexec(memory.fd(), DESCRIPTOR_MIN as c_int) else {
                return real(CPath::new(proc_path(number(memory)).as_c_str()), list);
            };
            let high = Memory::owned(high);
            real(CPath::new(proc_path(number(&high)).as_c_str()), list)
        }
    }
}

/// As `posix_spawnp` looks for a program.
fn search(names: &[CString], arguments: List, run: impl Fn(CPath, List) -> c_int) -> c_int {
    let mut denied = false;
    let mut last = libc::ENOENT;
    for name in names {
        last = run(CPath::new(name), arguments);
        if last == libc::ENOEXEC {
            let script = shell_arguments(name, arguments);
            return run(CPath::new(c"/bin/sh"), script.as_ptr());
        }
        set_errno_number(last);
        if last == 0 || !may_be_elsewhere() {
            return last;
        }
        denied |= last == libc::EACCES;
    }
    if denied { libc::EACCES } else { last }
}

pub fn posix_spawn(
    pid: *mut libc::pid_t,
    path: CPath,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: List,
    environment: List,
) -> c_int {
    recycle::begin_generation();
    let real = |path, list| real::posix_spawn(pid, path, actions, attributes, list, environment);
    match image::find(libc::AT_FDCWD, path) {
        Some(program) => spawn(program, arguments, real),
        None => real(path, arguments),
    }
}

pub fn posix_spawnp(
    pid: *mut libc::pid_t,
    file: CPath,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: List,
    environment: List,
) -> c_int {
    recycle::begin_generation();
    match candidates(file) {
        Some(names) => {
            let before = hook::errno_number();
            let run = |path, list| posix_spawn(pid, path, actions, attributes, list, environment);
            let spawned = search(&names, arguments, run);
            set_errno_number(before);
            spawned
        }
        None => real::posix_spawnp(pid, file, actions, attributes, arguments, environment),
    }
}
