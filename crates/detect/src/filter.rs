//! The seccomp filter that stops calls with paths, and how its listener comes from the command to this program.

use crate::calls;
use anyhow::{Context, Result};
use libc::{sock_filter, sock_fprog};
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::{MaybeUninit, offset_of};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the filter sees of the calls that it is written for (`AUDIT_ARCH_…`): machine, 64 bits, little-endian.
const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") { 183 } else { 62 } | 0xc000_0000;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Skips the next instruction unless the loaded value is `k`.
fn only_if(k: u32) -> sock_filter {
    sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k }
}

/// Skips the next instruction if the loaded value is `k`.
fn unless(k: u32) -> sock_filter {
    sock_filter { code: JUMP_IF_EQUAL, jt: 1, jf: 0, k }
}

fn program() -> Vec<sock_filter> {
    let allow = statement(RETURN, libc::SECCOMP_RET_ALLOW);
    let mut program = vec![
        statement(LOAD, offset_of!(libc::seccomp_data, arch) as u32),
        unless(ARCHITECTURE),
        allow,
        statement(LOAD, offset_of!(libc::seccomp_data, nr) as u32),
    ];
    for call in calls::all() {
        program.extend([only_if(call.number as u32), statement(RETURN, libc::SECCOMP_RET_USER_NOTIF)]);
    }
    program.push(allow);
    program
}

/// A connection between this program and the command before it is executed.
pub fn connection() -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .context("cannot make a connection to the command")
}

/// Lets `command` install the filter and send its listener through `there`.
pub fn install_in(command: &mut Command, there: OwnedFd) -> Result<()> {
    let program = program();
    let len = u16::try_from(program.len()).context("the filter is too long")?;
    // SAFETY: after the fork only system calls are made, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            let listener = install(&program, len)?;
            send(&there, &listener)
        });
    }
    Ok(())
}

fn install(program: &[sock_filter], len: u16) -> std::io::Result<OwnedFd> {
    rustix::thread::set_no_new_privs(true)?;
    // Signals wait until a call that is being looked at goes on: programs would see calls interrupted that otherwise
    // never are. Linux before 5.19 cannot.
    let waiting = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    match set_filter(program, len, waiting) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            set_filter(program, len, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)
        }
        listener => listener,
    }
}

fn set_filter(program: &[sock_filter], len: u16, flags: libc::c_ulong) -> std::io::Result<OwnedFd> {
    let program = sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program is as long as it says.
    let listener =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if listener < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}

fn send(there: &OwnedFd, listener: &OwnedFd) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let listener = [rustix::fd::AsFd::as_fd(listener)];
    ancillary.push(SendAncillaryMessage::ScmRights(&listener));
    rustix::net::sendmsg(there, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// The listener; none if the command ended before it could send it.
pub fn receive(here: &OwnedFd) -> Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(here, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut received = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let listener = received.next().and_then(|mut descriptors| descriptors.next());
    Ok(listener)
}
