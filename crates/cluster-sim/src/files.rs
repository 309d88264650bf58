//! Simulated files whose bytes are on several servers: what clients, the store of the volume server and the stores of data
//! servers do with them, as far as the protocol depends on it.
//!
//! All files are in the root volume, so the root server has their names and sizes. Block `b` of a file is in the object of
//! stripe `b % servers` of the server with that place in the cluster file of epoch 1.
//!
//! # What a client does
//! * A *write* looks at the file (its size and the number of its last cut), and writes to the object, which refuses it if it has done
//!   a later cut: then the client looks again. Else it hears the number of the object's last cut. Is that lower, the object has not done the file's last cut: what is behind the size will go with it,
//!   and is written again later; what is before it stays. Is it the same and the end does not move, the write is done. Else the
//!   volume server is told. That refuses growth while the file is being cut: the client tells it again. If a cut began after
//!   what was written, the write came before the cut, and is done. It is never written a second time what might
//!   have been seen.
//! * A *read* looks at the file, reads from the object, and looks at the file again. The value counts if all three speak of the
//!   same cut; what the object lacks is zeros if the file reached that far before the read as well.

use crate::doubles::Double;
use crate::file_model::{Block, FileAsked, FileGot};
use crate::host::State;
use crate::linear::Operation;
use crate::network::Parcel;
use crate::world::{Event, ROOT, World};
use isonomia_cluster::node::Input;
use isonomia_cluster::objects::{Intent, ObjectsId, Order, Part, What};
use isonomia_cluster::request::{Answer, Refusal, RequestId};
use isonomia_units::{Nanos, ServerId, TargetId};
use rand::RngExt;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Files that clients use.
pub const FILES: u8 = 2;
/// Blocks that they write.
pub const BLOCKS: Block = 6;
/// How long a client waits for an operation.
const PATIENCE: Nanos = Nanos::from_secs(4);
/// How long it waits before it tries again what was refused for now.
const PAUSE: Nanos = Nanos::from_millis(30);
/// How often a server's driver looks for what is to be removed.
const TIDIED_EVERY: Nanos = Nanos::from_secs(2);

/// A file as its volume server's store has it.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Its objects.
    pub objects: ObjectsId,
    /// Its size in blocks.
    pub size: Block,
    /// The number of its last cut.
    pub cuts: u64,
    /// That cut is not done by all data servers.
    pub is_cutting: bool,
}

/// What a volume server's store has of files, on stable storage.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Files by name.
    pub files: BTreeMap<u8, Record>,
    /// Objects of files that are gone, and are not removed everywhere.
    pub orphans: BTreeSet<ObjectsId>,
    numbers: u64,
}

/// An object as its data server's store has it, on stable storage.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// Its blocks, by their place in the file.
    pub blocks: BTreeMap<Block, u8>,
    /// The number of its last cut.
    pub cuts: u64,
}

/// What a data server's store has.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Objects by file and stripe.
    pub objects: BTreeMap<(ObjectsId, u32), Object>,
    /// Places that are closed.
    pub removed: BTreeSet<ObjectsId>,
}

/// What a client asks a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The volume server.
    Open(u8),
    Create(u8),
    Unlink(u8),
    Truncate(u8, Block),
    Tell(u8, ObjectsId, Block, u64),
    /// A data server.
    /// With the number of the last cut that the client knows.
    Write(ObjectsId, u32, Block, u8, u64),
    Read(ObjectsId, u32, Block),
}

/// What a server says.
#[derive(Clone, Copy, Debug)]
pub enum Said {
    Got(FileGot),
    /// The file as it is.
    File(Record),
    /// Written; the number of the object's last cut.
    Written(u64),
    /// What the object has there, and the number of its last cut.
    Bytes(Option<u8>, u64),
    /// Not while the file is being cut, or it is another file by now: ask again.
    Again,
    /// What was written came before a cut, or a removal, that began meanwhile: it is as if the write had returned before.
    Before,
    /// Not now.
    Refused(Refusal),
}

/// A client of files.
#[derive(Debug, Default)]
pub struct FileClient {
    current: Option<Current>,
    left: u32,
    attempts: u64,
}

#[derive(Clone, Debug)]
struct Current {
    index: usize,
    file: u8,
    asked: FileAsked,
    deadline: Nanos,
    attempt: u64,
    ask: Ask,
    /// The file as it was when the client looked last.
    record: Option<Record>,
    /// What a read found, and by which cut.
    read: Option<(Option<u8>, u64)>,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Files {
    /// Servers in the order of stripes.
    pub layout: Vec<ServerId>,
    /// Clients.
    pub clients: Vec<FileClient>,
    /// What they did, by file.
    pub history: Vec<(u8, Operation<FileAsked, FileGot>)>,
}

impl FileClient {
    /// One that will begin so many operations.
    pub fn new(left: u32) -> Self {
        Self { left, ..Self::default() }
    }
}

impl World {
    fn place(&self, block: Block) -> (ServerId, u32) {
        let index = usize::from(block) % self.files.layout.len();
        (self.files.layout[index], index as u32)
    }

    fn intent(&self, objects: ObjectsId, what: What, size: Block) -> Intent {
        let mut parts: BTreeMap<ServerId, Vec<Part>> = BTreeMap::new();
        for (index, server) in self.files.layout.iter().enumerate() {
            let part = Part { index: index as u32, target: TargetId(0), size_bytes: u64::from(size) };
            parts.entry(*server).or_default().push(part);
        }
        Intent { objects, what, parts }
    }

    /// A client begins something, or gives up.
    pub fn file_client(&mut self, client: usize) {
        if let Some(current) = &self.files.clients[client].current {
            if current.deadline <= self.now {
                self.file_finish(client, None);
            }
            return;
        }
        if self.files.clients[client].left == 0 || self.now >= self.clients_end {
            return;
        }
        self.files.clients[client].left -= 1;
        let block = self.rng.random_range(0..BLOCKS);
        let asked = match self.rng.random_range(0..100) {
            0..12 => FileAsked::Create,
            12..17 => FileAsked::Unlink,
            17..50 => FileAsked::Write(block, self.rng.random_range(1..=u8::MAX)),
            50..70 => FileAsked::Read(block),
            70..90 => FileAsked::Truncate(block),
            _ => FileAsked::Size,
        };
        let file = self.rng.random_range(0..FILES);
        self.file_begin(client, file, asked);
    }

    /// A client begins `asked`.
    pub fn file_begin(&mut self, client: usize, file: u8, asked: FileAsked) {
        self.note(|| format!("file client {client} begins {asked:?} of file {file}"));
        let index = self.files.history.len();
        self.files.history.push((file, Operation { called: self.now, returned: None, asked }));
        let deadline = self.now + PATIENCE;
        let ask = match asked {
            FileAsked::Create => Ask::Create(file),
            FileAsked::Unlink => Ask::Unlink(file),
            FileAsked::Truncate(size) => Ask::Truncate(file, size),
            FileAsked::Write(..) | FileAsked::Read(_) | FileAsked::Size => Ask::Open(file),
        };
        self.files.clients[client].current =
            Some(Current { index, file, asked, deadline, attempt: 0, ask, record: None, read: None });
        self.at(deadline, Event::FileClient(client));
        self.file_ask(client, ask);
    }

    /// Whether a client is done.
    pub fn file_client_rests(&self, client: usize) -> bool {
        self.files.clients[client].current.is_none()
    }

    fn file_ask(&mut self, client: usize, ask: Ask) {
        self.files.clients[client].attempts += 1;
        let attempt = self.files.clients[client].attempts;
        let Some(current) = &mut self.files.clients[client].current else { return };
        (current.attempt, current.ask) = (attempt, ask);
        let deadline = current.deadline;
        let server = match ask {
            Ask::Write(_, index, ..) | Ask::Read(_, index, _) => self.files.layout[index as usize],
            _ => ROOT,
        };
        if matches!(ask, Ask::Open(_) | Ask::Read(..) | Ask::Tell(..)) {
            // These may be asked twice.
            self.at(self.now + Nanos::from_millis(500), Event::FileRepeats(client, attempt));
        }
        if !self.network.unreachable.contains(&server)
            && let Some(process) = self.reached(server)
        {
            let after = self.travels();
            self.at(self.now + after, Event::Arrives(Parcel::FileAsk { process, client, attempt, deadline, ask }));
        }
    }

    /// A client has waited for an answer.
    pub fn file_repeats(&mut self, client: usize, attempt: u64) {
        if let Some(current) = &self.files.clients[client].current
            && current.attempt == attempt
        {
            let ask = current.ask;
            self.file_ask(client, ask);
        }
    }

    /// A server has a request for a file.
    pub fn file_asked(&mut self, process: usize, (client, attempt): (usize, u64), deadline: Nanos, ask: Ask) {
        let (server, token) = (self.processes[process].server, self.processes[process].token);
        let local = self.processes[process].local(self.now);
        if let Err(refusal) = self.processes[process].node.may_serve(local) {
            return self.file_say(process, (client, attempt), Said::Refused(refusal));
        }
        let Some(directory) = self.directories.get_mut(&server).filter(|directory| directory.token == token)
        else {
            return;
        };
        let (names, objects) = (&mut directory.names, &mut directory.objects);
        let said = match ask {
            Ask::Create(file) if names.files.contains_key(&file) => Said::Got(FileGot::Exists),
            Ask::Create(file) => {
                names.numbers += 1;
                let objects = ObjectsId { number: names.numbers, generation: 1 };
                names.files.insert(file, Record { objects, size: 0, cuts: 0, is_cutting: false });
                Said::Got(FileGot::Done)
            }
            Ask::Unlink(file) => match names.files.remove(&file) {
                None => Said::Got(FileGot::NotFound),
                Some(record) => {
                    names.orphans.insert(record.objects);
                    Said::Got(FileGot::Done)
                }
            },
            Ask::Open(file) => match names.files.get(&file) {
                None => Said::Got(FileGot::NotFound),
                Some(record) => Said::File(*record),
            },
            Ask::Truncate(file, size) => match names.files.get_mut(&file) {
                None => Said::Got(FileGot::NotFound),
                Some(record) if size > record.size && record.is_cutting => Said::Again,
                Some(record) if size > record.size => {
                    record.size = size;
                    Said::Got(FileGot::Done)
                }
                Some(record) => {
                    (record.size, record.cuts, record.is_cutting) = (size, record.cuts + 1, true);
                    let (objects, what) = (record.objects, What::Cut { number: record.cuts });
                    let running = &mut self.processes[process];
                    running.next_request += 1;
                    let id = RequestId(running.next_request);
                    running.requests.insert(id, (client, attempt, deadline.max(self.now)));
                    running.file_requests.insert(id);
                    let request = Some((id, running.local(deadline)));
                    let intent = self.intent(objects, what, size);
                    return self.give(process, Input::Intent { intent, request });
                }
            },
            Ask::Tell(file, objects, end, cuts) => match names.files.get_mut(&file) {
                Some(record) if record.objects == objects => {
                    let is_late = cuts < record.cuts && self.double != Double::BelievesOldEnds;
                    if is_late {
                        Said::Before
                    } else if end > record.size && record.is_cutting {
                        Said::Again
                    } else {
                        record.size = record.size.max(end);
                        Said::File(*record)
                    }
                }
                _ => Said::Before,
            },
            Ask::Write(id, ..) | Ask::Read(id, ..) if objects.removed.contains(&id) => Said::Again,
            Ask::Write(id, index, block, value, known) => {
                let object = objects.objects.entry((id, index)).or_default();
                if object.cuts > known {
                    Said::Again
                } else {
                    object.blocks.insert(block, value);
                    Said::Written(object.cuts)
                }
            }
            Ask::Read(id, index, block) => match objects.objects.get(&(id, index)) {
                None => Said::Bytes(None, 0),
                Some(object) => Said::Bytes(object.blocks.get(&block).copied(), object.cuts),
            },
        };
        self.file_say(process, (client, attempt), said);
    }

    /// A node has answered a request for a file.
    pub fn file_reply(&mut self, process: usize, to: (usize, u64), result: Result<Answer, Refusal>) {
        let said = match result {
            Ok(_) => Said::Got(FileGot::Done),
            Err(refusal) => Said::Refused(refusal),
        };
        self.file_say(process, to, said);
    }

    fn file_say(&mut self, process: usize, (client, attempt): (usize, u64), said: Said) {
        self.send_back(process, Parcel::FileSaid { client, attempt, said });
    }

    /// A client has an answer.
    pub fn file_hears(&mut self, client: usize, attempt: u64, said: Said) {
        let Some(current) = self.files.clients[client].current.clone() else { return };
        if current.attempt != attempt {
            return;
        }
        self.note(|| format!("file client {client} hears {said:?} for {:?}", current.ask));
        let begin_again = match current.asked {
            FileAsked::Write(..) | FileAsked::Read(_) | FileAsked::Size => Ask::Open(current.file),
            _ => current.ask,
        };
        let next = match (said, current.asked) {
            (Said::Got(got), _) => return self.file_finish(client, Some(got)),
            (Said::Refused(Refusal::TimedOut), _) => return self.file_finish(client, None),
            (Said::Refused(_), _) => current.ask,
            (Said::Before, _) => return self.file_finish(client, Some(FileGot::Done)),
            // What is written stays so: to write again would be to write twice.
            (Said::Again, _) if matches!(current.ask, Ask::Tell(..)) => current.ask,
            (Said::Again, _) => begin_again,
            (Said::File(record), FileAsked::Size) => {
                return self.file_finish(client, Some(FileGot::Size(record.size)));
            }
            (Said::File(_), FileAsked::Write(..)) if matches!(current.ask, Ask::Tell(..)) => {
                return self.file_finish(client, Some(FileGot::Done));
            }
            (Said::File(record), FileAsked::Write(block, value)) => {
                self.remember(client, record);
                return self
                    .file_ask(client, Ask::Write(record.objects, self.place(block).1, block, value, record.cuts));
            }
            (Said::Written(cuts), FileAsked::Write(block, _)) => {
                let Some(record) = current.record else { return };
                match cuts.cmp(&record.cuts) {
                    // The object has not done the last cut yet, which will take away what is behind it.
                    Ordering::Less if block >= record.size => begin_again,
                    Ordering::Less => return self.file_finish(client, Some(FileGot::Done)),
                    Ordering::Equal if block < record.size || self.double == Double::TellsNobody => {
                        return self.file_finish(client, Some(FileGot::Done));
                    }
                    _ => return self.file_ask(client, Ask::Tell(current.file, record.objects, block + 1, cuts)),
                }
            }
            (Said::File(record), FileAsked::Read(block)) => match (current.record, current.read) {
                _ if block >= record.size => return self.file_finish(client, Some(FileGot::End)),
                // The object and the file have to speak of the same cut, before the read and after it.
                (Some(before), Some((found, cuts)))
                    if (before.objects, before.cuts, cuts) == (record.objects, record.cuts, record.cuts)
                        && (found.is_some() || block < before.size) =>
                {
                    return self.file_finish(client, Some(FileGot::Value(found.unwrap_or(0))));
                }
                _ => {
                    self.remember(client, record);
                    return self.file_ask(client, Ask::Read(record.objects, self.place(block).1, block));
                }
            },
            (Said::Bytes(found, cuts), FileAsked::Read(_)) => {
                if let Some(current) = &mut self.files.clients[client].current {
                    current.read = Some((found, cuts));
                }
                return self.file_ask(client, Ask::Open(current.file));
            }
            _ => return,
        };
        if let Some(current) = &mut self.files.clients[client].current {
            current.ask = next;
            if next == begin_again {
                (current.record, current.read) = (None, None);
            }
        }
        self.at(self.now + PAUSE, Event::FileRepeats(client, attempt));
    }

    fn remember(&mut self, client: usize, record: Record) {
        if let Some(current) = &mut self.files.clients[client].current {
            current.record = Some(record);
        }
    }

    fn file_finish(&mut self, client: usize, got: Option<FileGot>) {
        let Some(current) = self.files.clients[client].current.take() else { return };
        self.note(|| format!("file client {client} has {got:?} for {:?} of file {}", current.asked, current.file));
        self.files.history[current.index].1.returned = got.map(|got| (self.now, got));
        let pause = self.between(Nanos::from_millis(1), Nanos::from_millis(700));
        self.at(self.now + pause, Event::FileClient(client));
    }

    /// A process that starts hears from its store what is still to be done.
    pub fn file_start(&mut self, process: usize) {
        let server = self.processes[process].server;
        if self.double != Double::ForgetsIntents {
            let cutting = self.directories[&server].names.files.values().filter(|record| record.is_cutting);
            for record in cutting.copied().collect::<Vec<_>>() {
                let intent = self.intent(record.objects, What::Cut { number: record.cuts }, record.size);
                self.give(process, Input::Intent { intent, request: None });
            }
        }
        self.at(self.now + TIDIED_EVERY, Event::Tidies(process));
    }

    /// A process looks for what is to be removed.
    pub fn file_tidies(&mut self, process: usize) {
        let server = self.processes[process].server;
        let directory = &self.directories[&server];
        let found: BTreeSet<ObjectsId> = directory.objects.objects.keys().map(|(objects, _)| *objects).collect();
        let orphans: Vec<ObjectsId> = directory.names.orphans.iter().copied().collect();
        for objects in orphans {
            let intent = self.intent(objects, What::Remove { until_secs: 0 }, 0);
            self.give(process, Input::Intent { intent, request: None });
        }
        if self.processes[process].state == State::Running {
            self.give(process, Input::AskWanted { objects: found.into_iter().collect() });
            self.at(self.now + TIDIED_EVERY, Event::Tidies(process));
        }
    }

    /// A store does what a volume server wants.
    pub fn file_serves(&mut self, process: usize, from: ServerId, order: Order) {
        let (server, token) = (self.processes[process].server, self.processes[process].token);
        let double = self.double;
        let Some(directory) = self.directories.get_mut(&server).filter(|directory| directory.token == token)
        else {
            return;
        };
        let Order { objects, what, parts } = order;
        let store = &mut directory.objects;
        let mut highest = 0;
        for part in parts {
            match what {
                What::Cut { number } if !store.removed.contains(&objects) => {
                    let object = store.objects.entry((objects, part.index)).or_default();
                    if number > object.cuts || double == Double::CutsTwice {
                        object.blocks.retain(|block, _| u64::from(*block) < part.size_bytes);
                        object.cuts = object.cuts.max(number);
                    }
                    highest = highest.max(object.cuts);
                }
                What::Cut { number } => highest = highest.max(number),
                What::Remove { .. } => {
                    store.objects.remove(&(objects, part.index));
                    store.removed.insert(objects);
                }
            }
        }
        let takes = self.between(Nanos::from_micros(100), Nanos::from_millis(20));
        self.at(self.now + takes, Event::Served(process, Input::Served { from, objects, what, result: Ok(highest) }));
    }

    /// A store closes an intent.
    pub fn file_closes(&mut self, process: usize, objects: ObjectsId, what: What) {
        let (server, token) = (self.processes[process].server, self.processes[process].token);
        let Some(directory) = self.directories.get_mut(&server).filter(|directory| directory.token == token)
        else {
            return;
        };
        match what {
            What::Cut { number } => {
                let of = directory.names.files.values_mut().find(|record| record.objects == objects);
                if let Some(record) = of.filter(|record| record.cuts == number) {
                    record.is_cutting = false;
                }
            }
            What::Remove { .. } => _ = directory.names.orphans.remove(&objects),
        }
        self.at(self.now + Nanos::from_micros(100), Event::Served(process, Input::IntentClosed { objects, what }));
    }

    /// A store looks which of these objects belong to no file.
    pub fn file_looks(&mut self, process: usize, asker: ServerId, mut objects: Vec<ObjectsId>) {
        let names = &self.directories[&self.processes[process].server].names;
        objects.retain(|id| !names.files.values().any(|record| record.objects == *id));
        let takes = self.between(Nanos::from_micros(100), Nanos::from_millis(20));
        self.at(self.now + takes, Event::Served(process, Input::NotWanted { asker, objects }));
    }

    /// A store removes objects that nobody wants.
    pub fn file_removes(&mut self, process: usize, unwanted: &[ObjectsId]) {
        let (server, token) = (self.processes[process].server, self.processes[process].token);
        if let Some(directory) = self.directories.get_mut(&server).filter(|directory| directory.token == token) {
            directory.objects.objects.retain(|(objects, _), _| !unwanted.contains(objects));
            directory.objects.removed.extend(unwanted);
        }
    }

    /// Nothing is left to do, and there are objects of files only.
    pub fn check_files_rest(&mut self) {
        let names = &self.directories[&ROOT].names;
        let live: BTreeSet<ObjectsId> = names.files.values().map(|record| record.objects).collect();
        let mut wrong = Vec::new();
        wrong.extend(
            names.files.iter().filter(|(_, file)| file.is_cutting).map(|file| format!("still cutting: {file:?}")),
        );
        wrong.extend(names.orphans.iter().map(|objects| format!("still to be removed: {objects:?}")));
        for (server, directory) in &self.directories {
            let lost = directory.objects.objects.keys().filter(|(objects, _)| !live.contains(objects));
            wrong.extend(lost.map(|object| format!("server {server} has {object:?} of no file")));
        }
        for what in wrong {
            self.violate(what);
        }
    }
}
