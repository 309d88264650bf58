//! `isonomia run`: a program with the preload client in it.

use crate::arguments::RunOptions;
use crate::control;
use crate::log;
use crate::program::{self, Reach};
use anyhow::{Context, Result, bail};
use isonomia_transport::handshake;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const LIBRARY: &str = "libisonomia_preload.so";
/// The library of `--hints`, beside the other one.
const HINTS_LIBRARY: &str = "libisonomia_hints.so";
/// Where the library is, seen from the directory of this program: built by cargo, installed, packaged.
const LIBRARY_DIRS: [&str; 3] = [".", "../lib", "../lib/isonomia"];
pub const PREFIX_DEFAULT: &str = "/isonomia";

/// What a shell reports for a command that is not found, and for one that cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Becomes the command; comes back only when that fails.
pub fn run(options: &RunOptions) -> Result<ExitCode> {
    let [name, arguments @ ..] = options.command.as_slice() else { bail!("no command is given") };
    let Ok(path) = which::which(name) else {
        if Path::new(name).components().count() > 1 && Path::new(name).exists() {
            log::say(format_args!("{} cannot be executed", name.display()));
            return Ok(ExitCode::from(NOT_EXECUTABLE));
        }
        log::say(format_args!("{}: command not found", name.display()));
        return Ok(ExitCode::from(NOT_FOUND));
    };
    let prefix = options.prefix.clone().or_else(|| env::var("ISONOMIA_PREFIX").ok());
    let prefix = prefix.as_deref().unwrap_or(PREFIX_DEFAULT);
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments);
    // A program that may be executed but not read cannot be looked at: the dynamic linker will find out what can be
    // preloaded.
    let reach = program::reach(&path).unwrap_or(Reach::Program);
    if let Reach::ChildrenOnly(reason) | Reach::Harmful(reason) = reach {
        log::say(format_args!("{} {reason}: it runs, but without the files of {prefix}", path.display()));
    }
    if !matches!(reach, Reach::Harmful(_)) {
        let library = library(options.preload.as_deref())?;
        let hints = if options.hints { Some(hints_library(&library)?) } else { None };
        let libraries: Vec<&Path> =
            [Some(&library), hints.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect();
        command.env("LD_PRELOAD", preload_list(&libraries, env::var_os("LD_PRELOAD").as_deref())?);
        command.envs(environment(options));
    }
    let error = command.exec();
    log::say(format_args!("cannot run {}: {error}", path.display()));
    Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }))
}

/// The variables that tell the preload client what the options say. A variable whose option is absent stays as
/// it is in the environment; the address is always set, so that this program and the library agree on it.
fn environment(options: &RunOptions) -> Vec<(&'static str, OsString)> {
    let number = |n: Option<u32>| n.map(|n| n.to_string().into());
    let text = |s: &Option<String>| s.as_ref().map(OsString::from);
    let server = control::addresses(&options.server).to_string();
    [
        ("ISONOMIA_SERVER", Some(server.into())),
        ("ISONOMIA_SERVER_USER", number(options.server.reach.server_user)),
        ("ISONOMIA_KEY_FILE", options.server.reach.key_file.as_deref().map(|path| control::absolute(path).into())),
        (handshake::SERVER_NAME, text(&options.server.reach.protection.server_name)),
        (handshake::INTEGRITY, options.server.reach.protection.integrity.map(|how| how.to_string().into())),
        (handshake::MUNGE_SOCKET, text(&options.server.reach.protection.munge_socket)),
        ("ISONOMIA_PREFIX", text(&options.prefix)),
        ("ISONOMIA_TIMEOUT_S", options.timeout.map(|s| s.to_string().into())),
        ("ISONOMIA_JOB", text(&options.job)),
        ("ISONOMIA_TITLE", text(&options.title)),
        ("ISONOMIA_USER", text(&options.user)),
        ("ISONOMIA_GROUP", text(&options.group)),
        ("ISONOMIA_NODES", number(options.nodes)),
        ("ISONOMIA_PRIORITY", number(options.priority)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

/// The preload library: the one given, or the first that is found.
fn library(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = given {
        return path.canonicalize().with_context(|| format!("the preload library {} is not there", path.display()));
    }
    beside_program(LIBRARY, "name it with --preload or ISONOMIA_PRELOAD_LIBRARY")
}

/// The file of this name that belongs to this program; `advice` says what to do if there is none.
pub fn beside_program(name: &str, advice: &str) -> Result<PathBuf> {
    let program = env::current_exe().with_context(|| format!("cannot tell where this program is; {advice}"))?;
    let dir = program.parent().unwrap_or(Path::new("/"));
    let found = LIBRARY_DIRS.iter().find_map(|below| dir.join(below).join(name).canonicalize().ok());
    found.with_context(|| {
        let tried = LIBRARY_DIRS.map(|below| dir.join(below).display().to_string()).join(", ");
        format!("{name} is in none of {tried}; {advice}")
    })
}

/// The library of hints that belongs to the preload library.
fn hints_library(library: &Path) -> Result<PathBuf> {
    let path = library.with_file_name(HINTS_LIBRARY);
    path.canonicalize().with_context(|| format!("{} is not there: --hints needs it", path.display()))
}

/// `LD_PRELOAD` with `libraries` in front of what is there already.
fn preload_list(libraries: &[&Path], already: Option<&OsStr>) -> Result<OsString> {
    let ours: Vec<&[u8]> = libraries.iter().map(|library| library.as_os_str().as_bytes()).collect();
    let cannot = |path: &&[u8]| path.iter().any(|b| matches!(b, b' ' | b':'));
    if let Some(path) = ours.iter().find(|path| cannot(path)) {
        bail!(
            "{} cannot be preloaded: LD_PRELOAD takes no path with a blank or a colon",
            OsStr::from_bytes(path).display()
        );
    }
    let others = already.map_or(&b""[..], OsStr::as_bytes).split(|b| matches!(b, b' ' | b':'));
    let others = others.filter(|other| !other.is_empty() && !ours.contains(other));
    let list: Vec<&[u8]> = ours.iter().copied().chain(others).collect();
    Ok(OsStr::from_bytes(&list.join(&b':')).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_once() {
        let list = |already: Option<&str>| preload_list(&[Path::new("/l/p.so")], already.map(OsStr::new)).unwrap();
        assert_eq!(list(None), "/l/p.so");
        assert_eq!(list(Some("")), "/l/p.so");
        assert_eq!(list(Some("/a.so /l/p.so:/b.so")), "/l/p.so:/a.so:/b.so");
        let two = [Path::new("/l/p.so"), Path::new("/l/h.so")];
        assert_eq!(preload_list(&two, Some(OsStr::new("/l/h.so:/a.so"))).unwrap(), "/l/p.so:/l/h.so:/a.so");
        assert!(preload_list(&[two[0], Path::new("/my lib/p.so")], None).is_err());
    }
}
