//! Options of commands that speak of all servers of a cluster, or of one of them.

use super::{ReachOptions, ServerOptions};
use anyhow::{Context, Result, bail};
use clap::Args;
use isonomia_transport::address::Addresses;

const ADDRESS: &str = "ISONOMIA_SERVER";

/// Which server is asked, and which ones are meant.
#[derive(Args, Debug)]
pub struct WholeOptions {
    /// The server's address, unix:PATH or tcp:HOST:PORT, of a cluster any server's, or several, parted by commas: all servers
    /// are meant then; or the name of one of them, which alone is meant. Both may be given [default: where `isonomia serve`
    /// listens by default; env: ISONOMIA_SERVER for the address]
    #[arg(long, value_name = "ADDR|NAME", value_parser = choice)]
    server: Vec<Choice>,
    #[command(flatten)]
    reach: ReachOptions,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    Addresses(Addresses),
    Name(String),
}

/// No name has a colon, and every address has one.
fn choice(text: &str) -> Result<Choice, String> {
    if text.contains([':', '/']) {
        return text.parse().map(Choice::Addresses).map_err(|error| format!("{error}"));
    }
    if text.is_empty() { Err("neither an address nor a name".to_owned()) } else { Ok(Choice::Name(text.to_owned())) }
}

impl WholeOptions {
    /// The server that is asked first.
    pub fn first(&self) -> Result<ServerOptions> {
        let mut given = self.server.iter().filter_map(|choice| match choice {
            Choice::Addresses(addresses) => Some(addresses.clone()),
            Choice::Name(_) => None,
        });
        let (server, more) = (given.next(), given.next());
        if let (Some(one), Some(other)) = (&server, more) {
            bail!("--server names two addresses, {one} and {other} (allowed: one address, one name)");
        }
        let usual = || std::env::var(ADDRESS).ok().map(|text| text.parse().with_context(|| ADDRESS)).transpose();
        let server = if server.is_some() { server } else { usual()? };
        Ok(ServerOptions { server, reach: self.reach.clone() })
    }

    /// The one server that is meant, if not all are.
    pub fn only(&self) -> Result<Option<&str>> {
        let mut given = self.server.iter().filter_map(|choice| match choice {
            Choice::Name(name) => Some(name.as_str()),
            Choice::Addresses(_) => None,
        });
        let (name, more) = (given.next(), given.next());
        if let (Some(one), Some(other)) = (name, more) {
            bail!("--server names two servers, {one} and {other} (allowed: one address, one name)");
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_a_name_are_told_apart() {
        assert_eq!(choice("io03"), Ok(Choice::Name("io03".to_owned())));
        assert!(matches!(choice("tcp:io03:7411"), Ok(Choice::Addresses(_))));
        for bad in ["", "tcp:io03", "io03:7411", "/run/socket"] {
            assert!(choice(bad).is_err(), "{bad}");
        }
        let of = |texts: [&str; 2]| WholeOptions {
            server: texts.iter().map(|text| choice(text).unwrap()).collect(),
            reach: ReachOptions::default(),
        };
        let both = of(["tcp:io03:7411", "io02"]);
        assert_eq!(both.first().unwrap().server.unwrap().to_string(), "tcp:io03:7411");
        assert_eq!(both.only().unwrap(), Some("io02"));
        assert!(of(["a", "b"]).only().is_err() && of(["unix:/a", "unix:/b"]).first().is_err());
    }
}
