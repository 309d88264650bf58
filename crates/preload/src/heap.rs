//! Memory for this library's own code.
//!
//! A program's `malloc` may be anybody's: jemalloc's, tcmalloc's, a sanitizer's. Those call `open`, `readlink`, `mmap` with
//! their locks taken, and with that the hooks here; a hook that asked `malloc` for memory would wait for itself. So this
//! library has heaps of its own, of memory from the kernel. (What a program is given to free, such as the path of
//! `getcwd(NULL)`, comes from its `malloc`: [`crate::foreign::malloc_string`].)
//!
//! Nothing here waits. There are several heaps with a flag each, and who finds one taken takes the next: it may be taken by
//! another thread, by the code that this thread's signal handler has interrupted, or, after a fork, by a thread that is not
//! here. If all are taken, memory comes from the kernel directly. What is given back to a heap that is taken waits in
//! a list for whoever takes it next.

use dlmalloc::{Allocator, Dlmalloc};
use rustix::mm::{MapFlags, ProtFlags};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Enough for the threads that are inside at the same time; each that is ever used has at least 64 KiB of address space.
const HEAPS: usize = 8;
/// Instead of a heap's index: the block is a mapping of its own.
const MAPPED: usize = usize::MAX;
/// Attempts before a fork to take a heap that another thread is using. One that was not had is of no use to the child.
const ATTEMPTS_BEFORE_FORK_MAX: usize = 1_000;

#[global_allocator]
static MEMORY: Heaps = Heaps { all: [const { Heap::new() }; HEAPS], taken_before_fork: AtomicUsize::new(0) };

struct Heaps {
    all: [Heap; HEAPS],
    /// Those that the thread which forks has taken, a bit each.
    taken_before_fork: AtomicUsize,
}

struct Heap {
    is_taken: AtomicBool,
    /// Blocks that were given back while it was taken.
    given_back: AtomicPtr<Head>,
    memory: UnsafeCell<Dlmalloc<Pages>>,
}

// SAFETY: `memory` is touched only by who changed `is_taken` from false to true.
unsafe impl Sync for Heap {}

/// A heap taken by this thread, given back when dropped.
struct Taken<'a>(&'a Heap);

/// Before each block.
#[repr(C)]
struct Head {
    /// Index of the heap that it belongs to, or [`MAPPED`].
    heap: usize,
    /// The next one in the list of those given back.
    next: *mut Head,
}

/// The coarsest alignment that there is memory with: that of a mapping.
const ALIGN_MAX: usize = 4096;

/// The least distance between a block's head and what the caller sees.
const HEAD_LEN: usize = size_of::<Head>();
const _: () = assert!(HEAD_LEN == 16);

impl Heap {
    const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            given_back: AtomicPtr::new(null_mut()),
            memory: UnsafeCell::new(Dlmalloc::new_with_allocator(Pages)),
        }
    }

    fn take(&self) -> Option<Taken<'_>> {
        let was_taken = self.is_taken.load(Ordering::Relaxed) || self.is_taken.swap(true, Ordering::Acquire);
        (!was_taken).then(|| Taken(self))
    }

    fn give_back_later(&self, block: *mut Head) {
        let mut first = self.given_back.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller gives the block up, so nobody else looks at its head.
            unsafe { (*block).next = first };
            match self.given_back.compare_exchange_weak(first, block, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }
}

impl Taken<'_> {
    fn memory(&mut self) -> &mut Dlmalloc<Pages> {
        // SAFETY: taken by this thread, and `&mut self` hands out one reference at a time.
        unsafe { &mut *self.0.memory.get() }
    }

    fn allocate(&mut self, len: usize, align: usize) -> *mut u8 {
        let mut block = self.0.given_back.swap(null_mut(), Ordering::Acquire);
        while !block.is_null() {
            // SAFETY: a block of this heap that was given up; its head is read before it goes.
            block = unsafe {
                let next = (*block).next;
                self.free(block);
                next
            };
        }
        // SAFETY: the length is not 0 and the alignment a power of two: see `Heaps::alloc`.
        unsafe { self.memory().c_memalign(align, len) }
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// It is of this heap, and nobody uses it any more.
    unsafe fn free(&mut self, block: *mut Head) {
        // SAFETY: the caller's promise.
        unsafe { self.memory().c_free(block.cast()) };
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
    }
}

impl Heaps {
    /// The heap to look at first, by the address of the stack: threads have different stacks, and so mostly different heaps.
    fn first() -> usize {
        let on_the_stack = 0u8;
        ((&raw const on_the_stack) as usize >> 12) % HEAPS
    }

    /// A block that begins with its head; null if there is no memory.
    fn block(&self, len: usize, align: usize) -> *mut u8 {
        let first = Self::first();
        for heap in (0..HEAPS).map(|more| (first + more) % HEAPS) {
            if let Some(mut taken) = self.all[heap].take() {
                return with_head(taken.allocate(len, align), heap);
            }
        }
        with_head(map(len), MAPPED)
    }
}

fn with_head(block: *mut u8, heap: usize) -> *mut u8 {
    if !block.is_null() {
        // SAFETY: fresh memory, longer than a head and aligned for it.
        unsafe { block.cast::<Head>().write(Head { heap, next: null_mut() }) };
    }
    block
}

/// From the head of a block to what the caller sees.
fn distance(layout: Layout) -> usize {
    layout.align().max(HEAD_LEN)
}

// SAFETY: blocks are as long and aligned as asked for, and each is given to one caller until it gives it back.
unsafe impl GlobalAlloc for Heaps {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let distance = distance(layout);
        let Some(len) = layout.size().checked_add(distance).filter(|_| distance <= ALIGN_MAX) else {
            return null_mut();
        };
        let block = self.block(len, distance);
        // SAFETY: the block is longer than that.
        if block.is_null() { block } else { unsafe { block.add(distance) } }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        let distance = distance(layout);
        // SAFETY: `alloc` put the head there.
        let (block, heap) = unsafe {
            let block = place.sub(distance).cast::<Head>();
            (block, (*block).heap)
        };
        let Some(heap) = self.all.get(heap) else {
            // SAFETY: a mapping of its own, of this length, and nobody uses it any more.
            unsafe { unmap(block.cast(), layout.size() + distance) };
            return;
        };
        match heap.take() {
            // SAFETY: a block of this heap, which the caller gives up.
            Some(mut taken) => unsafe { taken.free(block) },
            None => heap.give_back_later(block),
        }
    }
}

/// Before a fork: takes the heaps, so that the child can use them.
pub fn lock_before_fork() {
    let mut taken = 0;
    for (index, heap) in MEMORY.all.iter().enumerate() {
        // A heap is in use for moments only, unless a signal handler has interrupted its user and does not return, or forks
        // itself: so waiting is bounded.
        for _ in 0..ATTEMPTS_BEFORE_FORK_MAX {
            if let Some(heap) = heap.take() {
                std::mem::forget(heap);
                taken |= 1 << index;
                break;
            }
            rustix::thread::sched_yield();
        }
    }
    MEMORY.taken_before_fork.store(taken, Ordering::Relaxed);
}

/// See [`lock_before_fork`].
pub fn unlock_after_fork() {
    let taken = MEMORY.taken_before_fork.swap(0, Ordering::Relaxed);
    for (index, heap) in MEMORY.all.iter().enumerate() {
        if taken & 1 << index != 0 {
            drop(Taken(heap));
        }
    }
}

fn map(len: usize) -> *mut u8 {
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let memory =
        unsafe { rustix::mm::mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
    memory.ok().and_then(|memory| NonNull::new(memory.cast())).map_or(null_mut(), NonNull::as_ptr)
}

/// # Safety
/// The caller made the mapping, and nobody uses it any more.
unsafe fn unmap(memory: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { rustix::mm::munmap(memory.cast(), len) }.is_ok()
}

/// Where the heaps get their memory: from the kernel, by direct system calls.
struct Pages;

// SAFETY: regions are fresh mappings, which nobody else knows.
unsafe impl Allocator for Pages {
    fn alloc(&self, len: usize) -> (*mut u8, usize, u32) {
        (map(len), len, 0)
    }

    fn remap(&self, _memory: *mut u8, _len: usize, _new_len: usize, _can_move: bool) -> *mut u8 {
        null_mut()
    }

    fn free_part(&self, memory: *mut u8, len: usize, new_len: usize) -> bool {
        // SAFETY: the end of a region that the heap gives up.
        unsafe { unmap(memory.add(new_len), len - new_len) }
    }

    fn free(&self, memory: *mut u8, len: usize) -> bool {
        // SAFETY: a region that the heap gives up.
        unsafe { unmap(memory, len) }
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        // SAFETY: no precondition. `rustix` may need memory to find out.
        unsafe { libc::getauxval(libc::AT_PAGESZ) as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heaps() -> Heaps {
        Heaps { all: [const { Heap::new() }; HEAPS], taken_before_fork: AtomicUsize::new(0) }
    }

    fn layout(len: usize, align: usize) -> Layout {
        Layout::from_size_align(len, align).unwrap()
    }

    fn filled(heaps: &Heaps, layout: Layout, byte: u8) -> *mut u8 {
        // SAFETY: lengths in these tests are not 0, and the memory is as long as asked for.
        unsafe {
            let memory = heaps.alloc(layout);
            assert!(!memory.is_null() && memory.addr().is_multiple_of(layout.align()), "{layout:?}");
            memory.write_bytes(byte, layout.size());
            memory
        }
    }

    fn give_back(heaps: &Heaps, memory: *mut u8, layout: Layout, byte: u8) {
        // SAFETY: from `filled` with this layout, given back once.
        unsafe {
            assert!(std::slice::from_raw_parts(memory, layout.size()).iter().all(|found| *found == byte));
            heaps.dealloc(memory, layout);
        }
    }

    #[test]
    fn blocks_are_aligned_and_apart() {
        let heaps = heaps();
        let layouts = [(1, 1), (24, 8), (40, 16), (100, 64), (5000, 4096), (70_000, 1), (1 << 20, 32)];
        for round in 0..3 {
            let all: Vec<_> = (0u8..).zip(layouts.repeat(20)).collect();
            let made = all.iter().map(|(byte, (len, align))| filled(&heaps, layout(*len, *align), *byte));
            let made: Vec<_> = made.collect();
            for (memory, (byte, (len, align))) in made.iter().zip(&all) {
                give_back(&heaps, *memory, layout(*len, *align), *byte);
            }
            assert!(!heaps.all.iter().any(|heap| heap.is_taken.load(Ordering::Relaxed)), "round {round}");
        }
        // SAFETY: the length is not 0.
        assert!(unsafe { heaps.alloc(layout(1, 2 * ALIGN_MAX)) }.is_null(), "coarser than a page");
    }

    /// As in a signal handler that interrupted the only thread inside, and in the child of a fork of the others.
    #[test]
    fn nobody_waits_for_a_heap_that_is_taken() {
        let (heaps, small) = (heaps(), layout(100, 8));
        let before = filled(&heaps, small, 1);
        let taken: Vec<_> = heaps.all.iter().map(|heap| heap.take().unwrap()).collect();
        let meanwhile = filled(&heaps, small, 2);
        give_back(&heaps, before, small, 1);
        give_back(&heaps, meanwhile, small, 2);
        drop(taken);
        assert_eq!(heaps.all.iter().filter(|heap| !heap.given_back.load(Ordering::Relaxed).is_null()).count(), 1);
        for heap in &heaps.all {
            assert!(!heap.take().unwrap().allocate(64, HEAD_LEN).is_null());
            assert!(heap.given_back.load(Ordering::Relaxed).is_null(), "taken back");
        }
    }

    #[test]
    fn threads_give_back_what_others_took() {
        let (heaps, small) = (heaps(), layout(256, 8));
        let (heaps, (send, receive)) = (&heaps, std::sync::mpsc::channel());
        std::thread::scope(|scope| {
            for byte in 0..4 {
                let send = send.clone();
                scope.spawn(move || {
                    for _ in 0..5_000 {
                        send.send((filled(heaps, small, byte).expose_provenance(), byte)).unwrap();
                    }
                });
            }
            drop(send);
            for (memory, byte) in receive {
                give_back(heaps, std::ptr::with_exposed_provenance_mut(memory), small, byte);
            }
        });
    }
}
