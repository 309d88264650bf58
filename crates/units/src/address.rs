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

/// Addresses of one file system's servers, parted by commas: any of them will do, and the first that answers is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Box<[Address]>);

impl Addresses {
    /// How many there may be.
    pub const MAX: usize = 16;

    /// Each of them, 1 to [`Self::MAX`].
    pub fn as_slice(&self) -> &[Address] {
        &self.0
    }
}

impl From<Address> for Addresses {
    fn from(address: Address) -> Self {
        Self([address].into())
    }
}

impl FromStr for Addresses {
    type Err = BadAddress;

    fn from_str(s: &str) -> Result<Self, BadAddress> {
        let all: Box<[Address]> = s.split(',').map(|text| text.trim().parse()).collect::<Result<_, _>>()?;
        if all.len() > Self::MAX {
            return Err(BadAddress { input: s.to_owned(), reason: "more than 16 addresses" });
        }
        Ok(Self(all))
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(at, address)| match at {
            0 => write!(f, "{address}"),
            _ => write!(f, ",{address}"),
        })
    }
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
            Self::Tcp(endpoint) => write!(f, "tcp:{endpoint}"),
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
    fn several_are_parted_by_commas() {
        let addresses: Addresses = "tcp:a:1, unix:/s,tcp:[::1]:2".parse().unwrap();
        assert_eq!(addresses.as_slice().len(), 3);
        assert_eq!(addresses.to_string(), "tcp:a:1,unix:/s,tcp:[::1]:2");
        assert_eq!(addresses.to_string().parse(), Ok(addresses));
        let error = "tcp:a:1,tpc:b:1".parse::<Addresses>().unwrap_err().to_string();
        assert!(error.starts_with("\"tpc:b:1\" is no server address"), "{error}");
        let many = ["tcp:a:1"; Addresses::MAX + 1].join(",");
        assert!(many.parse::<Addresses>().unwrap_err().to_string().contains("more than 16"));
        assert!("tcp:a:1,".parse::<Addresses>().is_err());
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
