//! All servers of a cluster, as an operator sees them: one is asked who the others are, then all are asked at once.
//!
//! Nobody is waited for longer than [`PATIENCE`]: who has not answered by then is away, which says nothing of the others.

mod summary;
mod tables;

pub use summary::{ServerReport, jobs, report};
pub use tables::{policies, text};

use crate::arguments::WholeOptions;
use crate::cluster::members::{self, Member, Sought};
use crate::control::{self, Control};
use anyhow::{Context, Result, bail};
use isonomia_cluster::hosts;
use isonomia_proto::control::{ListedServer, MemberList, Status};
use isonomia_transport::address::Address;
use isonomia_transport::handshake::Identity;
use isonomia_transport::socket::Deadline;
use isonomia_units::Nanos;

/// A server of a cluster has this long to answer.
pub const PATIENCE: Nanos = Nanos::from_secs(1);

/// Whom the options mean.
pub enum Meant {
    /// One server, with its state: it is in no cluster, or was named.
    One(Control, Box<Status>),
    /// All servers of a cluster.
    All(Box<Whole>),
}

/// The servers of a cluster.
pub struct Whole {
    /// Who they are.
    pub members: MemberList,
    identity: Identity,
    /// The one that was asked first, and where; this may be none of the addresses that the cluster file has.
    first: (u16, Address),
}

/// One of them.
pub struct Seen {
    /// Who it is.
    pub member: ListedServer,
    /// Its state, and a connection to it; or why there is none.
    pub found: Result<(Control, Box<Status>), String>,
}

impl Seen {
    /// Its state, if it has answered.
    pub fn status(&self) -> Option<&Status> {
        self.found.as_ref().ok().map(|(_, status)| &**status)
    }
}

/// Asks the first server whom the options mean.
pub fn meant(options: &WholeOptions) -> Result<Meant> {
    let (first, only) = (options.first()?, options.only()?);
    let mut control = Control::connect(&first)?;
    let status = Box::new(control.status()?);
    if status.cluster.is_none() {
        if let Some(name) = only {
            bail!("--server {name}: the server that was asked is in no cluster, in which one could be named");
        }
        return Ok(Meant::One(control, status));
    }
    let members = control.members().context("cannot tell who the other servers are")?;
    // Only that server was to have the name that the options expect.
    let mut identity = control::identity(&first.reach)?;
    identity.protection.server_name = None;
    let whole = Whole { members, identity, first: (status.server, control.address.clone()) };
    let Some(name) = only else { return Ok(Meant::All(Box::new(whole))) };
    let Some(member) = whole.members.servers.iter().find(|member| member.name == name) else {
        let known = hosts::compress(whole.members.servers.iter().map(|member| member.name.as_str()));
        bail!("cluster {} has no server {name:?} (allowed: {known})", whole.members.name);
    };
    match whole.ask_one(member).found {
        Ok((mut control, status)) => {
            control.answer_within(control::TIMEOUT);
            Ok(Meant::One(control, status))
        }
        Err(reason) => bail!("{name} does not answer: {reason}"),
    }
}

impl Whole {
    /// Asks all servers at once, and takes in a newer list of them where one has that.
    pub fn look(&mut self) -> Vec<Seen> {
        let mut seen = members::at_once(&self.members.servers, |member| self.ask_one(member));
        let epoch = |seen: &Seen| seen.status().and_then(|status| status.cluster.as_ref()).map(|cluster| cluster.epoch);
        let newest = seen.iter_mut().max_by_key(|seen| epoch(seen));
        if let Some(newest) = newest
            && epoch(newest).is_some_and(|epoch| epoch > self.members.epoch)
            && let Ok((control, _)) = &mut newest.found
            && let Ok(members) = control.members()
        {
            self.members = members;
            seen = members::at_once(&self.members.servers, |member| self.ask_one(member));
        }
        seen
    }

    fn ask_one(&self, member: &ListedServer) -> Seen {
        let until = Deadline::after(PATIENCE);
        let sought = Sought { cluster: &self.members.name, name: &member.name, number: member.number };
        let first = (member.number == self.first.0).then(|| self.first.1.clone());
        let listed = member.listen.iter().filter_map(|address| address.parse().ok());
        let mut addresses: Vec<Address> = first.into_iter().chain(listed).collect();
        // One on this host answers at once or not at all.
        addresses.sort_by_key(|address| matches!(address, Address::Tcp(_)));
        let found = match members::find(&sought, &addresses, &self.identity, || until.left()) {
            Member::Present(control, status, _) => Ok((control, status)),
            Member::Absent(_, reason) | Member::Other(_, reason) => Err(reason),
        };
        Seen { member: member.clone(), found }
    }
}
