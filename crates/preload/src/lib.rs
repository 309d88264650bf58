//! `libisonomia_preload.so`: serves the files under a prefix to unmodified dynamic programs.
//!
//! Loaded by `LD_PRELOAD`, it stands before libc's file functions. What a path under the prefix or a descriptor of
//! one concerns goes to a server through [`isonomia_client`]; everything else goes to the next library, untouched.
//! `docs/SEMANTICS.md` says for every call what becomes of it.
//!
//! * [`route`] decides by a path's text, [`serve`] by path and descriptor: the one module that does.
//! * [`placeholder`], [`description`], [`table`]: descriptors of ours, as the kernel and this process know them.
//! * [`calls`] is the table of all hooks, from which they are made; the other modules do the calls, a family each.
//!
//! With the feature `wrap` it is an archive for static programs, made by `scripts/wrap`: each hook is called `__wrap_NAME`,
//! to which the linker's `--wrap` leads, and the function behind it `__real_NAME`.
//!
//! The library's own code makes its system calls directly. `std`'s I/O would call the very functions that are
//! defined here, and must not be used. Its memory is its own ([`heap`]): hooks are called by the program's allocator, too.

#![cfg_attr(
    feature = "wrap",
    allow(dead_code, unused_imports, unused_macros, reason = "hooks of what a static C library lacks are left out")
)]

#[macro_use]
mod hook;
#[macro_use]
mod variadic;
#[macro_use]
mod onward;
mod aio;
mod attr;
mod calls;
mod connection;
mod cwd;
mod description;
mod descriptors;
mod dir;
mod direct;
mod elf;
mod environment;
mod exec;
mod fcntl;
mod foreign;
mod fts;
mod glob;
mod heap;
mod hint;
mod image;
mod internal;
mod kernel_queue;
mod library;
mod link;
mod lock;
mod mapping;
mod number;
mod open;
#[cfg(test)]
mod page;
mod phase;
mod placeholder;
mod poll;
mod position;
mod print;
mod process;
mod realpath;
mod recycle;
mod refuse;
mod route;
mod rw;
mod seek;
mod serve;
mod signals;
mod socket;
mod spawn;
mod spin;
mod sqlite;
mod standard;
mod stat;
mod statfs;
mod stdio;
mod sync;
mod syscall;
mod table;
mod temporary;
mod transfer;
mod umask;
mod user;
mod walk;
mod xattr;
