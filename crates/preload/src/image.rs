//! Programs that lie under the prefix: what the kernel executes instead of them.
//!
//! The kernel cannot read a file of ours. A program is copied into a memory file, which the kernel can execute: there is
//! no other name for it, so `/proc/self/exe` leads nowhere, and libraries that are to be found beside it (`$ORIGIN`) are
//! not. A script is run by the interpreter that it names, to which its own path is an argument, as the kernel does it.

use crate::connection::client;
use crate::exec::List;
use crate::foreign::CPath;
use crate::placeholder::{self, Memory};
use crate::serve::{Routed, absolute_target, refusal, route};
use crate::{cwd, environment, number, table};
use isonomia_client::{Capability, Client, Error, FileKind, Ino, OpenFile, OpenHow, access};
use rustix::io::Errno;
use std::ffi::{CStr, CString, c_char, c_int};

/// Name of the copies.
const NAME: &CStr = c"isonomia-program";
/// The kernel looks at no more of a script's first line.
const HEAD_LEN: usize = 256;
/// Scripts whose interpreters are scripts, as in the kernel.
const SCRIPT_DEPTH_MAX: usize = 4;
/// Symbolic links that lead out of the prefix and in again.
const LINKS_MAX: usize = 40;
/// The longest program: it is copied into memory.
const PROGRAM_LEN_MAX: u64 = 1 << 30;
/// Bytes copied at a time.
const PIECE_LEN: usize = 1 << 20;

/// What the kernel can execute.
pub enum Image {
    /// A copy of a program.
    Memory(Memory),
    /// A program of the kernel's.
    Path(CString),
}

/// A program with the arguments that come before those of the caller.
pub struct Program {
    pub image: Image,
    /// Instead of the first argument; none for a program that is no script.
    inserted: Vec<CString>,
}

impl Program {
    /// The list of all arguments, if it is not the caller's own.
    pub fn arguments(&self, given: List) -> Option<Vec<*const c_char>> {
        let inserted = self.inserted.iter().map(|argument| argument.as_ptr());
        (!self.inserted.is_empty()).then(|| inserted.chain(rest_of(given)).collect())
    }
}

/// The arguments after the first, with the null at their end.
pub fn rest_of(list: List) -> impl Iterator<Item = *const c_char> {
    let mut ended = list.is_null();
    let mut at = list;
    let mut next = move || {
        if ended {
            return None;
        }
        // SAFETY: the caller vouches for a list that ends in null, which was not met yet.
        let argument = unsafe { at.read() };
        ended = argument.is_null();
        // SAFETY: as above; at most one behind the null.
        at = unsafe { at.add(1) };
        Some(argument)
    };
    let first = next();
    let lone_null = first.is_none_or(<*const c_char>::is_null).then_some(std::ptr::null());
    lone_null.into_iter().chain(std::iter::from_fn(next))
}

/// The program at `path` if it is ours, or was reached through the prefix.
pub fn find(dir: c_int, path: CPath) -> Option<Result<Program, Error>> {
    let text = path.bytes()?;
    match route(dir, text) {
        Ok(Routed::Theirs) => None,
        routed => Some(routed.and_then(|routed| follow(routed, text))),
    }
}

/// The program behind descriptor `fd` if it is ours.
pub fn behind(fd: c_int) -> Option<Result<Program, Error>> {
    let file_ref = table::find(fd)?;
    Some(client().and_then(|client| {
        let name = placeholder::proc_path(fd).as_c_str().to_bytes().to_vec();
        load(client, file_ref.capability()?, b"", &name, &mut Vec::new())
    }))
}

fn follow(routed: Routed, named: &[u8]) -> Result<Program, Error> {
    let mut inserted = Vec::new();
    follow_into(routed, named, &mut inserted)
}

/// Follows links out of the prefix and in again. `inserted` has the arguments of the scripts so far.
fn follow_into(mut routed: Routed, named: &[u8], inserted: &mut Vec<CString>) -> Result<Program, Error> {
    for _ in 0..LINKS_MAX {
        let (at, path) = match routed {
            Routed::Ours { at, path } => (at, path.into_owned()),
            Routed::TheirsBy(other) => return theirs(other, inserted),
            Routed::Theirs => return theirs(named.to_vec(), inserted),
        };
        match load(client()?, at, &path, named, inserted) {
            Err(Error::Outside(target)) => {
                let target = absolute_target(target);
                routed = match route(libc::AT_FDCWD, &target)? {
                    Routed::Ours { at, path } => Routed::Ours { at, path: path.into_owned().into() },
                    Routed::TheirsBy(other) => Routed::TheirsBy(other),
                    Routed::Theirs => Routed::TheirsBy(target),
                };
            }
            loaded => return loaded,
        }
    }
    Err(refusal(Errno::LOOP))
}

fn theirs(path: Vec<u8>, inserted: &mut Vec<CString>) -> Result<Program, Error> {
    let path = CString::new(path).map_err(|_| refusal(Errno::INVAL))?;
    Ok(Program { image: Image::Path(path), inserted: std::mem::take(inserted) })
}

/// The program `path` below `at`, which the caller calls `named`.
fn load(
    client: &Client,
    at: Capability,
    path: &[u8],
    named: &[u8],
    inserted: &mut Vec<CString>,
) -> Result<Program, Error> {
    let attr = client.get_attr(at, path, true)?;
    let is_executable = attr.kind() == FileKind::Regular && attr.mode & 0o111 != 0;
    if !is_executable {
        return Err(refusal(Errno::ACCESS));
    }
    client.access(at, path, 1, true)?;
    let how = OpenHow { access: access::READ, number: number::fresh().map_err(refusal)?, ..OpenHow::default() };
    let file = client.open(at, path, &how)?;
    let loaded = read_program(client, &file, attr.size_bytes, at, named, inserted);
    // The program was read, or has failed to be: whether the reference could be given back changes neither.
    let _ = client.release(Ino(file.capability.ino), how.number);
    loaded
}

fn read_program(
    client: &Client,
    file: &OpenFile,
    len: u64,
    at: Capability,
    named: &[u8],
    inserted: &mut Vec<CString>,
) -> Result<Program, Error> {
    let mut head = [0; HEAD_LEN];
    let head_len = client.read_at(file, 0, &mut head)?;
    let Some((interpreter, argument)) = interpreter(&head[..head_len]) else {
        let image = Image::Memory(copy(client, file, len)?);
        return Ok(Program { image, inserted: std::mem::take(inserted) });
    };
    if inserted.len() >= 2 * SCRIPT_DEPTH_MAX {
        return Err(refusal(Errno::LOOP));
    }
    let string = |text: &[u8]| CString::new(text).map_err(|_| refusal(Errno::NOEXEC));
    let script = string(&spelled(client, at, named)?)?;
    let before = std::mem::take(inserted);
    inserted.push(string(interpreter)?);
    inserted.extend(argument.map(string).transpose()?);
    inserted.push(script);
    // The name of a script that is itself an interpreter is there already.
    inserted.extend(before.into_iter().skip(1));
    match route(libc::AT_FDCWD, interpreter)? {
        Routed::Theirs => theirs(interpreter.to_vec(), inserted),
        routed => follow_into(routed, interpreter, inserted),
    }
}

/// The name by which the interpreter finds the script: the caller's, if it means the same there.
fn spelled(client: &Client, at: Capability, named: &[u8]) -> Result<Vec<u8>, Error> {
    let means_the_same = named.first() == Some(&b'/') || cwd::current() == Some(at);
    if means_the_same {
        return Ok(named.to_vec());
    }
    let prefix = environment::prefix().ok_or(refusal(Errno::NOENT))?;
    Ok([&cwd::absolute(client, prefix.path(), at)?, &b"/"[..], named].concat())
}

/// Interpreter and argument from the first line of a script.
fn interpreter(head: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
    let argument = line[end..].trim_ascii();
    (end > 0).then_some((&line[..end], (!argument.is_empty()).then_some(argument)))
}

/// A copy of the library `path` below `at`.
pub fn library(client: &Client, at: Capability, path: &[u8]) -> Result<Memory, Error> {
    let how = OpenHow { access: access::READ, number: number::fresh().map_err(refusal)?, ..OpenHow::default() };
    let file = client.open(at, path, &how)?;
    let copied = match file.attr.kind() {
        FileKind::Regular => copy(client, &file, file.attr.size_bytes),
        _ => Err(refusal(Errno::INVAL)),
    };
    // As above.
    let _ = client.release(Ino(file.capability.ino), how.number);
    copied
}

fn copy(client: &Client, file: &OpenFile, len: u64) -> Result<Memory, Error> {
    if len > PROGRAM_LEN_MAX {
        return Err(refusal(Errno::NOMEM));
    }
    let memory = Memory::create(NAME, 0).map_err(refusal)?;
    let mut piece = vec![0; PIECE_LEN.min(len as usize).max(1)];
    let mut at = 0;
    loop {
        let count = client.read_at(file, at, &mut piece)?;
        let mut rest = &piece[..count];
        while !rest.is_empty() {
            let written = rustix::io::pwrite(memory.fd(), rest, at).map_err(refusal)?;
            rest = &rest[written..];
            at += written as u64;
        }
        if count < piece.len() || at >= len {
            return memory.for_reading().map_err(refusal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_its_interpreter() {
        type Named = (&'static [u8], Option<&'static [u8]>);
        let cases: [(&[u8], Option<Named>); 7] = [
            (b"#!/bin/sh\necho", Some((b"/bin/sh", None))),
            (b"#! /usr/bin/env  python3 -u \n", Some((b"/usr/bin/env", Some(b"python3 -u")))),
            (b"#!\t/x", Some((b"/x", None))),
            (b"#!\n/bin/sh", None),
            (b"#!", None),
            (b"\x7fELF", None),
            (b"", None),
        ];
        for (head, expected) in cases {
            assert_eq!(interpreter(head), expected, "{}", head.escape_ascii());
        }
    }

    #[test]
    fn arguments_replace_the_first() {
        let (name, first) = (c"script", c"one");
        let program = |inserted| Program { image: Image::Path(c"/bin/sh".into()), inserted };
        let given = [name.as_ptr(), first.as_ptr(), std::ptr::null()];
        assert_eq!(program(vec![]).arguments(given.as_ptr()), None);
        let sh = program(vec![c"/bin/sh".into(), c"/p/script".into()]);
        let list = sh.arguments(given.as_ptr()).unwrap();
        assert_eq!((list.len(), list[2]), (4, first.as_ptr()));
        assert!(list[3].is_null());
        for empty in [[std::ptr::null()].as_ptr(), std::ptr::null()] {
            assert_eq!(sh.arguments(empty).unwrap().len(), 3);
        }
    }
}
