//! The sessions of one process with servers that it came to need. None is taken away before the process ends or the client
//! is dropped, so that finding one takes no lock, which a `fork` could leave locked in the child.

use crate::session::Session;
use isonomia_units::ServerId;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A list that grows at its head.
#[derive(Default)]
pub(crate) struct Sessions {
    head: AtomicPtr<Link>,
}

struct Link {
    server: ServerId,
    session: Session,
    next: *mut Link,
}

// SAFETY: links are shared, and only read, once they are in the list, and a session may be used by any thread.
unsafe impl Send for Sessions {}
// SAFETY: as above.
unsafe impl Sync for Sessions {}

impl Sessions {
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.links().map(|link| &link.session)
    }

    pub fn get(&self, server: ServerId) -> Option<&Session> {
        self.links().find(|link| link.server == server).map(|link| &link.session)
    }

    /// Adds a session, and gives the one that there is then: another thread may have added one at the same time.
    pub fn put(&self, server: ServerId, session: Session) -> &Session {
        let link = Box::into_raw(Box::new(Link { server, session, next: ptr::null_mut() }));
        loop {
            let head = self.head.load(Ordering::Acquire);
            if let Some(there) = self.get(server) {
                // SAFETY: it was made above, and is not in the list.
                drop(unsafe { Box::from_raw(link) });
                return there;
            }
            // SAFETY: as above; nobody else knows of it.
            unsafe { (*link).next = head };
            if self.head.compare_exchange(head, link, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                // SAFETY: in the list it lives as long as `self`.
                return unsafe { &(*link).session };
            }
        }
    }

    fn links(&self) -> impl Iterator<Item = &Link> {
        let mut next = self.head.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: every link in the list was made by `put`, does not change any more, and lives as long as `self`.
            let link = unsafe { next.as_ref() }?;
            next = link.next;
            Some(link)
        })
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        let mut next = *self.head.get_mut();
        while !next.is_null() {
            // SAFETY: each link was made by `put` and is freed once, here, when nobody has a reference to the list any more.
            next = unsafe { Box::from_raw(next) }.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Conduct;
    use crate::{Claims, ClientConfig};
    use isonomia_units::Nanos;
    use std::sync::Arc;

    fn session(number: u16) -> Session {
        let config = ClientConfig {
            addresses: vec!["unix:/nonexistent".parse().unwrap()],
            timeout: Nanos(1),
            claims: Claims::default(),
            key_file: None,
        };
        let conduct = Conduct::default();
        Session::new(config.addresses.clone(), Some(ServerId(number)), Arc::new(config), conduct)
    }

    #[test]
    fn threads_that_add_the_same_session_get_one() {
        let sessions = Sessions::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..50 {
                        let put = sessions.put(ServerId(number), session(number));
                        assert_eq!(put.server(), Some(ServerId(number)));
                        assert!(ptr::eq(put, sessions.get(ServerId(number)).unwrap()));
                    }
                });
            }
        });
        assert_eq!(sessions.iter().count(), 50);
        assert!(sessions.get(ServerId(50)).is_none());
    }
}
