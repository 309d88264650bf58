//! Requests that wait until a file is cut, and what the thread `objects` has done for them and for others.

use super::Driver;
use super::membership::Done;
use super::objects::{Task, Worker};
use super::waiting::Waiting;
use crate::connection::Pending;
use crate::execute;
use crate::requests::REPLY_LEN_MAX;
use isonomia_cluster::node::Input;
use isonomia_cluster::request::{Answer, Refusal, RequestId};
use isonomia_units::Ino;
use rustix::io::Errno;

impl Driver {
    /// What the thread `objects` does until the server stops. To be taken once.
    pub fn objects_worker(&mut self) -> Option<Worker> {
        self.objects.worker.take()
    }

    /// A request waits until a file is cut.
    pub(super) fn cut(&mut self, id: RequestId, ino: Ino, size_bytes: u64) {
        if self.objects.tasks.try_send(Task::Cut { id, ino, size_bytes }).is_err() {
            self.requests.fail(&self.core, id, Errno::AGAIN);
        }
    }

    /// The thread `objects` has done something.
    pub(super) fn objects_done(&mut self, done: Done) {
        match done {
            Done::Heard(input) => self.give(input),
            Done::Intended(id, intent) => {
                // If its time is over nobody waits, and it is done all the same.
                let request = self.requests.deadline(id).map(|deadline| (id, deadline));
                self.objects.waiting.extend(request.map(|(id, _)| id));
                self.give(Input::Intent { intent, request });
            }
            Done::Nothing(id) => self.serve_rest(id),
            Done::Failed(id, error) => {
                self.requests.fail(&self.core, id, Errno::from_raw_os_error(error.errno() as i32));
            }
        }
    }

    /// A cut is done, or takes too long; gives the answer back if it is none to a request that waits for one.
    pub(super) fn cut_answered(
        &mut self,
        id: RequestId,
        result: Result<Answer, Refusal>,
    ) -> Option<Result<Answer, Refusal>> {
        if !self.objects.waiting.remove(&id) {
            return Some(result);
        }
        let errno = match result {
            Ok(_) => {
                self.serve_rest(id);
                return None;
            }
            Err(Refusal::FileSystem(errno)) => Errno::from_raw_os_error(errno),
            Err(Refusal::TimedOut) => Errno::TIMEDOUT,
            Err(_) => Errno::AGAIN,
        };
        self.requests.fail(&self.core, id, errno);
        None
    }

    /// Serves what a request wants besides the size, which its file has.
    fn serve_rest(&self, id: RequestId) {
        let Some(Waiting { pending, cut: Some(ino), .. }) = self.requests.take(id) else { return };
        let mut room = vec![0; REPLY_LEN_MAX];
        let Pending { connection, header, op, .. } = &pending;
        let reply = execute::open::serve_cut(&self.core, connection, header, *op, ino, &mut room);
        self.core.answer_late(&pending, &reply, &room[..reply.payload_len as usize]);
    }
}
