//! Becoming another program: the `exec` family.
//!
//! The next program inherits the descriptors and finds them again ([`crate::process`]); the server is told before, so
//! that it keeps their references when this process's connections end. A program that lies under the prefix is run from
//! a copy of its file ([`crate::image`]). What the C library does inside itself to find a program, it does here when a
//! directory of ours may be looked at.

use crate::calls::real;
use crate::foreign::CPath;
use crate::hook::{errno_number, fail, failed_with, returned};
use crate::image::{self, Image, Program};
use crate::serve::{Routed, route};
use crate::variadic::Arguments;
use crate::{connection, environment, table};
use rustix::io::Errno;
use std::ffi::{CStr, CString, c_char, c_int};

/// Arguments of a program: a list that ends in null.
pub type List = *const *const c_char;

/// Where programs are looked for without the variable `PATH`, as in the C library.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";
/// Runs what the kernel finds to be no program.
const SHELL: &CStr = c"/bin/sh";

unsafe extern "C" {
    static mut environ: List;
}

/// The environment of this process.
pub fn environment_list() -> List {
    // SAFETY: the C library's variable is always there; a program that changes it meanwhile loses as it does there.
    unsafe { environ }
}

/// Before this process becomes another program, which inherits its open files but not its connections.
fn hand_over() {
    if table::ours_between(0, c_int::MAX).next().is_some() {
        for client in connection::connected().into_iter().filter(|client| !client.is_away()) {
            // If the server cannot be reached it cannot be told, and the program is executed all the same.
            let _ = client.hand_over();
        }
    }
}

/// Executes what was found, by a direct system call for a copy in memory. Comes back only when that fails.
fn execute(program: Result<Program, isonomia_client::Error>, arguments: List, environment: List) -> c_int {
    let program = match program {
        Ok(program) => program,
        Err(error) => return returned(Err(error)),
    };
    let list = program.arguments(arguments);
    let list = list.as_ref().map_or(arguments, |list| list.as_ptr());
    hand_over();
    // SAFETY: lists and strings end as the system calls ask.
    let failed = unsafe {
        match &program.image {
            Image::Path(path) => libc::syscall(libc::SYS_execve, path.as_ptr(), list, environment),
            Image::Memory(memory) => {
                let fd = rustix::fd::AsRawFd::as_raw_fd(&memory.fd());
                libc::syscall(libc::SYS_execveat, fd, c"".as_ptr(), list, environment, libc::AT_EMPTY_PATH)
            }
        }
    };
    failed as c_int
}

/// The shape of the hooks with a path.
fn execute_path(
    dir: c_int,
    path: CPath,
    arguments: List,
    environment: List,
    real: impl FnOnce(c_int, CPath) -> c_int,
) -> c_int {
    match image::find(dir, path) {
        Some(program) => execute(program, arguments, environment),
        None => {
            hand_over();
            real(dir, path)
        }
    }
}

/// The names under which `file` is looked for, if one of them may be ours.
pub fn candidates(file: CPath) -> Option<Vec<CString>> {
    let name = file.bytes().filter(|name| !name.is_empty())?;
    if name.contains(&b'/') {
        let is_ours = !matches!(route(libc::AT_FDCWD, name), Ok(Routed::Theirs));
        return is_ours.then(|| vec![CString::new(name).unwrap_or_default()]);
    }
    let path = environment::variable("PATH");
    let path = path.as_ref().map_or(PATH_DEFAULT, |path| path.as_bytes());
    let names = path.split(|b| *b == b':').map(|dir| match dir {
        b"" => name.to_vec(),
        dir => [dir, b"/", name].concat(),
    });
    let names: Vec<CString> = names.filter_map(|name| CString::new(name).ok()).collect();
    let is_ours = |name: &CString| !matches!(route(libc::AT_FDCWD, name.to_bytes()), Ok(Routed::Theirs));
    names.iter().any(is_ours).then_some(names)
}

/// Whether the search goes on after this failure.
pub fn may_be_elsewhere() -> bool {
    [Errno::ACCESS, Errno::NOENT, Errno::NOTDIR, Errno::NODEV, Errno::TIMEDOUT, Errno::STALE]
        .into_iter()
        .any(failed_with)
}

/// Looks for a program as `execvp` does.
fn search(names: &[CString], arguments: List, environment: List) -> c_int {
    let mut denied = false;
    for name in names {
        let failed = execve(CPath::new(name), arguments, environment);
        if failed_with(Errno::NOEXEC) {
            let script = shell_arguments(name, arguments);
            return execve(CPath::new(SHELL), script.as_ptr(), environment);
        }
        if !may_be_elsewhere() {
            return failed;
        }
        denied |= failed_with(Errno::ACCESS);
    }
    if denied { fail(Errno::ACCESS) } else { fail(Errno::from_raw_os_error(errno_number())) }
}

/// The arguments of a shell that is to read `script`.
pub fn shell_arguments(script: &CStr, arguments: List) -> Vec<*const c_char> {
    [SHELL.as_ptr(), script.as_ptr()].into_iter().chain(image::rest_of(arguments)).collect()
}

pub fn execve(path: CPath, arguments: List, environment: List) -> c_int {
    execute_path(libc::AT_FDCWD, path, arguments, environment, |_, path| real::execve(path, arguments, environment))
}

pub fn execv(path: CPath, arguments: List) -> c_int {
    execute_path(libc::AT_FDCWD, path, arguments, environment_list(), |_, path| real::execv(path, arguments))
}

pub fn execvp(file: CPath, arguments: List) -> c_int {
    match candidates(file) {
        Some(names) => search(&names, arguments, environment_list()),
        None => {
            hand_over();
            real::execvp(file, arguments)
        }
    }
}

pub fn execvpe(file: CPath, arguments: List, environment: List) -> c_int {
    match candidates(file) {
        Some(names) => search(&names, arguments, environment),
        None => {
            hand_over();
            real::execvpe(file, arguments, environment)
        }
    }
}

pub fn fexecve(fd: c_int, arguments: List, environment: List) -> c_int {
    match image::behind(fd) {
        Some(program) => execute(program, arguments, environment),
        None => {
            hand_over();
            real::fexecve(fd, arguments, environment)
        }
    }
}

pub fn execveat(dir: c_int, path: CPath, arguments: List, environment: List, flags: c_int) -> c_int {
    if flags & libc::AT_EMPTY_PATH != 0
        && path.bytes().is_some_and(<[u8]>::is_empty)
        && let Some(program) = image::behind(dir)
    {
        return execute(program, arguments, environment);
    }
    execute_path(dir, path, arguments, environment, |dir, path| {
        real::execveat(dir, path, arguments, environment, flags)
    })
}

/// The arguments up to the null that ends them.
fn gathered(rest: *mut Arguments) -> Vec<*const c_char> {
    let mut list = Vec::new();
    loop {
        // SAFETY: the caller passed pointers, the last of them null.
        let argument = unsafe { (*rest).next_pointer() }.cast::<c_char>();
        list.push(argument);
        if argument.is_null() {
            return list;
        }
    }
}

pub fn execute_listed(path: CPath, rest: *mut Arguments) -> c_int {
    execv(path, gathered(rest).as_ptr())
}

pub fn search_listed(file: CPath, rest: *mut Arguments) -> c_int {
    execvp(file, gathered(rest).as_ptr())
}

pub fn execute_listed_in(path: CPath, rest: *mut Arguments) -> c_int {
    let list = gathered(rest);
    // SAFETY: the environment follows the null.
    let environment = unsafe { (*rest).next_pointer() }.cast();
    execve(path, list.as_ptr(), environment)
}
