//! The handshake on TCP: two messages of Noise, `NNpsk0` with X25519, ChaCha20-Poly1305 and SHA-256, by the library `snow`.
//!
//! Both sides know a secret beforehand. Who does not cannot make either message, nor read what is in them. The keys that
//! come out of it depend on numbers that both sides draw for this one handshake and then forget, so whoever learns the secret
//! later reads nothing of what was said. No I/O.

use crate::key::{Secret, fresh_nonce};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};

/// Which handshake it is, in the words of the Noise Protocol Framework.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
/// What a message has besides what it carries: a public key and a code.
pub const MESSAGE_OVERHEAD: usize = 32 + 16;

/// The handshake failed: the other side does not know the secret, or something was changed on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the handshake failed")]
pub struct Failed;

impl From<snow::Error> for Failed {
    fn from(_: snow::Error) -> Self {
        Self
    }
}

/// What the handshake gives: a key for each direction.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// For what this side sends.
    pub send: [u8; 32],
    /// For what this side receives.
    pub receive: [u8; 32],
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

/// The client's side, whose first message has gone.
#[derive(Debug)]
pub struct Initiator(Box<HandshakeState>);

impl Initiator {
    /// Begins a handshake that is about `prologue`, which the other side must find the same; gives the first message, with
    /// `payload` in it.
    pub fn begin(secret: &Secret, prologue: &[u8], payload: &[u8]) -> Result<(Self, Vec<u8>), Failed> {
        let mut state = Box::new(builder(secret, prologue)?.build_initiator()?);
        let message = write(&mut state, payload)?;
        Ok((Self(state), message))
    }

    /// What the other side's message carries, and the keys.
    pub fn finish(mut self, message: &[u8]) -> Result<(Vec<u8>, Keys), Failed> {
        let payload = read(&mut self.0, message)?;
        let (send, receive) = self.0.dangerously_get_raw_split();
        Ok((payload, Keys { send, receive }))
    }
}

/// The server's side, which has heard the first message.
#[derive(Debug)]
pub struct Responder(Box<HandshakeState>);

impl Responder {
    /// Takes part in a handshake that is about `prologue`; gives what its first message carries.
    pub fn begin(secret: &Secret, prologue: &[u8], message: &[u8]) -> Result<(Self, Vec<u8>), Failed> {
        let mut state = Box::new(builder(secret, prologue)?.build_responder()?);
        let payload = read(&mut state, message)?;
        Ok((Self(state), payload))
    }

    /// The second message, with `payload` in it, and the keys.
    pub fn finish(mut self, payload: &[u8]) -> Result<(Vec<u8>, Keys), Failed> {
        let message = write(&mut self.0, payload)?;
        let (receive, send) = self.0.dangerously_get_raw_split();
        Ok((message, Keys { send, receive }))
    }
}

fn builder<'a>(secret: &'a Secret, prologue: &'a [u8]) -> Result<Builder<'a>, Failed> {
    Ok(Builder::with_resolver(PATTERN.parse()?, Box::new(Resolver)).psk(0, secret)?.prologue(prologue)?)
}

/// Random numbers by a system call of our own, everything else by the library: in other people's programs nothing is looked
/// up in the C library.
struct Resolver;

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Kernel))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// The kernel's random numbers.
struct Kernel;

impl Random for Kernel {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        for chunk in bytes.chunks_mut(size_of::<Secret>()) {
            let fresh = fresh_nonce().map_err(|_| snow::Error::Rng)?;
            chunk.copy_from_slice(&fresh[..chunk.len()]);
        }
        Ok(())
    }
}

fn write(state: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, Failed> {
    let mut message = vec![0; payload.len() + MESSAGE_OVERHEAD];
    let len = state.write_message(payload, &mut message)?;
    message.truncate(len);
    Ok(message)
}

fn read(state: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, Failed> {
    let mut payload = vec![0; message.len()];
    let len = state.read_message(message, &mut payload)?;
    payload.truncate(len);
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: Secret = [7; 32];

    #[test]
    fn those_who_know_the_secret_come_to_the_same_keys() {
        let (client, first) = Initiator::begin(&SECRET, b"about this", b"hello").unwrap();
        let (server, hello) = Responder::begin(&SECRET, b"about this", &first).unwrap();
        let (second, server_keys) = server.finish(b"welcome").unwrap();
        let (welcome, client_keys) = client.finish(&second).unwrap();
        assert_eq!((hello.as_slice(), welcome.as_slice()), (&b"hello"[..], &b"welcome"[..]));
        assert_eq!((client_keys.send, client_keys.receive), (server_keys.receive, server_keys.send));
        assert_ne!(client_keys.send, client_keys.receive);
        let (_, again) = Initiator::begin(&SECRET, b"about this", b"hello").unwrap();
        assert_ne!(first, again, "each has numbers of its own");
        assert!(!first.windows(5).any(|five| five == b"hello"));
    }

    #[test]
    fn another_secret_another_subject_and_a_changed_message_fail() {
        let begin = || Initiator::begin(&SECRET, b"about this", b"hello").unwrap();
        let (_, first) = begin();
        assert_eq!(Responder::begin(&[8; 32], b"about this", &first).err(), Some(Failed));
        assert_eq!(Responder::begin(&SECRET, b"about that", &first).err(), Some(Failed));
        for at in 0..first.len() {
            let mut changed = first.clone();
            changed[at] ^= 1;
            assert_eq!(Responder::begin(&SECRET, b"about this", &changed).err(), Some(Failed), "{at}");
        }
        let (client, first) = begin();
        let (server, _) = Responder::begin(&SECRET, b"about this", &first).unwrap();
        let (mut second, _) = server.finish(b"welcome").unwrap();
        second[40] ^= 1;
        assert_eq!(client.finish(&second).err(), Some(Failed));
    }

    proptest! {
        #[test]
        fn any_message_is_read_or_refused(message in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Responder::begin(&SECRET, b"", &message).err(), Some(Failed));
            let (client, _) = Initiator::begin(&SECRET, b"", b"").unwrap();
            prop_assert_eq!(client.finish(&message).err(), Some(Failed));
        }
    }
}
