//! Credentials of clients on TCP, decoded by munge's library, which is loaded when a server starts that asks for them.
//!
//! The library waits for the munge daemon, so a thread of its own calls it, of bounded work, and nobody waits for that thread.
//! Here it is decided what a good credential proves: that munge takes the client for a user, that the credential was made for
//! this server and this attempt, and that the client knows the secret in it.

use crate::clock;
use isonomia_proto::PROTOCOL_VERSION;
use isonomia_proto::setup::{Bound, decode_bound};
use isonomia_transport::key::Nonce;
use isonomia_units::Nanos;
use nix::libc;
use rustix::fd::OwnedFd;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// How long a client that is being set up waits for its credential to be decoded: less than munge's library waits for a
/// daemon that hangs.
pub const WAIT: Nanos = Nanos::from_secs(5);
/// Credentials that wait for the thread; the others wait their turn with the acceptor.
const QUESTIONS_MAX: usize = 16;
/// Bytes of an error text of the library's that are kept.
const TEXT_LEN_MAX: usize = 256;

const LIBRARY: &CStr = c"libmunge.so.2";
/// `MUNGE_OPT_SOCKET` of `munge.h`.
const OPT_SOCKET: c_int = 8;
const SUCCESS: c_int = 0;

/// Why a credential proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotVouched {
    /// It was decoded before.
    #[error("the munge credential was used before")]
    Replayed,
    /// It is too old, or the clocks of the hosts differ.
    #[error("the munge credential is of another time: the clocks of the hosts differ, or it was kept for too long")]
    Expired,
    /// It is for another user than this server's.
    #[error("the munge credential is for a server of another user")]
    Unauthorized,
    /// It is none, or was made with another key.
    #[error("the munge credential is not valid here: {0}")]
    Invalid(String),
    /// The daemon of this server's host is away.
    #[error("the munge daemon on the server's host does not answer: {0}")]
    Away(String),
    /// It is for another server.
    #[error("the munge credential is for the server {0:?}")]
    OtherServer(String),
    /// It is good, but for another connection: somebody sends it again.
    #[error("the munge credential was made for another connection")]
    OtherConnection,
}

/// Whom munge vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vouched {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What the credential is about.
    pub payload: Vec<u8>,
}

impl Vouched {
    /// What the credential is about, if that is a connection to server `name` of these two numbers.
    pub fn check(&self, name: &str, server_nonce: &Nonce, client_nonce: &Nonce) -> Result<Bound, NotVouched> {
        let bound = decode_bound(&self.payload).map_err(|error| NotVouched::Invalid(error.to_string()))?;
        if bound.name != name {
            Err(NotVouched::OtherServer(bound.name))
        } else if (bound.version, &bound.server_nonce, &bound.client_nonce)
            != (PROTOCOL_VERSION, server_nonce, client_nonce)
        {
            Err(NotVouched::OtherConnection)
        } else {
            Ok(bound)
        }
    }
}

/// Something that decodes credentials, and may take long for it.
pub trait Decode: Fn(&[u8]) -> Result<Vouched, NotVouched> + Send + 'static {}

impl<F: Fn(&[u8]) -> Result<Vouched, NotVouched> + Send + 'static> Decode for F {}

type Answer = (u64, Result<Vouched, NotVouched>);

/// The thread that decodes, as the acceptor sees it. Connections go by number.
#[derive(Debug)]
pub struct Decoder {
    questions: SyncSender<(u64, Vec<u8>, Nanos)>,
    answers: Receiver<Answer>,
}

impl Decoder {
    /// A thread that decodes by `decode` and adds to the event counter `bell` after each credential. It ends when this is
    /// dropped, or when the `decode` that it is in then returns.
    pub fn new(decode: impl Decode, bell: OwnedFd) -> std::io::Result<Self> {
        let (questions, asked) = sync_channel(QUESTIONS_MAX);
        let (answer, answers) = sync_channel(QUESTIONS_MAX);
        let run = move || work(&asked, &answer, decode, &bell);
        std::thread::Builder::new().name("munge".to_owned()).spawn(run)?;
        Ok(Self { questions, answers })
    }

    /// Has the credential of connection `id` decoded before `deadline`; false if too many wait.
    pub fn ask(&self, id: u64, credential: &[u8], deadline: Nanos) -> bool {
        self.questions.try_send((id, credential.to_vec(), deadline)).is_ok()
    }

    /// One that was decoded.
    pub fn answer(&self) -> Result<Answer, TryRecvError> {
        self.answers.try_recv()
    }
}

fn work(asked: &Receiver<(u64, Vec<u8>, Nanos)>, answers: &SyncSender<Answer>, decode: impl Decode, bell: &OwnedFd) {
    for (id, credential, deadline) in asked {
        // Whoever waited for it has been refused.
        if clock::now() >= deadline {
            continue;
        }
        if answers.send((id, decode(&credential))).is_err() {
            return;
        }
        // The only failure is that the counter is full: then whoever waits for it is told already.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

type Context = *mut c_void;
type Create = unsafe extern "C" fn() -> Context;
type Set = unsafe extern "C" fn(Context, c_int, ...) -> c_int;
type DecodeCredential = unsafe extern "C" fn(
    *const c_char,
    Context,
    *mut *mut c_void,
    *mut c_int,
    *mut libc::uid_t,
    *mut libc::gid_t,
) -> c_int;
type Text = unsafe extern "C" fn(Context) -> *const c_char;
type Destroy = unsafe extern "C" fn(Context);

/// Munge's library.
#[derive(Debug)]
pub struct Library {
    socket: Option<CString>,
    create: Create,
    set: Set,
    decode: DecodeCredential,
    text: Text,
    destroy: Destroy,
}

/// The library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("auth = \"munge\" needs munge's library (Debian: libmunge2): {0}; auth = \"key\" works without it")]
pub struct NoLibrary(String);

impl Library {
    /// Loads the library, whose daemon listens at `socket` if not where it usually does.
    pub fn load(socket: Option<&str>) -> Result<Self, NoLibrary> {
        let socket = socket.map(CString::new).transpose().map_err(|error| NoLibrary(error.to_string()))?;
        // SAFETY: the name is a string; what the library does when it is loaded is its maker's affair. It is never unloaded.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(loading_error());
        }
        let symbol = |name: &CStr| {
            // SAFETY: the library is loaded, and the name is a string.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            if symbol.is_null() { Err(loading_error()) } else { Ok(symbol) }
        };
        // SAFETY: the types are those that `munge.h` of version 2 of the library declares for these names; no pointer is null.
        unsafe {
            Ok(Self {
                socket,
                create: transmute::<*mut c_void, Create>(symbol(c"munge_ctx_create")?),
                set: transmute::<*mut c_void, Set>(symbol(c"munge_ctx_set")?),
                decode: transmute::<*mut c_void, DecodeCredential>(symbol(c"munge_decode")?),
                text: transmute::<*mut c_void, Text>(symbol(c"munge_ctx_strerror")?),
                destroy: transmute::<*mut c_void, Destroy>(symbol(c"munge_ctx_destroy")?),
            })
        }
    }

    /// Whom `credential` vouches for. Waits for the daemon, as long as the library finds right.
    pub fn decode(&self, credential: &[u8]) -> Result<Vouched, NotVouched> {
        let credential = CString::new(credential).map_err(|error| NotVouched::Invalid(error.to_string()))?;
        let (mut payload, mut len) = (std::ptr::null_mut::<c_void>(), 0);
        let (mut uid, mut gid) = (u32::MAX, u32::MAX);
        // SAFETY: the context is the library's own until it is destroyed, and no other thread has it. The strings outlive the
        // calls. The library gives `len` bytes, or none, which are freed below and not used afterwards.
        unsafe {
            let context = (self.create)();
            if context.is_null() {
                return Err(NotVouched::Away("out of memory".to_owned()));
            }
            if let Some(socket) = &self.socket {
                (self.set)(context, OPT_SOCKET, socket.as_ptr());
            }
            let outcome =
                (self.decode)(credential.as_ptr(), context, &raw mut payload, &raw mut len, &raw mut uid, &raw mut gid);
            let text = (self.text)(context);
            let text = if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() };
            (self.destroy)(context);
            let bytes = match usize::try_from(len) {
                Ok(len) if !payload.is_null() => std::slice::from_raw_parts(payload.cast::<u8>(), len).to_vec(),
                _ => Vec::new(),
            };
            libc::free(payload);
            if outcome == SUCCESS { Ok(Vouched { uid, gid, payload: bytes }) } else { Err(reason(outcome, &text)) }
        }
    }
}

/// What an error of the library means (`munge_err_t` of `munge.h`).
fn reason(outcome: c_int, text: &str) -> NotVouched {
    let text: String = text.chars().filter(|c| !c.is_control()).take(TEXT_LEN_MAX).collect();
    match outcome {
        // The library's own trouble, and its daemon's: nothing is said of the credential.
        1 | 4..=7 => NotVouched::Away(text),
        15 | 16 => NotVouched::Expired,
        17 => NotVouched::Replayed,
        18 => NotVouched::Unauthorized,
        _ => NotVouched::Invalid(text),
    }
}

fn loading_error() -> NoLibrary {
    // SAFETY: the text is this thread's until its next call of this family.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return NoLibrary("it cannot be loaded".to_owned());
    }
    // SAFETY: it is a string.
    NoLibrary(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
