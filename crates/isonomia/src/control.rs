//! Reaching a server: its address, and questions whose answer is not an error.

use crate::arguments::{ReachOptions, ServerOptions};
use anyhow::{Context, Result, bail};
use isonomia_cluster::Map;
use isonomia_policy::{Draw, PolicySpec};
use isonomia_proto::control::{
    ApplicationList, ControlReply, ControlRequest, MemberList, ObjectsChecked, PlacementStatus, Status, VolumeList,
};
use isonomia_proto::ledger::LedgerStatus;
use isonomia_transport::address::{self, Address, Addresses};
use isonomia_transport::control::{ControlConnection, ControlError};
use isonomia_transport::handshake::{HandshakeError, Identity};
use isonomia_transport::socket::SocketError;
use isonomia_units::Nanos;
use std::path::{Path, PathBuf};

/// A server that is alive answers within this time even when its machine is overloaded.
pub const TIMEOUT: Nanos = Nanos(10_000_000_000);

const NO_SERVER: &str = "is a server running there? `isonomia serve` starts one, --server names another";

/// An operator's connection.
pub struct Control {
    /// Where it goes.
    pub address: Address,
    connection: ControlConnection,
}

/// A policy as servers now have it, or are about to.
pub struct PolicySet {
    /// Canonical form.
    pub policy: String,
    /// The draw.
    pub draw: String,
    /// Its version, if it is a cluster's.
    pub version: Option<u64>,
    /// What is strange about it.
    pub warnings: Vec<String>,
}

/// The addresses that the options name, or the default.
pub fn addresses(options: &ServerOptions) -> Addresses {
    options.server.as_ref().map_or_else(|| default_address().into(), from_anywhere)
}

/// The same addresses for who is in another directory later, as a program and a mount may be. A path that would be too long for
/// a socket stays as it is.
pub fn from_anywhere(addresses: &Addresses) -> Addresses {
    let text_of = |address: &Address| match address {
        Address::Unix(path) => format!("unix:{}", absolute(Path::new(path)).display()),
        Address::Tcp(_) => address.to_string(),
    };
    let text = addresses.as_slice().iter().map(text_of).collect::<Vec<_>>().join(",");
    text.parse().unwrap_or_else(|_| addresses.clone())
}

/// The same path for who is in another directory later.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Where a server of this user listens when nothing else is said.
pub fn default_address() -> Address {
    let runtime_dir = std::env::var("XDG_RUNTIME_DIR").ok();
    address::default_address(rustix::process::geteuid().as_raw(), runtime_dir.as_deref())
}

/// As whom the options have servers asked.
pub fn identity(options: &ReachOptions) -> Result<Identity> {
    let key_file = options
        .key_file
        .as_deref()
        .map(|path| path.to_str().with_context(|| format!("the path of key file {path:?} is not UTF-8")))
        .transpose()?;
    Ok(Identity {
        key_file: key_file.map(str::to_owned),
        server_user: options.server_user,
        protection: options.protection.protection(),
        ..Identity::default()
    })
}

impl Control {
    /// Connects to the server that the options name.
    pub fn connect(options: &ServerOptions) -> Result<Self> {
        let (addresses, identity) = (addresses(options), identity(&options.reach)?);
        let mut outcome = Self::open(&addresses.as_slice()[0], &identity, TIMEOUT);
        for address in &addresses.as_slice()[1..] {
            let Err(error) = outcome else { break };
            outcome = Self::open(address, &identity, TIMEOUT).map_err(|next| next.context(format!("{error:#}")));
        }
        outcome.map_err(|error| {
            // Of a key that cannot be read, or a server that is somebody else's, the error says all.
            let is_away = matches!(
                error.downcast_ref(),
                Some(ControlError::Connect { error: HandshakeError::Socket(SocketError::System(_)), .. })
            );
            if is_away { error.context(NO_SERVER) } else { error }
        })
    }

    /// Connects to the server of this user's at `address`.
    pub fn connect_to(address: &Address) -> Result<Self> {
        Self::open(address, &Identity::default(), TIMEOUT)
    }

    /// Connects to the server at `address`, which has `timeout` for that and for each answer.
    pub fn open(address: &Address, identity: &Identity, timeout: Nanos) -> Result<Self> {
        let connection = ControlConnection::open(address, identity, timeout)?;
        Ok(Self { address: address.clone(), connection })
    }

    /// The server's state.
    pub fn status(&mut self) -> Result<Status> {
        match self.connection.ask(&ControlRequest::Status)? {
            ControlReply::Status(status) => Ok(*status),
            other => unexpected(other),
        }
    }

    /// Every later answer may take this long.
    pub fn answer_within(&mut self, timeout: Nanos) {
        self.connection.answer_within(timeout);
    }

    /// Sets the policy of the server's cluster, or of the server alone; if `instead_of` is given, only instead of that.
    pub fn set_policy(
        &mut self,
        policy: &PolicySpec,
        draw: Option<Draw>,
        only_here: bool,
        instead_of: Option<&str>,
    ) -> Result<PolicySet> {
        let draw = draw.map(|draw| draw.to_string());
        let request = ControlRequest::SetPolicy {
            policy: policy.to_string(),
            draw,
            only_here,
            instead_of: instead_of.map(str::to_owned),
        };
        match self.connection.ask(&request)? {
            ControlReply::Policy { policy, draw, version, warnings } => {
                Ok(PolicySet { policy, draw, version, warnings })
            }
            ControlReply::Error(reason) => bail!("the policy is not set: {reason}"),
            other => unexpected(other),
        }
    }

    /// Has another policy decide beside the one that the server follows, or none.
    pub fn set_shadow(&mut self, policy: Option<&PolicySpec>) -> Result<()> {
        self.is_done(&ControlRequest::SetShadow { policy: policy.map(ToString::to_string) })
    }

    /// Has the server write its decisions to a file on its host for so long, or no more.
    pub fn record(&mut self, to: Option<(&str, Nanos)>) -> Result<()> {
        self.is_done(&ControlRequest::Record { to: to.map(|(path, span)| (path.to_owned(), span.0)) })
    }

    fn is_done(&mut self, request: &ControlRequest) -> Result<()> {
        match self.connection.ask(request)? {
            ControlReply::Done => Ok(()),
            ControlReply::Error(reason) => bail!("{reason}"),
            other => unexpected(other),
        }
    }

    /// Coupons and node-hours, of the server that decides for its cluster.
    pub fn ledger(&mut self) -> Result<LedgerStatus> {
        match self.connection.ask(&ControlRequest::Ledger)? {
            ControlReply::Ledger(ledger) => Ok(*ledger),
            ControlReply::Error(reason) => bail!("{reason}"),
            other => unexpected(other),
        }
    }

    /// What the server remembers of applications' phases.
    pub fn applications(&mut self) -> Result<ApplicationList> {
        match self.connection.ask(&ControlRequest::Applications)? {
            ControlReply::Applications(list) => Ok(list),
            ControlReply::Error(reason) => bail!("{reason}"),
            other => unexpected(other),
        }
    }

    /// How the server places new files, and what it knows of targets.
    pub fn placement(&mut self) -> Result<PlacementStatus> {
        match self.connection.ask(&ControlRequest::Placement)? {
            ControlReply::Placement(status) => Ok(*status),
            ControlReply::Error(reason) => bail!("{reason}"),
            other => unexpected(other),
        }
    }

    /// Has the cluster place new files as `request` says; the version that all servers are to have.
    pub fn set_placement(&mut self, request: &ControlRequest) -> Result<u64> {
        match self.connection.ask(request)? {
            ControlReply::PlacementSet { version } => Ok(version),
            ControlReply::Error(reason) => bail!("it is not set: {reason}"),
            other => unexpected(other),
        }
    }

    /// The servers of the server's cluster.
    pub fn members(&mut self) -> Result<MemberList> {
        match self.connection.ask(&ControlRequest::Members)? {
            ControlReply::Members(members) => Ok(members),
            other => unexpected(other),
        }
    }

    /// Has a volume moved to the server of number `to`, as request `id`; whether it is there.
    pub fn move_volume(&mut self, name: &str, to: u16, id: u64) -> Result<bool> {
        match self.connection.ask(&ControlRequest::MoveVolume { name: name.to_owned(), to, id })? {
            ControlReply::VolumeMoved { is_done } => Ok(is_done),
            ControlReply::Error(reason) => bail!("{reason}"),
            other => unexpected(other),
        }
    }

    /// The volumes of the server's cluster, as it knows them.
    pub fn volumes(&mut self) -> Result<VolumeList> {
        match self.connection.ask(&ControlRequest::Volumes)? {
            ControlReply::Volumes(volumes) => Ok(volumes),
            other => unexpected(other),
        }
    }

    /// Has the server look at its objects of striped files, as request `id`; what has been found so far.
    pub fn check_objects(&mut self, id: u64) -> Result<ObjectsChecked> {
        match self.connection.ask(&ControlRequest::CheckObjects { id })? {
            ControlReply::ObjectsChecked(found) => Ok(found),
            ControlReply::Error(reason) => bail!("{reason}"),
            other => unexpected(other),
        }
    }

    /// Has the server take the cluster file `map`, which it has to have on its host, or say whether it would. Whether it had
    /// it already, and whether it has to be started again for all of it.
    pub fn reload(&mut self, map: &Map, is_trial: bool) -> Result<(bool, bool)> {
        let (epoch, fingerprint) = (map.epoch().0, format!("{:016x}", map.fingerprint()));
        match self.connection.ask(&ControlRequest::Reload { epoch, fingerprint, is_trial })? {
            ControlReply::Reloaded { is_known, needs_restart } => Ok((is_known, needs_restart)),
            ControlReply::Error(reason) => bail!("{reason}"),
            other => unexpected(other),
        }
    }

    /// Has the metadata copied to `dir` on the server's host, as request `id`; whether that is done.
    pub fn backup(&mut self, dir: &str, id: u64) -> Result<bool> {
        match self.connection.ask(&ControlRequest::Backup { dir: dir.to_owned(), id })? {
            ControlReply::Backup { syncs } => Ok(syncs.is_some()),
            other => unexpected(other),
        }
    }
}

fn unexpected<T>(reply: ControlReply) -> Result<T> {
    match reply {
        ControlReply::Error(reason) => bail!("the server refused: {reason}"),
        _ => bail!("the server answered another question than was asked"),
    }
}
