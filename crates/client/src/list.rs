//! A list that only grows. Nothing is taken away before the list is dropped, so that finding something takes no lock,
//! which a `fork` could leave locked in the child.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// See the module.
pub(crate) struct List<T> {
    head: AtomicPtr<Link<T>>,
}

struct Link<T> {
    item: T,
    next: *mut Link<T>,
}

// SAFETY: links are shared, and only read, once they are in the list.
unsafe impl<T: Send + Sync> Send for List<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for List<T> {}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl<T> List<T> {
    /// What was added, the last first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let mut next = self.head.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: every link in the list was made by `add`, does not change any more, and lives as long as `self`.
            let link = unsafe { next.as_ref() }?;
            next = link.next;
            Some(&link.item)
        })
    }

    /// Whether nothing was added yet.
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire).is_null()
    }

    /// Adds an item, unless `there` finds one instead of it: another thread may have added that at the same time. Gives the
    /// one that there is then.
    pub fn add<'a>(&'a self, item: T, there: impl Fn(&'a Self) -> Option<&'a T>) -> &'a T {
        let link = Box::into_raw(Box::new(Link { item, next: ptr::null_mut() }));
        loop {
            let head = self.head.load(Ordering::Acquire);
            if let Some(there) = there(self) {
                // SAFETY: it was made above, and is not in the list.
                drop(unsafe { Box::from_raw(link) });
                return there;
            }
            // SAFETY: as above; nobody else knows of it.
            unsafe { (*link).next = head };
            if self.head.compare_exchange(head, link, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                // SAFETY: in the list it lives as long as `self`.
                return unsafe { &(*link).item };
            }
        }
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        let mut next = *self.head.get_mut();
        while !next.is_null() {
            // SAFETY: each link was made by `add` and is freed once, here, when nobody has a reference to the list any more.
            next = unsafe { Box::from_raw(next) }.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_add_the_same_item_get_one() {
        let list = List::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..50 {
                        let added = list.add(number, |list| list.iter().find(|known| **known == number));
                        assert!(list.iter().any(|item| std::ptr::eq(item, added)));
                    }
                });
            }
        });
        let mut all: Vec<u32> = list.iter().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..50).collect::<Vec<u32>>());
        assert!(!list.is_empty());
    }
}
