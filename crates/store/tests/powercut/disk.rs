//! A disk that remembers what was written to it: one file of a FUSE file system, behind a loop device.
//!
//! The loop device turns a flush of the block layer (and what a write with FUA needs) into `fsync` of its file, and the
//! kernel writes through to a FUSE file: so every write and flush arrives here before it is acknowledged. What was read
//! it remembers until the file is opened again, as it is for every mount. The disk is a process of its own that touches
//! no other file: a program waiting for the disk never waits for itself, and can be killed. It ends with its standard
//! input, and on its own after [`LIFE_MAX`], which sets free whoever waits for it.
//!
//! Commands are lines on its standard input, each answered by a line on its standard output that begins with `disk: `.

use crate::image::{BlockLog, Event, Image, Order};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, MountOption,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

const PLACE_VARIABLE: &str = "ISONOMIA_POWERCUT_DISK";
/// The name of the file that is the disk.
const FILE: &str = "disk";
const FILE_INO: INodeNo = INodeNo(2);
const SIZE_BYTES: u64 = 64 << 20;
/// What is remembered at most; writes beyond it fail.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// How long a disk lives at most.
const LIFE_MAX: Duration = Duration::from_secs(4 * 3600);
/// `FALLOC_FL_PUNCH_HOLE` and `FALLOC_FL_ZERO_RANGE`: how a loop device writes zeros.
const MAKES_ZEROS: i32 = 0x02 | 0x10;
/// The kernel may remember what this file system says of its two names.
const TTL: Duration = Duration::from_secs(3600);

struct Platter {
    image: Image,
    /// What was written since the disk was made, or since the last cut.
    log: BlockLog,
    log_bytes: u64,
    /// The log that cuts are made in.
    recording: Option<BlockLog>,
}

impl Platter {
    fn put(&mut self, image: Image) {
        self.log = BlockLog::new(image.clone());
        self.log_bytes = 0;
        self.image = image;
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.log_bytes += bytes.len() as u64;
        if self.log_bytes > LOG_BYTES_MAX || offset + bytes.len() as u64 > SIZE_BYTES {
            return Err(Errno::EIO);
        }
        self.image.write(offset, bytes);
        self.log.push(Event::Write { offset, bytes: bytes.to_vec() });
        Ok(())
    }

    /// Carries out a command line; the answer without its `disk: `.
    fn obey(&mut self, line: &str) -> Result<String, String> {
        let mut words = line.split(' ');
        let command = words.next().unwrap_or("");
        let rest: Vec<&str> = words.collect();
        let number =
            |index: usize| rest.get(index).and_then(|word| word.parse::<u64>().ok()).ok_or("a number is missing");
        let order = |index: usize| number(index).map_or(Order::Kept, Order::Shuffled);
        match command {
            "begin" => self.put(self.image.clone()),
            "position" => return Ok(self.log.len().to_string()),
            "keep" => self.recording = Some(self.log.clone()),
            "cut" => {
                let recording = self.recording.as_ref().ok_or("nothing was recorded")?;
                let image = recording.image_at(number(0)? as usize, order(1));
                self.put(image);
            }
            "again" => {
                let position = self.log.len() as u64 * number(0)? / 1000;
                let image = self.log.image_at(position as usize, order(1));
                self.put(image);
            }
            "save" => {
                let bytes = postcard::to_stdvec(&self.recording).map_err(|e| e.to_string())?;
                std::fs::write(rest.join(" "), bytes).map_err(|e| e.to_string())?;
            }
            "load" => {
                let bytes = std::fs::read(rest.join(" ")).map_err(|e| e.to_string())?;
                self.recording = postcard::from_bytes(&bytes).map_err(|e| e.to_string())?;
            }
            other => return Err(format!("no command `{other}`")),
        }
        Ok("done".to_owned())
    }
}

struct Files(Arc<Mutex<Platter>>);

impl Files {
    fn platter(&self) -> std::sync::MutexGuard<'_, Platter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn attr(ino: INodeNo) -> FileAttr {
    let (kind, perm, size) =
        if ino == FILE_INO { (FileType::RegularFile, 0o600, SIZE_BYTES) } else { (FileType::Directory, 0o700, 0) };
    let then = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino,
        size,
        blocks: size / 512,
        atime: then,
        mtime: then,
        ctime: then,
        crtime: then,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == FILE {
            reply.entry(&TTL, &attr(FILE_INO), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &attr(ino));
    }

    /// Times are of no interest, and nothing else is changed of a disk.
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match size {
            Some(size) if size != SIZE_BYTES => reply.error(Errno::EPERM),
            _ => reply.attr(&TTL, &attr(ino)),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let bytes = self.platter().image.read(offset, u64::from(size));
        reply.data(&bytes);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.platter().write(offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.platter().log.push(Event::Flush);
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & MAKES_ZEROS == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.platter().write(offset, &vec![0; length as usize]) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }
}

/// The process of a disk: serves until its standard input ends.
#[test]
#[ignore = "run by the other tests, as a process of its own"]
fn serve() {
    let place = std::env::var(PLACE_VARIABLE).expect("where to mount the disk");
    std::thread::spawn(|| {
        std::thread::sleep(LIFE_MAX);
        std::process::exit(3);
    });
    let image = Image::new(SIZE_BYTES);
    let log = BlockLog::new(image.clone());
    let platter = Arc::new(Mutex::new(Platter { image, log, log_bytes: 0, recording: None }));
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("isonomia-powercut".to_owned())];
    let session = fuser::spawn_mount(Files(platter.clone()), &place, &config);
    let mut out = std::io::stdout();
    let mut answer = |text: Result<String, String>| {
        let text = text.unwrap_or_else(|error| format!("error: {error}"));
        writeln!(out, "disk: {text}").and_then(|()| out.flush()).is_ok()
    };
    let session = match session {
        Ok(session) => session,
        Err(error) => {
            answer(Err(error.to_string()));
            return;
        }
    };
    answer(Ok("done".to_owned()));
    for line in std::io::stdin().lines() {
        let Ok(line) = line else { break };
        if !answer(platter.lock().unwrap_or_else(PoisonError::into_inner).obey(&line)) {
            break;
        }
    }
    drop(session);
}

/// A running disk.
pub struct Disk {
    process: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    place: PathBuf,
}

impl Disk {
    /// Starts a disk of zeros whose file is in `place`, an empty directory.
    pub fn start(place: &Path) -> Result<Self, String> {
        let mut process = Command::new(std::env::current_exe().map_err(|e| e.to_string())?)
            .args(["--ignored", "--exact", "disk::serve", "--nocapture"])
            .env(PLACE_VARIABLE, place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let commands = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().ok_or("no standard output")?);
        let mut disk = Self { process, commands, answers, place: place.to_owned() };
        disk.answer()?;
        Ok(disk)
    }

    /// The file that is the disk.
    pub fn file(&self) -> PathBuf {
        self.place.join(FILE)
    }

    /// Forgets what was written before.
    pub fn begin(&mut self) {
        self.order("begin");
    }

    /// How many writes and flushes there were since [`Self::begin`].
    pub fn position(&mut self) -> usize {
        self.order("position").parse().unwrap()
    }

    /// What was written since [`Self::begin`] is what [`Self::cut`] is about from now on.
    pub fn keep(&mut self) {
        self.order("keep");
    }

    /// The disk holds what it held when the power failed at `position` of what was kept. Nobody has it open.
    pub fn cut(&mut self, position: usize, order: Order) {
        self.order(&format!("cut {position}{}", seed_of(order)));
    }

    /// The disk holds what it held when the power failed once more, after `permille` of what was written since.
    pub fn cut_again(&mut self, permille: u32, order: Order) {
        self.order(&format!("again {permille}{}", seed_of(order)));
    }

    /// Writes what was kept to a file.
    pub fn save(&mut self, path: &Path) {
        self.order(&format!("save {}", path.display()));
    }

    /// Keeps what was saved.
    pub fn load(&mut self, path: &Path) {
        self.order(&format!("load {}", path.display()));
    }

    fn order(&mut self, command: &str) -> String {
        writeln!(self.commands.as_ref().unwrap(), "{command}").unwrap();
        self.answer().unwrap()
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.answers.read_line(&mut line).map_err(|e| e.to_string())? == 0 {
                return Err("the process of the disk has ended".to_owned());
            }
            match line.trim_end().split_once("disk: ") {
                Some((_, answer)) if answer.starts_with("error: ") => return Err(answer.to_owned()),
                Some((_, answer)) => return Ok(answer.to_owned()),
                None => {}
            }
        }
    }
}

fn seed_of(order: Order) -> String {
    match order {
        Order::Kept => String::new(),
        Order::Shuffled(seed) => format!(" {seed}"),
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.process.wait();
        // It does so itself unless the loop device was late to let go.
        let _ = rustix::mount::unmount(&self.place, rustix::mount::UnmountFlags::DETACH);
    }
}
