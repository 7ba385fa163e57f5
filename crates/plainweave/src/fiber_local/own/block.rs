//! A block: creating, recycling and ending it. The steps are those of the essay in
//! `fiber_local/mod.rs`.

#![expect(
    unsafe_code,
    reason = "writes a thread's descriptor; calls glibc's own functions"
)]

use std::cell::Cell;
use std::collections::BinaryHeap;
use std::ffi::c_void;
use std::hint::black_box;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::base;
use super::glibc::{
    FEATURE_1, Glibc, KEYS_A_LEVEL, LEVELS, MULTIPLE_THREADS, MallocCache, POINTER_GUARD, SELF,
    STACK_GUARD, TCB, generation, is_arena, is_behind_heap_start, word,
};

/// The first thread number above those that the kernel assigns.
const FIRST_NUMBER: u32 = 1 << 22;
/// The end of the numbers: glibc's locks have room for 30 bits.
const END_OF_NUMBERS: u32 = 1 << 30;
/// The number of rounds of destructors, for values that destructors have set; glibc uses the same
/// figure.
const ROUNDS: usize = 4;
/// The content of a thread's restartable-sequence area before it is registered.
const RSEQ_UNINITIALISED: u32 = u32::MAX;
/// The stack size of the thread that ends a block: it runs only glibc's code.
const END_STACK: usize = 64 * 1024;

/// Numbers for blocks: the lowest never used, and those below it that were given back.
static NUMBERS: Mutex<(u32, BinaryHeap<u32>)> = Mutex::new((FIRST_NUMBER, BinaryHeap::new()));

/// The word that points to a thread's cache of the allocator, if there is one; looked for by the
/// first worker.
static MALLOC_CACHE: OnceLock<Option<MallocCache>> = OnceLock::new();

/// Where the byte is that says whether there are values of pthread keys, if it was found; looked
/// for by the first worker.
static VALUES_USED: OnceLock<Option<usize>> = OnceLock::new();

/// Storage for one fiber, in use or free. Owned: its owner may run on it, one at a time.
#[derive(Debug)]
pub(crate) struct Block {
    base: NonNull<u8>,
    number: u32,
    /// It was lent an arena, and has attached itself to none.
    has_lent_arena: Cell<bool>,
}

// SAFETY: memory that nobody else refers to; glibc allocates and frees it on any thread.
unsafe impl Send for Block {}

impl Block {
    /// Creates a block: steps 1 to 3.
    ///
    /// # Errors
    /// No memory, or 2^30 blocks exist; the platform cannot have them.
    pub(crate) fn new() -> io::Result<Self> {
        Self::create(Glibc::get()?)
    }

    fn create(glibc: &Glibc) -> io::Result<Self> {
        let number = take_number()?;
        // SAFETY: null asks for memory.
        let Some(base) = NonNull::new(unsafe { (glibc.allocate)(ptr::null_mut()) }.cast::<u8>())
        else {
            put_number(number);
            return Err(io::ErrorKind::OutOfMemory.into());
        };

        let block = Self {
            base,
            number,
            has_lent_arena: Cell::new(false),
        };
        // SAFETY: a new block that nobody runs on.
        unsafe { block.initialise(glibc) };
        Ok(block)
    }

    /// Returns the block's address, the value of the register.
    #[inline]
    pub(crate) fn base(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// # Safety
    /// `offset` leads to a place for a `T` in this block.
    unsafe fn at<T>(&self, offset: isize) -> *mut T {
        // SAFETY: the caller's promise.
        unsafe { self.base.as_ptr().offset(offset).cast() }
    }

    /// # Safety
    /// As for `at`.
    unsafe fn put<T>(&self, offset: usize, value: T) {
        // SAFETY: the caller's promise; these words are aligned.
        unsafe { self.at::<T>(offset as isize).write(value) };
    }

    /// # Safety
    /// The block is new, its descriptor zero.
    unsafe fn initialise(&self, glibc: &Glibc) {
        let here = base::base();
        let own = self.base();
        // SAFETY: offsets that `Glibc` has checked, or the ABI's; `here` is a living thread's
        // descriptor.
        unsafe {
            self.put(TCB, own);
            self.put(SELF, own);
            for offset in [STACK_GUARD, POINTER_GUARD] {
                self.put(
                    offset,
                    ptr::with_exposed_provenance::<usize>(here + offset).read(),
                );
            }

            for offset in [MULTIPLE_THREADS, FEATURE_1] {
                self.put(
                    offset,
                    ptr::with_exposed_provenance::<u32>(here + offset).read(),
                );
            }

            self.put(glibc.tid, self.number);
            self.put(glibc.list, [own + glibc.list; 2]);
            let robust = own + glibc.robust;
            let offset = ptr::with_exposed_provenance::<usize>(here + glibc.robust + 8).read();
            self.put(glibc.robust - 8, [robust, robust, offset, 0]);
            self.put(glibc.values, own + glibc.first_values);
            self.at::<usize>(glibc.resolver.0)
                .write(own + glibc.resolver.1);
            if let Some(rseq) = glibc.rseq {
                self.at::<[u32; 2]>(rseq).write([0, RSEQ_UNINITIALISED]);
            }
            base::on(own, || (glibc.ctype_init)());
        }
    }

    /// Lets the next fiber on the block allocate from the cache of free memory that the worker with
    /// this base has, and from its arena: glibc would give each block one of eight for each
    /// processor, and what is still needed in each keeps pages that could be given back.
    ///
    /// Context: that worker, each time before it resumes a fiber that ran elsewhere last, or
    /// nowhere.
    #[inline]
    pub(crate) fn lend_malloc_cache(&self, home: usize) {
        if let Some(Some(cache)) = MALLOC_CACHE.get() {
            // SAFETY: the word's place in each block and thread. The worker's cache lives until its
            // thread ends. Only code on this thread uses it: the worker's own or one of its fibers,
            // never two at once, because no fiber suspends within the allocator. A fiber that moves
            // gets the cache of its new worker first, and `Block::end` takes the loan back.
            unsafe {
                let lent =
                    ptr::with_exposed_provenance::<usize>(home.wrapping_add_signed(cache.offset))
                        .read();
                self.at::<usize>(cache.offset).write(lent);
            }
            self.lend_arena(cache, home);
        }
    }

    /// Lends the worker's arena, unless that is the main one: out of memory, glibc counts who
    /// leaves the main arena, and has not counted those that it was lent to.
    #[inline]
    fn lend_arena(&self, cache: &MallocCache, home: usize) {
        let Some(offset) = cache.arena else { return };
        // SAFETY: the word's place in each thread.
        let arena = unsafe { word(home.wrapping_add_signed(offset)) };
        // SAFETY: the same, in the block. A block that has attached itself to an arena keeps that,
        // or it would stay attached for good. Arenas are never freed, and may be used by any
        // number of threads, under their locks.
        unsafe {
            let place = self.at::<usize>(offset);
            let is_free = self.has_lent_arena.get() || place.read() == 0;
            if is_free && is_behind_heap_start(arena) {
                place.write(arena);
                self.has_lent_arena.set(true);
            }
        }
    }

    /// Performs step 6.
    ///
    /// Context: a worker, when the block's fiber has ended.
    pub(crate) fn reset(&mut self) {
        let Ok(glibc) = Glibc::get() else { return };
        // A dtv with the generation of the first blocks' knows no library that was loaded later,
        // and only such libraries attach anything to it: glibc writes a later generation there
        // first. SAFETY: a whole block.
        if glibc.dynamic || unsafe { generation(self.base()) } != glibc.generation {
            return self.reset_dynamic(glibc);
        }
        for module in &glibc.modules {
            // SAFETY: the module's place in every block; its image is mapped for good.
            unsafe {
                let place = self.at::<u8>(module.offset);
                place.copy_from_nonoverlapping(module.image, module.image_len);
                place
                    .add(module.image_len)
                    .write_bytes(0, module.len - module.image_len);
            }
        }
    }

    /// Does the same where libraries that were loaded later have thread-locals: the loader knows
    /// them all.
    #[cold]
    fn reset_dynamic(&mut self, glibc: &Glibc) {
        let len = (glibc.libc.end - glibc.libc.start) as usize;
        // SAFETY: nobody runs on the block. Given a block, `allocate` makes a new dtv and writes
        // all initial values; libc's own are kept, or its allocator's cache would be lost. Without
        // memory for a dtv it returns null, and nothing sensible can go on: the process ends as
        // `handle_alloc_error` ends it.
        unsafe {
            let libc = self.at::<u8>(glibc.libc.start);
            let kept = std::slice::from_raw_parts(libc, len).to_vec();
            (glibc.deallocate)(self.base.as_ptr().cast(), false);
            if (glibc.allocate)(self.base.as_ptr().cast()).is_null() {
                std::alloc::handle_alloc_error(std::alloc::Layout::new::<[usize; 64]>());
            }
            libc.copy_from_nonoverlapping(kept.as_ptr(), len);
        }
    }

    /// Performs step 7; slow.
    ///
    /// # Errors
    /// Returns the block itself if no thread is available.
    pub(crate) fn end(self) -> Result<(), Self> {
        let Ok(glibc) = Glibc::get() else {
            return Err(self);
        };
        // Not looked for yet: nothing was lent.
        if let Some(Some(cache)) = MALLOC_CACHE.get() {
            // SAFETY: the word's place; nobody runs on the block. A cache of its own it has had
            // only before the first fiber ran on it, and nothing allocates there then.
            unsafe { self.at::<usize>(cache.offset).write(cache.none) };
            if let Some(offset) = cache.arena.filter(|_| self.has_lent_arena.get()) {
                // SAFETY: the same. The thread that ends on it would be counted as leaving it.
                unsafe { self.at::<usize>(offset).write(0) };
            }
        }
        self.end_with_its_cache(glibc)
    }

    fn end_with_its_cache(self, glibc: &Glibc) -> Result<(), Self> {
        if !wear_out(self.base()) {
            return Err(self);
        }
        // SAFETY: made by `allocate`; nobody runs on it.
        unsafe { (glibc.deallocate)(self.base.as_ptr().cast(), true) };
        put_number(self.number);
        Ok(())
    }
}

/// Allocates and frees a little memory, which leaves it in the calling thread's cache. Returns its
/// address.
///
/// Twice: an allocation that finds the cache's list empty may fill it with free memory of the same
/// size (glibc does so with what its arena holds), and then there is no room for what is freed
/// next. The second time the list has something to give, and room to take it back.
#[inline(never)]
fn use_malloc_cache() -> usize {
    let once = || {
        // SAFETY: freed once; black boxes, lest the compiler removes both calls.
        unsafe {
            let memory = black_box(libc::malloc(black_box(24)));
            let address = memory.addr();
            libc::free(memory);
            address
        }
    };

    once();
    once()
}

/// Returns the calling worker's base, for [`Block::lend_malloc_cache`], after it has got itself a
/// cache to lend.
pub(crate) fn base_of_worker() -> usize {
    use_malloc_cache();
    MALLOC_CACHE.get_or_init(|| find_malloc_cache(Glibc::get().ok()?));
    VALUES_USED.get_or_init(|| find_values_used(Glibc::get().ok()?));
    base::base()
}

/// Finds the byte that says whether a thread has had values of pthread keys (`specific_used`):
/// behind the pointers to the arrays, and set by the first value. `None` if it is elsewhere.
fn find_values_used(glibc: &Glibc) -> Option<usize> {
    let offset = glibc.values + LEVELS * size_of::<usize>();
    let block = Block::create(glibc).ok()?;
    // SAFETY: within the descriptor, which goes on behind these pointers.
    let used = || unsafe { block.at::<u8>(offset as isize).read_volatile() };
    let mut key = 0;
    // SAFETY: a place for the key, which has no destructor and is used by nobody else. The block is
    // whole, and the function calls nothing that panics.
    let is_it = unsafe {
        libc::pthread_key_create(&mut key, None) == 0 && {
            let before = used();
            base::on(block.base(), || {
                libc::pthread_setspecific(key, ptr::without_provenance(1))
            });
            let after = used();
            base::on(block.base(), || libc::pthread_setspecific(key, ptr::null()));
            libc::pthread_key_delete(key);
            (before, after) == (0, 1)
        }
    };

    // If no thread can be had, some hundred bytes are lost, once.
    let _ = block.end_with_its_cache(glibc);
    is_it.then_some(offset)
}

/// Finds the pointer to a thread's cache of free memory. A block shows it: of libc's thread-locals
/// it is the one that the block's first allocation sets and that then leads to the memory freed
/// last. `None` if there is no such word (another allocator in libc's place, no cache by
/// `GLIBC_TUNABLES`), or if this thread's is elsewhere.
fn find_malloc_cache(glibc: &Glibc) -> Option<MallocCache> {
    /// As much of what the word leads to as is searched: the head of `tcache_perthread_struct`,
    /// where the lists of the smallest sizes begin. Whatever else the allocator sets there on first
    /// use, an arena, is larger.
    const SEARCHED: usize = 256;
    /// Nothing is mapped below (`vm.mmap_min_addr`).
    const LOWEST: usize = 1 << 16;
    let block = Block::create(glibc).ok()?;
    let words = || {
        // SAFETY: libc's thread-locals in the block.
        glibc
            .libc
            .clone()
            .step_by(8)
            .map(|offset| unsafe { (offset, block.at::<usize>(offset).read_unaligned()) })
    };

    // SAFETY: what is a pointer of the allocator's leads to a live object of at least this size.
    // That the word is one, and no count, is what glibc's thread-locals are known to hold; a small
    // number, as a count would be, is left out.
    let leads_to = |start: usize, address| unsafe {
        start >= LOWEST
            && (0..SEARCHED)
                .step_by(8)
                .any(|offset| word(start + offset) == address)
    };

    let before: Vec<_> = words().collect();
    // SAFETY: a whole block; the function is not inlined and does not panic.
    let freed = unsafe { base::on(block.base(), use_malloc_cache) };
    let found = before
        .iter()
        .zip(words())
        .find_map(|(&(offset, none), (_, now))| {
            (now != none && now % 16 == 0 && leads_to(now, freed)).then_some(MallocCache {
                offset,
                none,
                arena: None,
            })
        });
    // Of libc's thread-locals it is the one that was nothing and is an arena now.
    let arena = before
        .iter()
        .zip(words())
        .find_map(|(&(offset, none), (_, now))| {
            // SAFETY: a pointer of libc's leads to something that is mapped; a number that looks
            // like the beginning of a heap is none of what its thread-locals hold.
            (none == 0 && unsafe { is_arena(now) }).then_some(offset)
        });

    // If no thread can be had, some hundred bytes are lost, once.
    let _ = block.end_with_its_cache(glibc);
    let freed = use_malloc_cache();
    // SAFETY: a word of this thread's.
    let own = |cache: &MallocCache| unsafe { word(base::base().wrapping_add_signed(cache.offset)) };
    found
        .filter(|cache| own(cache) != cache.none && leads_to(own(cache), freed))
        .map(|cache| MallocCache { arena, ..cache })
}

fn take_number() -> io::Result<u32> {
    let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(number) = numbers.1.pop() {
        return Ok(number);
    }
    if numbers.0 == END_OF_NUMBERS {
        return Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            "there are no numbers left for thread-local storage",
        ));
    }

    numbers.0 += 1;
    Ok(numbers.0 - 1)
}

fn put_number(number: u32) {
    NUMBERS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .1
        .push(number);
}

/// Creates a thread that switches to the block and ends, and waits for it. Returns false if no
/// thread is available.
fn wear_out(base: usize) -> bool {
    extern "C" fn wear(base: *mut c_void) -> *mut c_void {
        // SAFETY: a whole block that nobody uses. The thread ends on it. glibc finds what it frees
        // through the base, and the thread itself by a pointer of its own, so it frees the block's.
        // Nothing of the thread's own was used before.
        unsafe { base::set(base.expose_provenance()) };
        ptr::null_mut()
    }
    // SAFETY: plain calls in the order that they prescribe; the thread is joined.
    unsafe {
        let mut attributes = std::mem::zeroed();
        let mut thread = 0;
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, END_STACK);
        let argument = ptr::with_exposed_provenance_mut(base);
        let made = libc::pthread_create(&mut thread, &attributes, wear, argument) == 0;

        libc::pthread_attr_destroy(&mut attributes);
        made && libc::pthread_join(thread, ptr::null_mut()) == 0
    }
}

/// Performs step 5 for a fiber on storage of its own.
///
/// Context: that fiber, at its end; may suspend.
pub(crate) fn end_of_fiber() {
    let Ok(glibc) = Glibc::get() else { return };
    let again = || {
        // SAFETY: on the fiber's own storage, as on a thread that ends.
        unsafe { (glibc.call_tls_dtors)() };
        destroy_values(glibc)
    };

    if (0..ROUNDS).all(|_| again()) {
        forget_values(glibc);
    }
    /// glibc's name for the process's locale.
    const GLOBAL: libc::locale_t = ptr::without_provenance_mut(usize::MAX);
    // SAFETY: a valid locale.
    unsafe { libc::uselocale(GLOBAL) };
}

/// Calls the destructors of pthread keys for the calling fiber's values. Returns whether there were
/// any.
fn destroy_values(glibc: &Glibc) -> bool {
    let own = base::base();
    if let Some(Some(offset)) = VALUES_USED.get() {
        let used = ptr::with_exposed_provenance_mut::<u8>(own + offset);
        // Most fibers have no values, and the arrays are half a kilobyte. Cleared before the
        // destructors run, as glibc does: they may set values again. SAFETY: a byte of the
        // descriptor, which only this fiber uses.
        unsafe {
            if used.read() == 0 {
                return false;
            }
            used.write(0);
        }
    }
    // SAFETY: the descriptor's arrays, the second of pointers that are null or lead to arrays as
    // the first; nobody else writes there, and this fiber does not before the references have been
    // used for the last time.
    let (first, levels) = unsafe {
        (
            &*ptr::with_exposed_provenance::<[[usize; 2]; KEYS_A_LEVEL]>(own + glibc.first_values),
            &*ptr::with_exposed_provenance::<[usize; LEVELS]>(own + glibc.values),
        )
    };

    // A branch per place cost a fiber without values 80 ns more.
    let [_, values] = first
        .iter()
        .fold([0; 2], |all, pair| [all[0] | pair[0], all[1] | pair[1]]);
    let further = levels[1..].iter().fold(0, |all, array| all | array);
    values | further != 0
        && (0..LEVELS).fold(false, |any, level| destroy_level(glibc, own, level) | any)
}

/// Clears what destructors have set in the last round, as glibc does: the next fiber on this block
/// has no values.
#[cold]
fn forget_values(glibc: &Glibc) {
    let own = base::base();
    if let Some(Some(offset)) = VALUES_USED.get() {
        // SAFETY: as in `destroy_values`.
        unsafe { ptr::with_exposed_provenance_mut::<u8>(own + offset).write(0) };
    }
    for level in 0..LEVELS {
        // SAFETY: a word of the descriptor: null, or an array of that many pairs, which only this
        // fiber uses.
        unsafe {
            let array =
                ptr::with_exposed_provenance::<usize>(own + glibc.values + level * 8).read();
            if array != 0 {
                ptr::with_exposed_provenance_mut::<[usize; 2]>(array).write_bytes(0, KEYS_A_LEVEL);
            }
        }
    }
}

fn destroy_level(glibc: &Glibc, own: usize, level: usize) -> bool {
    // SAFETY: a word of the descriptor: null, or an array of that many pairs.
    let array =
        unsafe { ptr::with_exposed_provenance::<usize>(own + glibc.values + level * 8).read() };
    if array == 0 {
        return false;
    }
    let mut any = false;

    for place in 0..KEYS_A_LEVEL {
        // SAFETY: as above.
        if unsafe { ptr::with_exposed_provenance::<usize>(array + place * 16 + 8).read() } != 0 {
            any |= destroy_value(glibc, level * KEYS_A_LEVEL + place);
        }
    }

    any
}

fn destroy_value(glibc: &Glibc, key: usize) -> bool {
    // SAFETY: a key's number; for one that is no longer in use, or a value of an earlier use, it
    // gives null.
    let value = unsafe { libc::pthread_getspecific(key as libc::pthread_key_t) };
    if value.is_null() {
        return false;
    }
    // SAFETY: as above; the destructor was given for such values.
    unsafe {
        libc::pthread_setspecific(key as libc::pthread_key_t, ptr::null());
        match glibc.destructor(key) {
            Some(destructor) => destructor(value),
            None => return false,
        }
    }

    true
}
