//! Simulated files whose bytes are on several servers: what clients, the store of the volume server and the stores of data
//! servers do with them, as far as the protocol depends on it.
//!
//! All files are in the root volume, so the root server has their names and sizes. Block `b` of a file is in the object of
//! stripe `b % servers` of the server with that position in the cluster file of epoch 1.
//!
//! # What a client does
//! * A *write* looks at the file (its size and the number of its last cut), and writes to the object, which refuses it if it has done
//!   a later cut: then the client looks again. Else it hears the number of the object's last cut. Is that lower, the object has not done the file's last cut: what is behind the size will go with it,
//!   and is written again later; what is before it stays. Is it the same and the end does not move, the write is done. Else the
//!   volume server is told. That refuses growth while the file is being cut: the client tells it again. If a cut began after
//!   what was written, and the first such cut made the file shorter, the write came before it, and is done: it is never written a second time
//!   what might have been seen. A cut that leaves the size takes what is behind that, which nobody saw: it is
//!   written again. If the server was started since, and does not know which it was, the write fails.
//! * An *append* has its position reserved ([`FileAsked::Grow`]) and fills it ([`FileAsked::Fill`]), unless the file was made shorter
//!   meanwhile.
//! * A client may *die* after it wrote and before it told: the volume server has the file cut to the size that it has. So
//!   it does with every file when it starts.
//! * *fsync* goes to every object. What was not synced may go, block by block, when a server's host loses power.
//! * A *read* looks at the file, reads from the object, and looks at the file again. The value counts if all three speak of the
//!   same cut; what the object lacks is zeros if the file reached that far before the read as well.

use crate::doubles::Double;
use crate::file_model::{self, Block, FileAsked, FileGot};
use crate::linear::Operation;
use crate::network::Parcel;
use crate::world::{Event, ROOT, World};
use isonomia_cluster::node::Input;
use isonomia_cluster::objects::{Intent, ObjectsId, Part, What};
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
    /// The number of the last cut that made it shorter, or of one before the server started.
    pub shortened: u64,
    /// Up to the cut of this number it is not known which made it shorter.
    pub cuts_before: u64,
    /// Which of the last cuts did: the last one is bit 0.
    pub shortening: u64,
}

impl Record {
    /// A cut to this size begins.
    pub fn begin_cut(&mut self, size: Block) {
        let is_shorter = size < self.size;
        (self.size, self.cuts, self.is_cutting) = (size, self.cuts + 1, true);
        self.shortening = self.shortening << 1 | u64::from(is_shorter);
        if is_shorter {
            self.shortened = self.cuts;
        }
    }

    fn was_shortened_after(&self, cuts: u64) -> Option<bool> {
        let bit = self.shortening.checked_shr((self.cuts - cuts - 1) as u32)?;
        (cuts >= self.cuts_before).then_some(bit & 1 == 1)
    }
}

/// What a volume server's store has of files, on stable storage.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Files by name.
    pub files: BTreeMap<u8, Record>,
    /// Objects of files that are gone, and are not removed everywhere.
    pub orphans: BTreeSet<ObjectsId>,
    /// Blocks that files have, as they were counted last.
    pub counted: BTreeMap<ObjectsId, u64>,
    numbers: u64,
}

/// An object as its data server's store has it.
#[derive(Clone, Debug, Default)]
pub struct Object {
    /// Its blocks, by their position in the file.
    pub blocks: BTreeMap<Block, u8>,
    /// The same on stable storage.
    pub synced: BTreeMap<Block, u8>,
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
    Reserve(u8),
    /// A data server.
    /// With the number of the last cut that the client knows.
    Write(ObjectsId, u32, Block, u8, u64),
    Read(ObjectsId, u32, Block),
    Sync(ObjectsId, u32),
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
    /// What was written came before a removal: it is as if the write had returned before.
    Before,
    /// What was written came before a cut that began meanwhile.
    Cut {
        /// Whether the first of them made the file shorter, if that is known.
        shortened: Option<bool>,
    },
    /// There is room for a block here, in the file as it was before.
    Room(Block, Record),
    /// On stable storage.
    Synced,
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
    /// Hosts may lose power in this story.
    pub loses_power: bool,
    /// When they did.
    pub power_losses: Vec<Nanos>,
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

    pub(crate) fn intent(&self, objects: ObjectsId, what: What, size: Block) -> Intent {
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
            70..83 => FileAsked::Truncate(block),
            83..88 => FileAsked::Grow,
            88..95 => FileAsked::Sync,
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
            FileAsked::Grow => Ask::Reserve(file),
            _ => Ask::Open(file),
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
            Ask::Write(_, index, ..) | Ask::Read(_, index, _) | Ask::Sync(_, index) => {
                self.files.layout[index as usize]
            }
            _ => ROOT,
        };
        if matches!(ask, Ask::Open(_) | Ask::Read(..) | Ask::Tell(..) | Ask::Sync(..)) {
            // These may be asked twice.
            self.at(self.now + Nanos::from_millis(500), Event::FileRepeats(client, attempt));
        }
        if !self.network.unreachable.contains(&server)
            && let Some(process) = self.reached(server)
        {
            let mut after = self.travels();
            if self.double == Double::WritesTwice && matches!(ask, Ask::Tell(..)) {
                // So that what is wrong shows soon.
                after = self.between(Nanos::from_millis(1), Nanos::from_millis(490));
            }
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
        let Some(directory) = self.directories.get_mut(&server).filter(|directory| directory.token == token) else {
            return;
        };
        let (names, objects) = (&mut directory.names, &mut directory.objects);
        let said = match ask {
            Ask::Create(file) if names.files.contains_key(&file) => Said::Got(FileGot::Exists),
            Ask::Create(file) => {
                names.numbers += 1;
                let objects = ObjectsId { number: names.numbers, generation: 1 };
                names.files.insert(
                    file,
                    Record {
                        objects,
                        size: 0,
                        cuts: 0,
                        is_cutting: false,
                        shortened: 0,
                        cuts_before: 0,
                        shortening: 0,
                    },
                );
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
                    record.begin_cut(size);
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
                        Said::Cut { shortened: record.was_shortened_after(cuts) }
                    } else if end > record.size && record.is_cutting {
                        Said::Again
                    } else {
                        record.size = record.size.max(end);
                        Said::File(*record)
                    }
                }
                _ => Said::Before,
            },
            Ask::Reserve(file) => match names.files.get_mut(&file) {
                None => Said::Got(FileGot::NotFound),
                Some(record) if record.size >= file_model::LONGEST => Said::Got(FileGot::End),
                Some(record) if record.is_cutting => Said::Again,
                Some(record) => {
                    record.size += 1;
                    Said::Room(record.size - 1, *record)
                }
            },
            Ask::Sync(id, index) => {
                let object = objects.objects.get_mut(&(id, index));
                if let Some(object) = object.filter(|_| self.double != Double::SyncsNothing) {
                    object.synced = object.blocks.clone();
                }
                Said::Synced
            }
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
        if matches!(said, Said::Written(_)) && self.rng.random_bool(0.05) {
            return self.file_writer_dies(client);
        }
        let begin_again = match current.asked {
            FileAsked::Create | FileAsked::Unlink | FileAsked::Truncate(_) | FileAsked::Grow => current.ask,
            _ => Ask::Open(current.file),
        };
        let next = match (said, current.asked) {
            (Said::Got(got), _) => return self.file_finish(client, Some(got)),
            (Said::Refused(Refusal::TimedOut), _) => return self.file_finish(client, None),
            (Said::Refused(_), _) => current.ask,
            (Said::Before, _) => return self.file_finish(client, Some(FileGot::Done)),
            (Said::Cut { shortened }, FileAsked::Write(block, _)) => {
                let Some(record) = current.record else { return };
                match (self.double, shortened) {
                    (Double::WritesTwice, _) => begin_again,
                    (Double::TakesCutsForDone, _) => return self.file_finish(client, Some(FileGot::Done)),
                    _ if block < record.size => return self.file_finish(client, Some(FileGot::Done)),
                    (_, Some(true)) => return self.file_finish(client, Some(FileGot::Done)),
                    // Nobody saw what lies behind the size, and no program wanted it to go.
                    (_, Some(false)) => begin_again,
                    // It fails.
                    (_, None) => return self.file_finish(client, None),
                }
            }
            (Said::Room(block, record), FileAsked::Grow) => {
                self.file_finish(client, Some(FileGot::Room(block)));
                let value = self.rng.random_range(1..=u8::MAX);
                self.file_begin(client, current.file, FileAsked::Fill(block, value));
                self.remember(client, record);
                let ask = Ask::Write(record.objects, self.place(block).1, block, value, record.cuts);
                return self.file_ask(client, ask);
            }
            (Said::File(now), FileAsked::Fill(block, value)) => {
                let Some(record) = current.record else { return };
                if now.objects != record.objects || now.shortened > record.cuts {
                    // The room may be another's by now.
                    return self.file_finish(client, Some(FileGot::Lost));
                }
                self.remember(client, now);
                return self.file_ask(client, Ask::Write(now.objects, self.place(block).1, block, value, now.cuts));
            }
            (Said::Written(_), FileAsked::Fill(..)) => {
                // Of a file that is gone nobody will see it, also if there is another one of that name.
                let now = self.directories[&ROOT].names.files.get(&current.file).map(|record| record.objects);
                let is_there = current.record.is_some_and(|record| now == Some(record.objects));
                return self.file_finish(client, is_there.then_some(FileGot::Done));
            }
            (Said::File(record), FileAsked::Sync) => return self.file_ask(client, Ask::Sync(record.objects, 0)),
            (Said::Synced, FileAsked::Sync) => {
                let Ask::Sync(objects, index) = current.ask else { return };
                if index as usize + 1 == self.files.layout.len() {
                    return self.file_finish(client, Some(FileGot::Done));
                }
                return self.file_ask(client, Ask::Sync(objects, index + 1));
            }
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
                // The time of a write is told now and then.
                let is_told = self.rng.random_bool(0.3) || self.double == Double::WritesTwice;
                match cuts.cmp(&record.cuts) {
                    // The object has not done the last cut yet, which will take away what is behind it.
                    Ordering::Less if block >= record.size => begin_again,
                    Ordering::Less => return self.file_finish(client, Some(FileGot::Done)),
                    Ordering::Equal if block < record.size && !is_told || self.double == Double::TellsNobody => {
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
            if next == begin_again && !matches!(current.asked, FileAsked::Fill(..)) {
                (current.record, current.read) = (None, None);
            }
        }
        self.at(self.now + PAUSE, Event::FileRepeats(client, attempt));
    }

    /// A client that has written something is no more, and the server of the volume hears of that a moment later.
    fn file_writer_dies(&mut self, client: usize) {
        self.note(|| format!("file client {client} dies"));
        let Some(current) = &self.files.clients[client].current else { return };
        let (Ask::Write(objects, ..), Some(process)) = (current.ask, self.current(ROOT)) else { return };
        let after = self.between(Nanos::from_millis(1), Nanos::from_secs(1));
        self.at(self.now + after, Event::WriterGone(process, objects));
        self.file_finish(client, None);
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
}
