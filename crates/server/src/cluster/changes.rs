//! Changes of volumes that users want, on their way to the root server's node.

use super::Driver;
use crate::clock;
use isonomia_cluster::node::Input;
use isonomia_cluster::request::{RenameHow, Request, RequestId};
use isonomia_cluster::volumes::{Attributes, VolumeName};
use isonomia_store::VolumeChange;
use isonomia_units::{ServerId, VolumeId};
use rustix::io::Errno;

impl Driver {
    /// A change that a user of this server wants, and may make.
    pub(super) fn change(&mut self, id: RequestId, wanted: ServerId, change: &VolumeChange) {
        let root = self.config.map().root().number;
        match self.request_of(wanted, change) {
            Ok(request) if self.config.number == root => self.request(id, request),
            Ok(request) => {
                if let Err(errno) = self.ask(root, id, request) {
                    self.requests.fail(&self.core, id, errno);
                }
            }
            Err(errno) => self.requests.fail(&self.core, id, errno),
        }
    }

    /// Has the root server decide a request.
    fn ask(&self, root: ServerId, id: RequestId, request: Request) -> Result<(), Errno> {
        // If its time is over it has its answer.
        let Some(deadline) = self.requests.deadline(id) else { return Ok(()) };
        let (requests, core) = (self.requests.clone(), self.core.own.clone());
        self.links.ask(root, request, deadline.since(clock::now()), move |verdict| {
            // A server that stops has closed the connection of whoever asked.
            if let Some(core) = core.upgrade() {
                requests.answer(&core, id, &verdict);
            }
        })
    }

    /// What the root server is asked for; `wanted` is the server that a new volume is to be on, 0 if that is all the same.
    fn request_of(&self, wanted: ServerId, change: &VolumeChange) -> Result<Request, Errno> {
        let name_of = |volume: VolumeId| {
            let slot = self.node.table().slot(volume).and_then(|slot| slot.volume.as_ref());
            slot.map(|volume| volume.name.clone()).ok_or(Errno::NOENT)
        };
        let named = |name: &[u8]| VolumeName::try_from(name).map_err(|_| Errno::INVAL);
        Ok(match change {
            VolumeChange::Make { name, mode, uid, gid } => {
                let attributes = Attributes { mode: *mode, uid: *uid, gid: *gid };
                // One that may be anywhere is placed by the root server.
                Request::Make { name: named(name)?, server: wanted, attributes }
            }
            VolumeChange::Remove { volume } => Request::Remove { name: name_of(*volume)?, found: Some(*volume) },
            VolumeChange::Rename { volume, name, how } => Request::Rename {
                from: name_of(*volume)?,
                found: Some(*volume),
                to: named(name)?,
                how: match how {
                    isonomia_store::RenameHow::Replace => RenameHow::Replace,
                    isonomia_store::RenameHow::NoReplace => RenameHow::NoReplace,
                    isonomia_store::RenameHow::Exchange => RenameHow::Exchange,
                },
            },
        })
    }

    /// Has the node decide a request, unless its time is over.
    pub(super) fn request(&mut self, id: RequestId, request: Request) {
        let Some(request) = self.placed(request) else { return self.requests.fail(&self.core, id, Errno::NOSPC) };
        if let Some(deadline) = self.requests.deadline(id) {
            let request = self.whole(request);
            self.give(Input::Request { id, deadline, request });
        }
    }
}
