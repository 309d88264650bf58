//! Files that programs may have mapped shared and writable: the mount keeps their pages only while no other mount does.
//!
//! The server gives each file's *mapping* to one mount at a time. A page fault through a file that some program here has
//! open for reading and writing waits until this mount has it (see [`crate::lease`]). When another mount wants it, the
//! kernel is told to write back and drop the file's pages, and it is given back. So a program sees in a shared mapping
//! what any program of any mount wrote to it before.
//!
//! One thread hears from the server what others wait for and what has been given; one has pages dropped, which the kernel
//! does not do at once: it must be no thread that serves requests. A few answer the faults that waited, each of which may
//! have to wait for its job's turn.

use crate::clients::{Clients, errno};
use crate::data;
use crate::handle::Handle;
use crate::lease::{BLOCK_LEN, Blocks, Next};
use crate::mapping_table::{File, Table, Validity};
use fuser::{INodeNo, Notifier, ReplyData};
use isonomia_client::{Capability, Client, Error, Ino, LeaseEvents, OpenFile, Unsynced};
use isonomia_units::{Nanos, ServerId};
use rustix::io::Errno;
use std::io;
use std::sync::mpsc::{self, Receiver, SendError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Faults that wait at once; more fail.
pub const WAITING_MAX: u16 = 4_096;
/// Threads that answer faults of which several waited for one mapping.
const ANSWERING: usize = 4;
/// LeaseEvents is waited for no longer than this, to look after faults that have waited for too long.
const LISTEN_MAX: Duration = Duration::from_secs(1);
/// Between two attempts to hear from a server that is away.
const RETRY: Duration = Duration::from_millis(20);

/// A page fault.
pub struct Fault {
    /// Through what.
    pub handle: Arc<Handle>,
    /// Who is charged.
    pub client: Arc<Client>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub size: u32,
    /// Where the bytes go.
    pub reply: ReplyData,
    /// It fails then.
    pub until: Instant,
}

/// The mappings of files of one server; see the module. Dropping it ends its threads.
pub struct ServerMappings {
    shared: Arc<Shared>,
    /// The other end of [`Shared::answers`].
    to_answer: Arc<Mutex<Receiver<Fault>>>,
}

struct Shared {
    clients: Arc<Clients>,
    server: Option<ServerId>,
    timeout: Duration,
    client: OnceLock<Arc<Client>>,
    kernel: OnceLock<Notifier>,
    table: Mutex<Table<Fault>>,
    /// There is something to listen for, or everything ends.
    listens: Condvar,
    /// There is something to give back, or everything ends.
    returns: Condvar,
    /// Faults whose mapping is here. As many as wait at most, and few at a time.
    answers: Sender<Fault>,
}

impl ServerMappings {
    /// No mappings of `server`, the one that was named if none is. A fault waits no longer than `timeout`.
    pub fn new(clients: Arc<Clients>, server: Option<ServerId>, timeout: Duration) -> Self {
        let (answers, to_answer) = mpsc::channel();
        let shared = Shared {
            answers,
            clients,
            server,
            timeout,
            client: OnceLock::new(),
            kernel: OnceLock::new(),
            table: Mutex::default(),
            listens: Condvar::new(),
            returns: Condvar::new(),
        };
        Self { shared: Arc::new(shared), to_answer: Arc::new(Mutex::new(to_answer)) }
    }

    /// Starts the threads, before anything else is asked; `kernel` is what drops pages.
    pub fn start(&self, kernel: Notifier) -> io::Result<()> {
        // There is one client for a mount.
        let _ = self.shared.kernel.set(kernel);
        for (name, run) in [("lease-events", listen as fn(&Shared)), ("mapping-return", give_back)] {
            let shared = self.shared.clone();
            std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared))?;
        }
        for _ in 0..ANSWERING {
            let faults = self.to_answer.clone();
            std::thread::Builder::new().name("mapping-answer".to_owned()).spawn(move || answer_some(&faults))?;
        }
        Ok(())
    }

    /// A file of the server was opened for reading and writing. Where it is noted that pages were written back and not synced.
    pub fn opened(&self, file: &OpenFile) -> Unsynced {
        self.shared.table().opened(&file.capability)
    }

    /// A file that was [`Self::opened`] is closed: with the last, the mapping goes.
    pub fn closed(&self, ino: u64) {
        if self.shared.table().closed(ino) {
            self.shared.returns.notify_one();
        }
    }

    /// Writes pages of a mapping back. The server takes them only while it knows that this mount has the mapping: what
    /// another has written since would be undone.
    pub fn write_back(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let capability = &handle.file.capability;
        let mut is_asked_again = false;
        let refused = loop {
            let table = self.shared.table();
            let is_here = |file: &&File<Fault>| file.lease.is_here() && file.validity != Validity::Lost;
            let session = table.files.get(&capability.ino).filter(is_here).map(|file| file.session);
            drop(table);
            let Some(session) = session else { break Errno::IO };
            match handle.client.write_back(&handle.file, session, offset, data).map_err(|e| errno(&e)) {
                // The server was started again, and does not know of the mapping; another thread may have told it meanwhile.
                // The mapping cannot be given back here in between: the thread that does so waits for this write.
                Err(Errno::AGAIN | Errno::IO) if !is_asked_again => {
                    is_asked_again = true;
                    self.shared.take_again(capability)?;
                }
                Err(errno @ (Errno::AGAIN | Errno::IO)) => break errno,
                other => {
                    handle.written_back.note_all(&handle.file.unsynced);
                    return other;
                }
            }
        };
        tracing::error!(ino = capability.ino, offset, "written pages of a mapping that is not here: EIO");
        Err(if refused == Errno::AGAIN { Errno::IO } else { refused })
    }

    /// Whether the kernel may have pages of a file that programs wrote to, and the server does not know.
    pub fn may_have_pages(&self, ino: u64) -> bool {
        self.shared.table().files.get(&ino).is_some_and(|file| file.lease.is_here())
    }

    /// Answers a fault, now or later.
    pub fn fault(&self, fault: Fault) {
        let ino = fault.handle.file.capability.ino;
        let shared = &self.shared;
        let mut table = shared.table();
        let is_full = table.waiting >= usize::from(WAITING_MAX);
        let Some(file) = table.files.get_mut(&ino) else {
            drop(table);
            return answer(fault);
        };
        if is_full && !file.lease.is_here() {
            drop(table);
            return fail(fault, "too many wait");
        }
        if let Some(fault) = file.lease.fault(blocks(&fault), fault) {
            drop(table);
            return answer(fault);
        }
        let asks = file.lease.ask();
        let capability = file.capability;
        table.waiting += 1;
        drop(table);
        if asks {
            shared.take(&capability);
            shared.listens.notify_one();
        }
    }
}

impl Drop for ServerMappings {
    fn drop(&mut self) {
        self.shared.table().is_over = true;
        self.shared.listens.notify_one();
        self.shared.returns.notify_one();
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table<Fault>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mount's own client. It stays: the server takes its end for the end of the mount.
    fn client(&self) -> Result<&Arc<Client>, Errno> {
        if self.client.get().is_none() {
            let _ = self.client.set(self.clients.own()?);
        }
        self.client.get().ok_or(Errno::IO)
    }

    /// Asks the server for a mapping, and answers the faults that waited for it if it is there.
    fn take(&self, capability: &Capability) {
        let (faults, refusal) = loop {
            let ask = |client: &Arc<Client>| client.take_mapping(capability, false);
            let refusal = |error| (errno(&error), matches!(error, Error::Server(_)));
            let taken = self.client().map_err(|errno| (errno, true)).and_then(|client| ask(client).map_err(refusal));
            let mut table = self.table();
            if let Ok((_, session)) = taken {
                table.meet(session);
            }
            let Some(file) = table.files.get_mut(&capability.ino) else { return };
            let (faults, refusal) = match taken {
                Ok((true, session)) => (table.given(capability.ino, session, Instant::now()), None),
                // A server that has just started gives it later, too.
                Ok((false, _)) | Err((Errno::AGAIN, _)) if file.lease.queued() => continue,
                Ok((false, _)) | Err((Errno::AGAIN, _)) => return,
                Err((errno, true)) => (file.lease.refused(), Some(errno)),
                Err((errno, false)) => (table.unsure(capability.ino, Instant::now()), Some(errno)),
            };
            table.waiting -= faults.len();
            break (faults, refusal);
        };
        // Wake the thread that gives mappings back before faults are answered: reading for one of them may take long.
        self.returns.notify_one();
        match refusal {
            None => self.answer_all(faults),
            Some(Errno::NOLCK) => {
                faults.into_iter().for_each(|f| fail(f, "the server gives no more mappings to this mount or user"));
            }
            Some(_) => faults.into_iter().for_each(|fault| fail(fault, "the server does not give it")),
        }
    }

    /// Answers faults: the last one here, since mostly there is just one, and the others by the threads that are there for it,
    /// because the caller has other things to do.
    fn answer_all(&self, mut faults: Vec<Fault>) {
        let Some(own) = faults.pop() else { return };
        for fault in faults {
            if let Err(SendError(fault)) = self.answers.send(fault) {
                answer(fault);
            }
        }
        answer(own);
    }

    /// How the server sees it.
    fn hear(&self, events: &LeaseEvents) {
        let mut table = self.table();
        table.meet(events.session);
        events.wanted.iter().for_each(|ino| table.recall(ino.0));
        let asks = |file: &mut File<Fault>| file.lease.ask_again().then_some(file.capability);
        let asked: Vec<Capability> = table.files.values_mut().filter_map(asks).collect();
        drop(table);
        self.returns.notify_one();
        asked.iter().for_each(|capability| self.take(capability));
    }

    /// Takes the mappings anew that are here and that the server may know nothing of; false if the server could not be
    /// asked. By the thread that gives them back, so that none is taken that was given back.
    fn take_doubtful(&self) -> bool {
        let mut table = self.table();
        table.has_doubts = false;
        let is_doubtful = |file: &&File<Fault>| file.validity == Validity::Doubtful && file.lease.is_here();
        let doubtful: Vec<Capability> = table.files.values().filter(is_doubtful).map(|file| file.capability).collect();
        drop(table);
        let was_answered = doubtful.iter().all(|capability| self.take_again(capability).is_ok());
        if !was_answered {
            self.table().has_doubts = true;
        }
        was_answered
    }

    /// Takes a mapping anew that is here, and that the server may know nothing of. One that another mount has got
    /// meanwhile, or that the server no longer gives, is lost. An error if the server could not be asked.
    fn take_again(&self, capability: &Capability) -> Result<Validity, Errno> {
        let taken = match self.client()?.take_mapping(capability, true) {
            Ok((is_here, session)) => Some((is_here, session)),
            Err(Error::Server(_)) => None,
            Err(error) => return Err(errno(&error)),
        };
        let mut table = self.table();
        if let Some((_, session)) = taken {
            table.meet(session);
        }
        let is_lost = table.files.get(&capability.ino).is_none_or(|file| file.validity == Validity::Lost);
        let taken = taken.filter(|(is_here, _)| *is_here && !is_lost);
        let validity = if taken.is_some() { Validity::Known } else { Validity::Lost };
        if let Some(file) = table.files.get_mut(&capability.ino) {
            file.validity = validity;
            file.session = taken.map_or(file.session, |(_, session)| session);
        }
        if validity == Validity::Lost {
            tracing::error!(ino = capability.ino, "a shared mapping is lost, and what is not written back of it");
            table.recall(capability.ino);
        }
        drop(table);
        self.returns.notify_one();
        Ok(validity)
    }

    /// Faults that have waited for too long fail.
    fn look_after_faults(&self) {
        let now = Instant::now();
        let mut table = self.table();
        let late: Vec<Fault> =
            table.files.values_mut().flat_map(|file| file.lease.take_waiting(|fault| fault.until <= now)).collect();
        table.waiting -= late.len();
        drop(table);
        late.into_iter()
            .for_each(|fault| fail(fault, "another mount does not give it back, or the server does not answer"));
    }

    /// Has the kernel write back and drop `len` bytes of pages from `offset`; 0 for all that follow.
    fn drop_pages(&self, ino: u64, offset: u64, len: u64) {
        let Some(kernel) = self.kernel.get() else { return };
        if let Err(error) = kernel.inval_inode(INodeNo(ino), offset as i64, len as i64) {
            tracing::warn!(ino, %error, "the kernel does not drop pages");
        }
    }
}

/// The thread that hears from the server.
fn listen(shared: &Shared) {
    let mut seen = 0;
    let most = Nanos((shared.timeout / 2).min(LISTEN_MAX).as_nanos() as u64);
    loop {
        let mut table = shared.table();
        while !table.is_over && table.files.values().all(|file| file.lease.is_idle()) {
            table = shared.listens.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
        if table.is_over {
            return;
        }
        drop(table);
        let heard =
            shared.client().and_then(|client| client.await_mappings(shared.server, seen, most).map_err(|e| errno(&e)));
        match heard {
            Ok(events) => {
                seen = events.version;
                shared.hear(&events);
            }
            Err(_) => std::thread::sleep(RETRY),
        }
        shared.look_after_faults();
    }
}

/// The thread that gives mappings back.
fn give_back(shared: &Shared) {
    let mut may_ask_at = Instant::now();
    let mut table = shared.table();
    while !table.is_over {
        if table.has_doubts && may_ask_at <= Instant::now() {
            drop(table);
            if !shared.take_doubtful() {
                may_ask_at = Instant::now() + RETRY;
            }
            table = shared.table();
            continue;
        }
        let now = Instant::now();
        table = match table.recalled.first().copied() {
            None if table.has_doubts => {
                let until = may_ask_at.saturating_duration_since(now);
                shared.returns.wait_timeout(table, until).unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared.returns.wait(table).unwrap_or_else(PoisonError::into_inner),
            Some((at, _)) if at > now => {
                shared.returns.wait_timeout(table, at - now).unwrap_or_else(PoisonError::into_inner).0
            }
            Some((_, ino)) => {
                table.recalled.pop_first();
                drop(table);
                give_one_back(shared, ino);
                shared.table()
            }
        };
    }
}

fn give_one_back(shared: &Shared, ino: u64) {
    loop {
        let mut table = shared.table();
        let Some(file) = table.files.get_mut(&ino) else { return };
        let next = file.lease.next();
        drop(table);
        match next {
            Next::Sweep => shared.drop_pages(ino, 0, 0),
            Next::Drop(block) => shared.drop_pages(ino, block * BLOCK_LEN, BLOCK_LEN),
            Next::Pause(time) => std::thread::sleep(time),
            Next::Return => break,
        }
    }
    while shared.client().and_then(|client| client.give_mapping(Ino(ino)).map_err(|e| errno(&e))).is_err() {
        if shared.table().is_over {
            return;
        }
        std::thread::sleep(RETRY);
    }
    let asked = shared.table().returned(ino);
    if let Some(capability) = asked {
        shared.take(&capability);
    }
}

/// A thread that answers faults, until there will be no more.
fn answer_some(faults: &Mutex<Receiver<Fault>>) {
    loop {
        let next = faults.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(fault) = next else { return };
        answer(fault);
    }
}

/// Answers a fault whose mapping is here, or is nobody's.
pub fn answer(fault: Fault) {
    let Fault { handle, client, offset, size, reply, .. } = fault;
    data::with_buffer(size as usize, |buffer| match client.read_at(&handle.file, offset, buffer) {
        Ok(len) => reply.data(&buffer[..len]),
        Err(error) => reply.error(fuser::Errno::from_i32(errno(&error).raw_os_error())),
    });
}

/// The program gets SIGBUS.
fn fail(fault: Fault, why: &'static str) {
    let ino = fault.handle.file.capability.ino;
    tracing::error!(ino, offset = fault.offset, why, "a page of a shared mapping cannot be had: EIO");
    fault.reply.error(fuser::Errno::EIO);
}

fn blocks(fault: &Fault) -> Blocks {
    let last = fault.offset.saturating_add(u64::from(fault.size.max(1)) - 1);
    fault.offset / BLOCK_LEN..=last / BLOCK_LEN
}
