//! Where a server listens: `unix:PATH` on the same host (shared memory), `tcp:HOST:PORT` across hosts.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The longest path of a Unix socket, without its terminating NUL.
pub const UNIX_PATH_LEN_MAX: usize = 107;

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// A Unix socket: set-up and credentials there, requests in shared memory.
    Unix(String),
    /// `HOST:PORT`; the host may be a name, an IPv4 address, or an IPv6 address in brackets.
    Tcp(String),
}

/// Text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} is no server address: {reason} (allowed: unix:PATH, tcp:HOST:PORT)")]
pub struct BadAddress {
    input: String,
    reason: &'static str,
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(s: &str) -> Result<Self, BadAddress> {
        let fail = |reason| Err(BadAddress { input: s.to_owned(), reason });
        if let Some(path) = s.strip_prefix("unix:") {
            return match path.len() {
                0 => fail("the path is empty"),
                1..=UNIX_PATH_LEN_MAX if !path.contains('\0') => Ok(Self::Unix(path.to_owned())),
                _ => fail("the path of a Unix socket has at most 107 bytes"),
            };
        }
        let Some(rest) = s.strip_prefix("tcp:") else { return fail("it begins with neither unix: nor tcp:") };
        match rest.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Self::Tcp(rest.to_owned())),
            _ => fail("a host and a port of 0 to 65535 must follow tcp:"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{path}"),
            Self::Tcp(place) => write!(f, "tcp:{place}"),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = BadAddress;
    fn try_from(s: String) -> Result<Self, BadAddress> {
        s.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_both_kinds() {
        for text in ["unix:/run/isonomia.sock", "tcp:127.0.0.1:7788", "tcp:[::1]:7788", "tcp:io1.cluster:0"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_the_rest_with_what_is_allowed() {
        let long = format!("unix:/{}", "x".repeat(107));
        for text in ["", "/run/x.sock", "unix:", "tcp:host", "tcp::1", "tcp:h:99999", "udp:h:1", &long] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("allowed: unix:PATH, tcp:HOST:PORT"), "{error}");
        }
    }
}
