//! What goes into a node and what comes out of it.

use crate::counting::{Act, Report};
use crate::lineage::Instance;
use crate::load::Load;
use crate::objects::{Intent, ObjectsId, Order, What};
use crate::peer::Envelope;
use crate::policy::Policy;
use crate::records::{BadRecord, Change};
use crate::request::{Answer, Refusal, Request, RequestId};
use crate::volumes::hosted::Work;
use crate::volumes::{Phase, Table, VolumeName};
use isonomia_units::{Nanos, ServerId, VolumeId};
use std::collections::BTreeSet;

/// The process that a node is the mind of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its server, by the number in the cluster file.
    pub server: ServerId,
    /// Which one of those that had its directory.
    pub instance: Instance,
}

/// What a node has to know of the cluster file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The file's epoch.
    pub epoch: u64,
    /// The server that decides the table of volumes; the same in all epochs.
    pub root: ServerId,
    /// All servers.
    pub servers: BTreeSet<ServerId>,
}

impl View {
    /// Whether every volume's server is there, and the one that a volume moves to or from.
    pub(super) fn has_servers_of(&self, table: &Table) -> Result<(), BadView> {
        for slot in table.slots() {
            let Some(volume) = &slot.volume else { continue };
            let other = match volume.phase {
                Phase::Leaving { to: other } | Phase::Arriving { from: other } => other,
                _ => volume.server,
            };
            if let Some(server) = [volume.server, other].into_iter().find(|server| !self.servers.contains(server)) {
                return Err(BadView::HasVolume { server, epoch: self.epoch, name: volume.name.clone() });
            }
        }
        Ok(())
    }
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Time,
    /// A message of `from`, who has proven to be that server.
    Message {
        /// Who brought it.
        from: ServerId,
        /// What it says.
        envelope: Envelope,
    },
    /// A client asks.
    Request {
        /// The number of the request.
        id: RequestId,
        /// When it has to have an answer, on this server's clock.
        deadline: Nanos,
        /// What it asks.
        request: Request,
    },
    /// This [`Effect::Store`] and all before it are on stable storage.
    Stored(StoreId),
    /// The file system has done what [`Effect::Work`] asked of it, durably, or could not.
    Worked {
        /// The volume that it was about.
        number: VolumeId,
        /// The errno if it could not.
        result: Result<(), i32>,
    },
    /// The store has recorded on stable storage what is to be done with objects, or has been given it back at a start.
    /// [`Effect::CloseIntent`] when it is done.
    Intent {
        /// What.
        intent: Intent,
        /// The request that waits for it, and its deadline.
        request: Option<(RequestId, Nanos)>,
    },
    /// The store has closed this intent. If it has another one instead, [`Input::Intent`] says so, and not this.
    IntentClosed {
        /// The objects.
        objects: ObjectsId,
        /// What was done with them.
        what: What,
    },
    /// The store has done what [`Effect::Serve`] asked of it, on stable storage, or could not.
    Served {
        /// For whom.
        from: ServerId,
        /// The objects.
        objects: ObjectsId,
        /// What was done.
        what: What,
        /// The highest number of a last cut that its objects have now, or an errno.
        result: Result<u64, i32>,
    },
    /// These objects are here: does anybody want them? [`Effect::RemoveUnwanted`] may follow.
    AskWanted {
        /// The objects, of any files.
        objects: Vec<ObjectsId>,
    },
    /// Of those that [`Effect::LookWanted`] asked about, these belong to no file.
    NotWanted {
        /// Who asked.
        asker: ServerId,
        /// The objects.
        objects: Vec<ObjectsId>,
    },
    /// What files take.
    Counting(Report),
    /// This server is as full and as busy as this. Without it the server gets no new volumes that could be elsewhere.
    Load(Load),
    /// There is a newer cluster file. One that [`super::Node::accepts`] does not allow is ignored.
    View(View),
    /// This process has made sure that nobody has taken over its directory, and nobody will before `until`.
    Owned {
        /// On this server's clock.
        until: Nanos,
    },
}

/// Which [`Effect::Store`] of a process: from 1 on, each one higher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub u64);

/// What the server has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Bring these changes to stable storage, together and after all earlier ones, and report it. A store that fails has to be
    /// tried again, or the process to be ended: it never goes on without.
    Store {
        /// What is reported.
        id: StoreId,
        /// [`crate::records`] says what they are.
        changes: Vec<Change>,
    },
    /// Send this to `envelope.to`, or drop it if there is no way.
    Send(Envelope),
    /// Let the file system do this, and report it as [`Input::Worked`].
    Work(Work),
    /// The answer of a request.
    Answer {
        /// Which request.
        id: RequestId,
        /// Its answer.
        result: Result<Answer, Refusal>,
    },
    /// All data servers have done what this intent says: close it. Repeated until [`Input::IntentClosed`] or a later intent.
    CloseIntent {
        /// The objects.
        objects: ObjectsId,
        /// What was done with them.
        what: What,
        /// The highest number of a last cut that a data server told.
        highest: u64,
    },
    /// Do this with objects that are here.
    Serve {
        /// Who wants it.
        from: ServerId,
        /// What.
        order: Order,
    },
    /// Look which of these objects belong to no file of this server's volumes.
    LookWanted {
        /// Who asks.
        asker: ServerId,
        /// The objects.
        objects: Vec<ObjectsId>,
    },
    /// Nobody wants these objects: remove those of them that are here.
    RemoveUnwanted {
        /// The objects.
        objects: Vec<ObjectsId>,
    },
    /// What files take.
    Counting(Act),
    /// This is the policy from now on.
    FollowPolicy(Policy),
    /// There is a cluster file of this epoch, and `from` has it: get it. Repeated until it is there.
    FetchView {
        /// Its epoch.
        epoch: u64,
        /// Who has it.
        from: ServerId,
    },
    /// Others know a process of this server that this directory knows nothing of: that one has taken over, or the
    /// directory is empty, or an older copy. End this one.
    Stop {
        /// That one's number.
        by: u64,
    },
}

/// Why a server cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A record cannot be read.
    #[error(transparent)]
    Record(#[from] BadRecord),
    /// It had a newer cluster file before.
    #[error("the cluster file is of epoch {given}, and this server has had epoch {stored}")]
    OlderEpoch {
        /// The file's.
        given: u64,
        /// The one that it had.
        stored: u64,
    },
    /// The file lacks a server that has a volume. Only the root server says so: what others know of the table may be old.
    #[error(transparent)]
    Volumes(#[from] BadView),
    /// It is not in the file.
    #[error("the cluster file of epoch {epoch} has no server {server}")]
    NotMember {
        /// This server.
        server: ServerId,
        /// The file's epoch.
        epoch: u64,
    },
}

/// Why a newer cluster file cannot be taken by servers that run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadView {
    /// It is not newer.
    #[error("epoch {given} is not newer than epoch {own}")]
    NotNewer {
        /// The file's epoch.
        given: u64,
        /// The one that this server has.
        own: u64,
    },
    /// The root server is another one: the table of volumes is in that server's directory.
    #[error("the root server is {own} and cannot become {given}: let another host serve its directory instead")]
    OtherRoot {
        /// The file's.
        given: ServerId,
        /// The one that this server knows.
        own: ServerId,
    },
    /// A server is missing that has volumes.
    #[error(
        "server {server} is missing in epoch {epoch} and has the volume \"{name}\": move that to another server first"
    )]
    HasVolume {
        /// The server.
        server: ServerId,
        /// The file's epoch.
        epoch: u64,
        /// One of its volumes.
        name: VolumeName,
    },
}
