//! Somebody on the network between a client and a server, who hears everything and changes what he likes.

use isonomia_transport::address::Address;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client.
    Up,
    /// From the server.
    Down,
}

/// What is done with bytes that are on their way: gets all that came in this direction and has not gone on, and gives what
/// goes on; it may keep the rest. Nothing ends the connection.
pub type Deed = Box<dyn FnMut(Way, &mut Vec<u8>) -> Option<Vec<u8>> + Send>;

/// See the module. Every connection is passed on by a deed of its own.
pub struct Between {
    /// Where clients connect.
    pub address: Address,
    /// Everything that went either way, of all connections.
    pub heard: Arc<Mutex<Vec<u8>>>,
    server: std::net::SocketAddr,
    _accepting: JoinHandle<()>,
}

/// Passes on everything.
pub fn honest() -> Deed {
    Box::new(|_, bytes| Some(std::mem::take(bytes)))
}

/// Does `deed` once, to the bytes of one direction from position `at` on as soon as `len` of them are there, and passes on
/// everything else.
pub fn once(way: Way, at: usize, len: usize, mut deed: impl FnMut(&mut Vec<u8>) + Send + 'static) -> Deed {
    let mut passed = 0;
    Box::new(move |which, bytes| {
        if which != way || passed > at {
            return Some(std::mem::take(bytes));
        }
        let before = (at - passed).min(bytes.len());
        let mut out: Vec<u8> = bytes.drain(..before).collect();
        passed += before;
        if passed == at && bytes.len() >= len {
            let mut chosen: Vec<u8> = bytes.drain(..len).collect();
            deed(&mut chosen);
            out.extend(chosen);
            out.append(bytes);
            passed += len;
        }
        Some(out)
    })
}

impl Between {
    /// In front of `server`; `deed` gives what is done with the next connection.
    pub fn new(server: &Address, mut deed: impl FnMut() -> Deed + Send + 'static) -> Self {
        let Address::Tcp(endpoint) = server else { panic!("{server} is not on TCP") };
        let server = endpoint.parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp:{}", listener.local_addr().unwrap()).parse().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = heard.clone();
        // It ends with the test.
        let accepting = std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(upstream) = TcpStream::connect(server) else { return };
                let deed = Arc::new(Mutex::new(deed()));
                for (way, from, to) in [(Way::Up, &client, &upstream), (Way::Down, &upstream, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (deed, log) = (deed.clone(), log.clone());
                    std::thread::spawn(move || pass(way, &from, &to, &deed, &log));
                }
            }
        });
        Self { address, heard, server, _accepting: accepting }
    }

    /// A connection of his own to the server.
    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server).unwrap()
    }

    /// Whether `bytes` went by.
    pub fn has_heard(&self, bytes: &[u8]) -> bool {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.windows(bytes.len()).any(|window| window == bytes)
    }
}

fn pass(way: Way, mut from: &TcpStream, mut to: &TcpStream, deed: &Mutex<Deed>, heard: &Mutex<Vec<u8>>) {
    let (mut kept, mut part) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(len @ 1..) = from.read(&mut part) {
        heard.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&part[..len]);
        kept.extend_from_slice(&part[..len]);
        let out = (deed.lock().unwrap_or_else(PoisonError::into_inner))(way, &mut kept);
        let Some(out) = out else { break };
        if to.write_all(&out).is_err() {
            break;
        }
    }
    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}
