//! Who decides over all servers, and how often.

use super::file::Keys;
use isonomia_units::Nanos;
use std::sync::Arc;

/// The controller, as the cluster file has it. No matter of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// The server that decides, if nothing else says which one does; the root server if there is nothing.
    pub(super) server: Option<Arc<str>>,
    /// Where a lease says which server decides: `host:port` of an etcd each, any of which will do. None if there are none.
    pub etcd: Vec<Arc<str>>,
    /// Between two decisions.
    pub decide: Nanos,
}

impl Control {
    /// The shortest time between two decisions,
    pub const DECIDE_MIN: Nanos = Nanos::from_millis(100);
    /// the longest,
    pub const DECIDE_MAX: Nanos = Nanos::from_secs(600);
    /// and GIFT's.
    pub const DECIDE_DEFAULT: Nanos = Nanos::from_secs(10);
    /// Addresses of etcd at most.
    pub const ETCD_MAX: usize = 16;
}

impl Default for Control {
    fn default() -> Self {
        Self { server: None, etcd: Vec::new(), decide: Self::DECIDE_DEFAULT }
    }
}

const COORDINATION: &str = "etcd://HOST:PORT, several joined by commas";

pub(super) fn read(keys: &mut Keys<'_, '_>) -> Control {
    const DECIDE: &str = "100ms to 600s";
    let server = keys.optional::<Arc<str>>("controller", "the name of a server");
    let decide = keys.optional::<String>("decide", DECIDE).and_then(|text| {
        let time: Option<Nanos> = text.parse().ok();
        let time = time.filter(|time| (Control::DECIDE_MIN..=Control::DECIDE_MAX).contains(time));
        if time.is_none() {
            keys.error(format!("decide: {text:?} is not allowed (allowed: {DECIDE})"));
        }
        time
    });
    let coordination = keys.optional::<String>("coordination", COORDINATION);
    let etcd = coordination.map_or_else(Vec::new, |text| {
        addresses(&text).unwrap_or_else(|why| {
            keys.error(format!("coordination: {text:?}: {why} (allowed: {COORDINATION})"));
            Vec::new()
        })
    });
    if server.is_some() && !etcd.is_empty() {
        keys.error("controller: coordination says already who decides (allowed: one of the two)".to_owned());
    }
    Control { server, etcd, decide: decide.unwrap_or(Control::DECIDE_DEFAULT) }
}

fn addresses(text: &str) -> Result<Vec<Arc<str>>, String> {
    let listed = text.strip_prefix("etcd://").ok_or("it does not begin with etcd://")?;
    let address = |text: &str| {
        let text = text.trim();
        let text = text.strip_prefix("etcd://").unwrap_or(text);
        let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("{text:?} has no port"))?;
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
        if host.is_empty() || !host.chars().all(is_host) {
            return Err(format!("{host:?} is no host"));
        }
        match port.parse::<u16>() {
            Ok(port) if port > 0 => Ok(Arc::from(text)),
            _ => Err(format!("{port:?} is no port")),
        }
    };
    let addresses: Vec<Arc<str>> = listed.split(',').map(address).collect::<Result<_, _>>()?;
    if addresses.len() > Control::ETCD_MAX {
        return Err(format!("{} addresses, {} at most", addresses.len(), Control::ETCD_MAX));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use crate::Map;
    use isonomia_units::Nanos;

    fn map(lines: &str) -> Result<Map, String> {
        let server = |number| {
            format!("[[server]]\nname = \"io{number}\"\nnumber = {number}\nlisten = [\"tcp:io{number}:7411\"]\n")
        };
        let text = format!("name = \"s\"\nepoch = 1\n{lines}\n{}{}", server(1), server(2));
        Map::parse(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_file_says_who_decides() {
        let map_of = |lines| map(lines).unwrap();
        let none = map_of("");
        assert_eq!((&*none.controller().name, none.control().decide), ("io1", Nanos::from_secs(10)));
        assert_eq!(&*map_of("root = \"io2\"").controller().name, "io2");
        let named = map_of("controller = \"io2\"\ndecide = \"500ms\"");
        assert_eq!((&*named.controller().name, named.control().decide), ("io2", Nanos::from_millis(500)));
        assert!(named != none);
        let coordinated = map_of("coordination = \"etcd://a:2379,etcd://b:2379, [::1]:7\"");
        assert_eq!(coordinated.control().etcd, ["a:2379".into(), "b:2379".into(), "[::1]:7".into()]);
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        for (lines, part) in [
            ("controller = \"io3\"", "controller: no server is called \"io3\" (allowed: io[1-2])"),
            ("decide = \"99ms\"", "decide: \"99ms\" is not allowed (allowed: 100ms to 600s)"),
            ("decide = 5", "line 3: decide: invalid type"),
            ("coordination = \"zk://a:1\"", "does not begin with etcd://"),
            ("coordination = \"etcd://a\"", "\"a\" has no port"),
            ("coordination = \"etcd://a:0\"", "\"0\" is no port"),
            ("coordination = \"etcd://a b:1\"", "\"a b\" is no host"),
            ("coordination = \"etcd://a:1\"\ncontroller = \"io1\"", "one of the two"),
        ] {
            let error = map(lines).unwrap_err();
            assert!(error.contains(part), "{lines}: {error}");
        }
    }
}
