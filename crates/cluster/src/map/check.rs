//! From what a file describes to the servers themselves, and every contradiction on the way.

use super::{
    ADDRESSES_MAX, Description, FILE_LEN_MAX, Findings, Group, Map, PATH_LEN_MAX, SERVERS_MAX, Server, TARGETS_MAX,
    Target, TargetDescription,
};
use crate::hosts;
use core::net::{Ipv4Addr, Ipv6Addr};
use isonomia_units::{Address, NAME_LEN_MAX, ServerId, TargetId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What stands for a server's name in its addresses and directories.
const NAME: &str = "{name}";
/// The most that all texts of all servers may have together, in bytes: what a stranger's description can cost.
const TEXTS_LEN_MAX: usize = 64 << 20;
/// Targets have numbers of 16 bits.
const TARGET_NUMBERS: usize = 1 << 16;

/// The map, unless there is an error.
pub(super) fn build(description: Description, findings: &mut Findings) -> Option<Map> {
    name_is_good("name", &description.name).unwrap_or_else(|why| findings.error(None, why));
    if description.epoch == 0 {
        findings.error(None, "epoch: 0 is not allowed (allowed: whole numbers from 1 on)");
    }
    if !(1..=TARGETS_MAX).contains(&description.targets_per_server) {
        let given = description.targets_per_server;
        findings.error(None, format!("targets_per_server: {given} is not allowed (allowed: 1 to {TARGETS_MAX})"));
    }
    let mut servers = servers(&description, findings);
    unique(&servers, findings);
    apart(&servers, findings);
    one_network(&servers, findings);
    servers.sort_by_key(|(server, _)| server.number);
    let root = root(&description, &servers, findings);
    let controller = controller(&description, &servers, findings);
    if !servers.is_empty() && servers.iter().all(|(server, _)| server.share() == 0.0) {
        findings.warning(None, "no server takes new volumes: all are retired, or have weight 0");
    }
    let servers: Vec<Server> = servers.into_iter().map(|(server, _)| server).collect();
    let by_name = servers.iter().enumerate().map(|(at, server)| (Arc::clone(&server.name), at)).collect();
    if findings.has_errors() {
        return None;
    }
    let root = root?;
    let map = Map { description, servers, by_name, root, controller: controller.unwrap_or(root) };
    let len = map.encode().len();
    if len > FILE_LEN_MAX {
        findings.error(None, format!("sent to clients it would have {len} bytes, more than {FILE_LEN_MAX}"));
        return None;
    }
    Some(map)
}

fn root(description: &Description, servers: &[(Server, &Group)], findings: &mut Findings) -> Option<usize> {
    let Some(name) = &description.root else { return (!servers.is_empty()).then_some(0) };
    let found = servers.iter().position(|(server, _)| *server.name == **name);
    match found {
        Some(at) if servers[at].0.retired => {
            findings.error(None, format!("root: {name} is retired, and must go on to have the root"));
        }
        Some(_) => {}
        None => findings.error(None, format!("root: no server is called {name:?} (allowed: {})", some_names(servers))),
    }
    found
}

/// The one that the file names; nothing if it names none, or one that is not there.
fn controller(description: &Description, servers: &[(Server, &Group)], findings: &mut Findings) -> Option<usize> {
    let name = description.control.server.as_ref()?;
    let found = servers.iter().position(|(server, _)| server.name == *name);
    if found.is_none() {
        let allowed = some_names(servers);
        findings.error(None, format!("controller: no server is called {name:?} (allowed: {allowed})"));
    }
    found
}

fn some_names(servers: &[(Server, &Group)]) -> String {
    const SHOWN: usize = 8;
    let mut text = hosts::compress(servers.iter().take(SHOWN).map(|(server, _)| &*server.name));
    if servers.len() > SHOWN {
        text.push_str(" …");
    }
    text
}

/// All servers that can be made out, with the group that describes each.
fn servers<'d>(description: &'d Description, findings: &mut Findings) -> Vec<(Server, &'d Group)> {
    let mut servers = Vec::new();
    let (mut texts_len, mut targets) = (0, 0);
    if description.groups.is_empty() && !findings.has_errors() {
        findings.error(None, "there is no server (allowed: one [[server]] or more)");
    }
    for group in &description.groups {
        let names = match hosts::expand(&group.names) {
            Ok(names) if !names.is_empty() => names,
            Ok(_) => {
                findings.error(group.line, "name: no server is named");
                continue;
            }
            Err(error) => {
                findings.error(group.line, format!("name: {error}"));
                continue;
            }
        };
        texts_len += names.len() * text_len(group, &names);
        targets += names.len() * group.targets.len();
        if texts_len > TEXTS_LEN_MAX || servers.len() + names.len() > SERVERS_MAX || targets > TARGET_NUMBERS {
            findings.error(
                group.line,
                format!(
                    "too large (allowed: {SERVERS_MAX} servers with {TARGET_NUMBERS} targets, and {} MiB of text in names, \
                     addresses and directories)",
                    TEXTS_LEN_MAX >> 20
                ),
            );
            break;
        }
        check_group(description, group, &names, findings);
        for (number, name) in (u64::from(group.number)..).zip(&names) {
            // Out of range is an error that was found above.
            let number = ServerId(u16::try_from(number).unwrap_or(0));
            servers.push((server(description, group, number, name, findings), group));
        }
    }
    servers
}

/// At least as many bytes as all texts of the longest-named server of a group.
fn text_len(group: &Group, names: &[String]) -> usize {
    let name_len = names.iter().map(String::len).max().unwrap_or(0);
    let patterns = group.listen.iter().chain(&group.dir).chain(group.targets.iter().flat_map(|target| &target.dir));
    let filled: usize = patterns.map(|text| text.len() + text.matches(NAME).count() * name_len).sum();
    name_len + filled
}

/// What is wrong with all servers of a group alike.
fn check_group(description: &Description, group: &Group, names: &[String], findings: &mut Findings) {
    let line = group.line;
    for why in names.iter().filter_map(|name| name_is_good("name", name).err()).take(1) {
        findings.error(line, why);
    }
    let (first, last) = (u64::from(group.number), u64::from(group.number) + names.len() as u64 - 1);
    let ends = if first == last { String::new() } else { format!(", and the last one is {last}") };
    if first == 0 || last > u64::from(u16::MAX) {
        findings.error(line, format!("number: {first}{ends} (allowed: 1 to {})", u16::MAX));
    } else if (last - 1) * u64::from(description.targets_per_server) + group.targets.len() as u64
        > TARGET_NUMBERS as u64
    {
        findings.error(
            line,
            format!(
                "number: {last} has no numbers left for its targets: with targets_per_server = {}, servers up to {} have",
                description.targets_per_server,
                TARGET_NUMBERS / usize::from(description.targets_per_server.max(1)),
            ),
        );
    }
    if !(group.weight >= 0.0 && group.weight.is_finite()) {
        let why =
            format!("weight: {} is not allowed (allowed: a number such as 1.0; 0 for no new volumes)", group.weight);
        findings.error(line, why);
    }
    if !(1..=ADDRESSES_MAX).contains(&group.listen.len()) {
        findings.error(line, format!("listen: {} addresses (allowed: 1 to {ADDRESSES_MAX})", group.listen.len()));
    }
    let (targets, max) = (group.targets.len(), description.targets_per_server);
    if !(1..=usize::from(max)).contains(&targets) {
        findings.error(line, format!("targets: {targets} (allowed: 1 to {max}, which is targets_per_server)"));
    }
    for text in
        [&group.router, &group.rack].into_iter().flatten().filter(|text| !(1..=NAME_LEN_MAX).contains(&text.len()))
    {
        findings.error(line, format!("router, rack: a text of {} bytes (allowed: 1 to {NAME_LEN_MAX})", text.len()));
    }
    let shared = group.listen.iter().find(|text| text.starts_with("tcp:") && !text.contains(NAME));
    if let (Some(address), 2..) = (shared, names.len()) {
        findings.error(
            line,
            format!("listen: {address:?} would be the address of {} servers (allowed: {NAME} in it)", names.len()),
        );
    }
}

fn server(description: &Description, group: &Group, number: ServerId, name: &str, findings: &mut Findings) -> Server {
    let line = group.line;
    let mut listen = Vec::new();
    for pattern in group.listen.iter().take(ADDRESSES_MAX) {
        match filled(pattern, name).and_then(|text| address(&text)) {
            Ok(address) => listen.push(address),
            Err(why) => findings.error(line, format!("listen of {name}: {why}")),
        }
    }
    let mut directory = |pattern: &Option<String>, what: &str| {
        let dir = filled(pattern.as_ref()?, name).and_then(|text| absolute(&text));
        dir.map_err(|why| findings.error(line, format!("{what} of {name}: {why}"))).ok()
    };
    let dir = directory(&group.dir, "dir");
    let first = u32::from(number.0).saturating_sub(1) * u32::from(description.targets_per_server);
    let target = |(index, target): (u32, &TargetDescription)| Target {
        // Out of range is an error of the group.
        id: TargetId(u16::try_from(first + index).unwrap_or(0)),
        dir: directory(&target.dir, "a target's dir"),
        retired: target.retired,
        settings: Arc::clone(&target.settings),
    };
    let targets = (0..).zip(&group.targets).take(usize::from(TARGETS_MAX)).map(target).collect();
    Server {
        number,
        name: name.into(),
        listen,
        dir,
        targets,
        router: group.router.clone(),
        rack: group.rack.clone(),
        weight: group.weight,
        retired: group.retired,
    }
}

/// `pattern` with a server's name in it.
fn filled(pattern: &str, name: &str) -> Result<String, String> {
    let text = pattern.replace(NAME, name);
    match text.find(['{', '}']) {
        Some(_) => Err(format!("{pattern:?} has a brace (allowed: {NAME}, for the server's name)")),
        None => Ok(text),
    }
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    let is_good = text.starts_with('/') && text.len() <= PATH_LEN_MAX && !text.contains('\0');
    // Without what says nothing, such as a slash at the end.
    is_good
        .then(|| Path::new(text).components().collect())
        .ok_or_else(|| format!("{text:?} is no directory (allowed: absolute paths of up to {PATH_LEN_MAX} bytes)"))
}

fn name_is_good(key: &str, name: &str) -> Result<(), String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_good = (1..=NAME_LEN_MAX).contains(&name.len())
        && name.bytes().all(is_letter)
        && name.as_bytes()[0].is_ascii_alphanumeric();
    is_good.then_some(()).ok_or_else(|| {
        format!("{key}: {name:?} is no name (allowed: up to {NAME_LEN_MAX} letters, digits, -, _ and ., the first a letter or digit)")
    })
}

/// An address that others can connect to.
fn address(text: &str) -> Result<Address, String> {
    let address: Address = text.parse().map_err(|error: isonomia_units::BadAddress| error.to_string())?;
    let bad = |why| Err(format!("{text:?}: {why}"));
    match &address {
        Address::Unix(path) if !path.starts_with('/') => bad("the path of a Unix socket must be absolute here"),
        Address::Unix(_) => Ok(address),
        Address::Tcp(endpoint) => match tcp_host(endpoint) {
            _ if endpoint.ends_with(":0") => bad("port 0 stands for any port, and clients must know which"),
            Host::Any => bad("clients cannot connect to all addresses of a host; name one"),
            Host::Bad => bad("the host is neither a name, nor an IPv4 address, nor an IPv6 address in brackets"),
            Host::Loopback | Host::Network(_) => Ok(address),
        },
    }
}

/// Whom `HOST:PORT` reaches.
enum Host {
    Loopback,
    Network(String),
    Any,
    Bad,
}

fn tcp_host(endpoint: &str) -> Host {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host).to_ascii_lowercase();
    let is_numeric = |host: &str| host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if let Some(inside) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return match inside.parse::<Ipv6Addr>() {
            Ok(address) if address.is_unspecified() => Host::Any,
            Ok(address) if address.is_loopback() => Host::Loopback,
            Ok(address) => Host::Network(address.to_string()),
            Err(_) => Host::Bad,
        };
    }
    match host.parse::<Ipv4Addr>() {
        Ok(address) if address.is_unspecified() => Host::Any,
        Ok(address) if address.is_loopback() => Host::Loopback,
        Ok(_) => Host::Network(host),
        Err(_) if is_numeric(&host) => Host::Bad,
        Err(_) if host == "localhost" => Host::Loopback,
        Err(_) if name_is_good("", &host).is_ok() => Host::Network(host),
        Err(_) => Host::Bad,
    }
}

/// The hosts that a server is on, as far as its addresses tell: an empty one stands for that of whoever reads the file.
fn hosts_of(server: &Server) -> BTreeSet<String> {
    let tcp = server.listen.iter().filter_map(|address| match address {
        Address::Tcp(endpoint) => Some(tcp_host(endpoint)),
        Address::Unix(_) => None,
    });
    let mut hosts: BTreeSet<String> = tcp
        .map(|host| match host {
            Host::Network(name) => name,
            _ => String::new(),
        })
        .collect();
    if hosts.is_empty() {
        hosts.insert(String::new());
    }
    hosts
}

/// No two servers have the same name, number, or address; on one host, neither the same socket.
fn unique(servers: &[(Server, &Group)], findings: &mut Findings) {
    let mut names = BTreeSet::new();
    let mut numbers = BTreeMap::new();
    let mut addresses = BTreeMap::new();
    let mut sockets = BTreeMap::new();
    for (server, group) in servers {
        let name = &*server.name;
        let mut twice = |what: String, other: &str| findings.error(group.line, is_that_of(&what, other, name));
        if !names.insert(name) {
            twice(format!("name {name:?}"), name);
        }
        if let (Some(other), 1..) = (numbers.insert(server.number, name), server.number.0) {
            twice(format!("number {}", server.number), other);
        }
        for address in &server.listen {
            let others: BTreeSet<&str> = match address {
                Address::Tcp(endpoint) => addresses.insert(endpoint.to_ascii_lowercase(), name).into_iter().collect(),
                Address::Unix(path) => {
                    let path: PathBuf = Path::new(path).components().collect();
                    hosts_of(server).into_iter().filter_map(|host| sockets.insert((host, path.clone()), name)).collect()
                }
            };
            if let Some(other) = others.first() {
                twice(format!("address {address}"), other);
            }
        }
    }
}

fn is_that_of(what: &str, one: &str, other: &str) -> String {
    match one == other {
        true => format!("{what} is that of {one}, twice"),
        false => format!("{what} is that of {one} and of {other}"),
    }
}

/// A directory that a server must have for itself on its host.
struct Directory<'a> {
    host: String,
    path: PathBuf,
    /// As the file has it.
    what: String,
    is_metadata: bool,
    server: &'a str,
    line: Option<usize>,
}

impl Directory<'_> {
    /// Whether this may not be where it is if `other` is on the same host, and is above it or the same.
    fn is_inside(&self, other: &Self) -> bool {
        // Beside a target's objects there is room.
        let is_beside = self.is_metadata && !other.is_metadata && !self.path.starts_with(other.path.join("objects"));
        self.path.starts_with(&other.path) && !is_beside
    }
}

/// On one host no target lies in another or among metadata, and metadata not among objects: a server would refuse that of
/// its own, and know nothing of others.
fn apart(servers: &[(Server, &Group)], findings: &mut Findings) {
    let mut directories = Vec::new();
    for (server, group) in servers {
        for host in hosts_of(server) {
            let directory = |path, what: &str, shown: &Path, is_metadata| Directory {
                host: host.clone(),
                path,
                what: format!("{what} {}", shown.display()),
                is_metadata,
                server: &server.name,
                line: group.line,
            };
            directories.extend(server.dir.as_ref().map(|dir| directory(dir.join("metadata"), "dir", dir, true)));
            let targets = server.targets.iter().filter_map(|target| target.dir.as_ref());
            directories.extend(targets.map(|dir| directory(dir.clone(), "target's dir", dir, false)));
        }
    }
    // Whatever is in a directory follows it.
    directories.sort_by(|one, other| (&one.host, &one.path, one.line).cmp(&(&other.host, &other.path, other.line)));
    let mut above: Vec<&Directory<'_>> = Vec::new();
    let mut found = BTreeSet::new();
    for directory in &directories {
        while above.last().is_some_and(|top| top.host != directory.host || !directory.path.starts_with(&top.path)) {
            above.pop();
        }
        if let Some(top) = above.iter().rev().find(|top| directory.is_inside(top)) {
            let text = if directory.path == top.path {
                is_that_of(&directory.what, top.server, directory.server)
            } else {
                format!("{} of {} lies in {} of {}", directory.what, directory.server, top.what, top.server)
            };
            found.insert((directory.line, text));
        }
        above.push(directory);
    }
    found.into_iter().for_each(|(line, text)| findings.error(line, text));
}

/// Either all servers are on one host, or each is reached from others.
fn one_network(servers: &[(Server, &Group)], findings: &mut Findings) {
    let is_reached = |server: &Server| hosts_of(server).iter().any(|host| !host.is_empty());
    let Some((example, _)) = servers.iter().find(|(server, _)| is_reached(server)) else { return };
    let mut alone: BTreeMap<Option<usize>, Vec<&str>> = BTreeMap::new();
    for (server, group) in servers.iter().filter(|(server, _)| !server.listen.is_empty() && !is_reached(server)) {
        alone.entry(group.line).or_default().push(&server.name);
    }
    for (line, names) in alone {
        let names = hosts::compress(names);
        findings.error(
            line,
            format!("{names} can be reached from its own host only, and {} from others (allowed: tcp:", example.name)
                + "HOST:PORT with a host that all know, or loopback and Unix sockets for all servers)",
        );
    }
}
