//! The system calls that take paths, with where their paths are.

use libc::c_long;

/// One path of a call.
#[derive(Clone, Copy, Debug)]
pub struct PathArgument {
    /// The argument with the path.
    pub path: usize,
    /// The argument with the descriptor that a relative path starts from; the working directory if there is none.
    pub directory: Option<usize>,
}

/// One system call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its number on this machine.
    pub number: c_long,
    /// Its name.
    pub name: &'static str,
    /// Its paths.
    pub paths: &'static [PathArgument],
}

/// From the working directory.
const fn from_here(path: usize) -> PathArgument {
    PathArgument { path, directory: None }
}

/// From a descriptor.
const fn from(directory: usize, path: usize) -> PathArgument {
    PathArgument { path, directory: Some(directory) }
}

const FIRST: &[PathArgument] = &[from_here(0)];
const SECOND: &[PathArgument] = &[from_here(1)];
const AT_FIRST: &[PathArgument] = &[from(0, 1)];
const AT_BOTH: &[PathArgument] = &[from(0, 1), from(2, 3)];
const AT_SECOND: &[PathArgument] = &[from(1, 2)];
const AT_FOURTH: &[PathArgument] = &[from(3, 4)];

macro_rules! calls {
    ($($number:ident $name:literal $paths:expr;)*) => {
        &[$(Call { number: libc::$number, name: $name, paths: $paths }),*]
    };
}

/// What every architecture has.
const EVERYWHERE: &[Call] = calls! {
    SYS_openat "openat" AT_FIRST;
    SYS_openat2 "openat2" AT_FIRST;
    SYS_mkdirat "mkdirat" AT_FIRST;
    SYS_mknodat "mknodat" AT_FIRST;
    SYS_fchownat "fchownat" AT_FIRST;
    SYS_newfstatat "newfstatat" AT_FIRST;
    SYS_statx "statx" AT_FIRST;
    SYS_unlinkat "unlinkat" AT_FIRST;
    SYS_renameat2 "renameat2" AT_BOTH;
    SYS_linkat "linkat" AT_BOTH;
    SYS_symlinkat "symlinkat" AT_SECOND;
    SYS_readlinkat "readlinkat" AT_FIRST;
    SYS_fchmodat "fchmodat" AT_FIRST;
    SYS_faccessat "faccessat" AT_FIRST;
    SYS_faccessat2 "faccessat2" AT_FIRST;
    SYS_utimensat "utimensat" AT_FIRST;
    SYS_name_to_handle_at "name_to_handle_at" AT_FIRST;
    SYS_execve "execve" FIRST;
    SYS_execveat "execveat" AT_FIRST;
    SYS_inotify_add_watch "inotify_add_watch" SECOND;
    SYS_fanotify_mark "fanotify_mark" AT_FOURTH;
    SYS_open_tree "open_tree" AT_FIRST;
    SYS_truncate "truncate" FIRST;
    SYS_statfs "statfs" FIRST;
    SYS_chdir "chdir" FIRST;
    SYS_chroot "chroot" FIRST;
    SYS_acct "acct" FIRST;
    SYS_setxattr "setxattr" FIRST;
    SYS_lsetxattr "lsetxattr" FIRST;
    SYS_getxattr "getxattr" FIRST;
    SYS_lgetxattr "lgetxattr" FIRST;
    SYS_listxattr "listxattr" FIRST;
    SYS_llistxattr "llistxattr" FIRST;
    SYS_removexattr "removexattr" FIRST;
    SYS_lremovexattr "lremovexattr" FIRST;
    SYS_mount "mount" SECOND;
    SYS_umount2 "umount2" FIRST;
    SYS_swapon "swapon" FIRST;
};

/// The same number everywhere; libc does not know it on all architectures.
const FCHMODAT2: Call = Call { number: 452, name: "fchmodat2", paths: AT_FIRST };

/// The older calls that only some have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[Call] = calls! {
    SYS_open "open" FIRST;
    SYS_creat "creat" FIRST;
    SYS_stat "stat" FIRST;
    SYS_lstat "lstat" FIRST;
    SYS_access "access" FIRST;
    SYS_mkdir "mkdir" FIRST;
    SYS_rmdir "rmdir" FIRST;
    SYS_mknod "mknod" FIRST;
    SYS_link "link" &[from_here(0), from_here(1)];
    SYS_unlink "unlink" FIRST;
    SYS_symlink "symlink" SECOND;
    SYS_readlink "readlink" FIRST;
    SYS_rename "rename" &[from_here(0), from_here(1)];
    SYS_renameat "renameat" AT_BOTH;
    SYS_chmod "chmod" FIRST;
    SYS_chown "chown" FIRST;
    SYS_lchown "lchown" FIRST;
    SYS_utime "utime" FIRST;
    SYS_utimes "utimes" FIRST;
    SYS_futimesat "futimesat" AT_FIRST;
};
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[Call] = &[];

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Call> {
    EVERYWHERE.iter().chain(OLDER).chain([&FCHMODAT2])
}
