//! Mount options: the words after `-o`, one definition for the command line and fstab.

use isonomia_client::{Addresses, Protection, owner};
use isonomia_units::Nanos;
use std::time::Duration;

/// The longest time-out of names and attributes: longer ones are taken for a slip.
const CACHE_SECONDS_MAX: f64 = 86_400.0;
/// The longest wait for a server.
const TIMEOUT_MAX: Nanos = Nanos(86_400_000_000_000);
/// Threads at most.
const THREADS_MAX: usize = 256;
/// Words that speak to `mount(8)`, systemd, and others, not to a file system.
const OTHERS_WORDS: [&str; 18] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "nofail",
    "_netdev",
    "async",
    "nodirsync",
    "silent",
    "loud",
    "noiversion",
];

/// What a mount must know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where servers listen, of one file system.
    pub server: Addresses,
    /// What is shown as the source of the mount; the server's address if nothing is said.
    pub source: Option<String>,
    /// The key for servers on TCP.
    pub key_file: Option<String>,
    /// Who may run the server, besides this user and root.
    pub server_user: Option<u32>,
    /// How connections on TCP are protected.
    pub protection: Protection,
    /// The longest wait for the server.
    pub timeout: Nanos,
    /// Other users than the mounter may use the mount.
    pub allow_other: bool,
    /// The kernel checks permissions even where its numbers of users may not be the server's.
    pub default_permissions: bool,
    /// Nothing may be changed through the mount.
    pub read_only: bool,
    /// Device nodes work.
    pub dev: bool,
    /// Set-user-id programs work.
    pub suid: bool,
    /// Programs may not be executed.
    pub no_exec: bool,
    /// How long the kernel may keep attributes.
    pub attr_timeout: Duration,
    /// How long the kernel may keep which inode a name leads to.
    pub entry_timeout: Duration,
    /// Requests served at once.
    pub threads: usize,
}

/// A word that is no option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// Nothing known.
    #[error(
        "unknown mount option `{0}` (known: server=ADDR[,ADDR...], fsname=NAME, key_file=FILE, server_user=USER, \
         server_name=NAME, integrity=HOW, munge_socket=PATH, timeout=TIME, allow_other, \
         default_permissions, \
         ro, dev, suid, \
         noexec, attr_timeout=S, entry_timeout=S, threads=N, and the words of fstab)"
    )]
    Unknown(String),
    /// A value that is not one.
    #[error("mount option `{option}` (allowed: {allowed})")]
    Value {
        /// The option as it was given.
        option: String,
        /// What it could be.
        allowed: &'static str,
    },
}

impl Options {
    /// Threads, if nothing else is said: requests of a job that has to wait for its turn leave others to other jobs'.
    pub const THREADS: usize = 32;

    /// A mount of the file system whose servers are at `server`, with everything else as it is by default.
    pub fn new(server: Addresses) -> Self {
        Self {
            server,
            source: None,
            key_file: None,
            server_user: None,
            protection: Protection::default(),
            timeout: Nanos::from_secs(30),
            allow_other: false,
            default_permissions: false,
            read_only: false,
            dev: false,
            suid: false,
            no_exec: false,
            attr_timeout: Duration::ZERO,
            entry_timeout: Duration::ZERO,
            threads: Self::THREADS,
        }
    }

    /// Applies options as they stand after `-o`: parted by commas, later ones over earlier.
    pub fn apply(&mut self, words: &str) -> Result<(), OptionError> {
        let mut server: Option<String> = None;
        for word in words.split(',').filter(|word| !word.is_empty()) {
            match &mut server {
                // Several addresses are parted by commas as well.
                Some(server) if word.starts_with("tcp:") || word.starts_with("unix:") => *server += &format!(",{word}"),
                _ if word.starts_with("server=") => server = Some(word.to_owned()),
                _ => self.apply_one(word)?,
            }
        }
        server.map_or(Ok(()), |server| self.apply_one(&server))
    }

    fn apply_one(&mut self, word: &str) -> Result<(), OptionError> {
        let bad = |allowed| OptionError::Value { option: word.to_owned(), allowed };
        match word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value))) {
            ("server", Some(value)) => {
                self.server = value
                    .parse()
                    .map_err(|_| bad("server=unix:PATH or server=tcp:HOST:PORT, and up to 16 parted by commas"))?;
            }
            ("fsname", Some(value)) => self.source = Some(value.to_owned()),
            ("key_file", Some(value)) => self.key_file = Some(value.to_owned()),
            ("server_user", Some(value)) => {
                let user = owner::user(value).map_err(|_| bad("server_user=NUMBER or a name in /etc/passwd"))?;
                self.server_user = Some(user);
            }
            ("server_name", Some(value)) => self.protection.server_name = Some(value.to_owned()),
            ("munge_socket", Some(value)) => self.protection.munge_socket = Some(value.to_owned()),
            ("integrity", Some(value)) => {
                let how = value.parse().map_err(|_| bad("integrity=none, integrity=mac or integrity=encrypted"))?;
                self.protection.integrity = Some(how);
            }
            ("timeout", Some(value)) => {
                let time = value.parse().ok().filter(|time| (Nanos(1)..=TIMEOUT_MAX).contains(time));
                self.timeout = time.ok_or_else(|| bad("timeout=TIME up to 24 hours, such as timeout=10s"))?;
            }
            ("attr_timeout", Some(value)) => {
                self.attr_timeout = seconds(value).ok_or_else(|| bad("attr_timeout=SECONDS, 0 to 86400"))?;
            }
            ("entry_timeout", Some(value)) => {
                self.entry_timeout = seconds(value).ok_or_else(|| bad("entry_timeout=SECONDS, 0 to 86400"))?;
            }
            ("threads", Some(value)) => {
                let threads = value.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
                self.threads = threads.ok_or_else(|| bad("threads=N, 1 to 256"))?;
            }
            ("allow_other", None) => self.allow_other = true,
            ("default_permissions", None) => self.default_permissions = true,
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("dev", None) => self.dev = true,
            ("nodev", None) => self.dev = false,
            ("suid", None) => self.suid = true,
            ("nosuid", None) => self.suid = false,
            ("noexec", None) => self.no_exec = true,
            ("exec", None) => self.no_exec = false,
            // Access times do not change by reading anyway.
            ("atime" | "noatime" | "relatime" | "strictatime" | "diratime" | "nodiratime" | "lazytime", None) => {}
            ("user", Some(_)) => {}
            (other, _) if other.starts_with("x-") || other.starts_with("X-") || other == "comment" => {}
            (other, None) if OTHERS_WORDS.contains(&other) => {}
            _ => return Err(OptionError::Unknown(word.to_owned())),
        }
        Ok(())
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    (0.0..=CACHE_SECONDS_MAX).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &str) -> Result<Options, OptionError> {
        let mut options = Options::new("unix:/run/isonomia.sock".parse().unwrap());
        options.apply(words).map(|()| options)
    }

    #[test]
    fn a_line_of_fstab_is_understood() {
        let got = options(
            "rw,noauto,_netdev,nofail,async,x-systemd.automount,X-mount.mkdir=0755,comment=x,allow_other,noatime,attr_timeout=1.5,entry_timeout=2,\
             server=tcp:io1:7788,key_file=/etc/isonomia.key,timeout=10s,threads=8,noexec,ro,dev,suid,\
             default_permissions",
        )
        .unwrap();
        assert_eq!(got.server.to_string(), "tcp:io1:7788");
        assert_eq!(got.key_file.as_deref(), Some("/etc/isonomia.key"));
        assert_eq!((got.attr_timeout, got.entry_timeout), (Duration::from_millis(1500), Duration::from_secs(2)));
        assert_eq!((got.timeout, got.threads), (Nanos::from_secs(10), 8));
        assert!(got.default_permissions && got.allow_other && got.read_only && got.dev && got.suid && got.no_exec);
    }

    #[test]
    fn several_servers_are_parted_by_commas_too() {
        let got = options("ro,server=tcp:a:1,unix:/b,noexec").unwrap();
        assert_eq!(got.server.to_string(), "tcp:a:1,unix:/b");
        assert!(got.read_only && got.no_exec);
        let error = options("server=tcp:a:1,tcp:b").unwrap_err().to_string();
        assert!(error.contains("server=tcp:a:1,tcp:b"), "{error}");
        assert!(options("ro,tcp:a:1").is_err());
    }

    #[test]
    fn later_words_win_and_the_default_is_safe() {
        let got = options("").unwrap();
        assert!(!got.allow_other && !got.dev && !got.suid && got.attr_timeout.is_zero() && got.entry_timeout.is_zero());
        let got = options("ro,dev,suid,noexec,rw,nodev,nosuid,exec").unwrap();
        assert!(!got.read_only && !got.dev && !got.suid && !got.no_exec);
    }

    #[test]
    fn what_is_no_option_is_named() {
        assert_eq!(options("ro,alow_other").unwrap_err(), OptionError::Unknown("alow_other".to_owned()));
        for bad in ["threads=0", "threads=257", "attr_timeout=-1", "entry_timeout=nan", "timeout=0s", "server=x"] {
            let error = options(bad).unwrap_err();
            assert!(matches!(&error, OptionError::Value { option, .. } if option == bad), "{bad}: {error}");
        }
        assert!(options("allow_other=1").is_err() && options("server").is_err());
    }
}
