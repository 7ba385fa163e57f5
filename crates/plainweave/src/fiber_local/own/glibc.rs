//! What the blocks need of glibc: found at the first request, and checked against a living thread.
//!
//! Private symbols are looked up by name and version, so that a glibc without them is noticed.
//! Offsets into glibc's descriptor of a thread come from the tables that it exports for debuggers,
//! from the kernel (the robust list), or from public pointers into it. None is hard-coded here,
//! except for the head of the descriptor, which the platform's ABI fixes (base, dtv, base again,
//! and the two secrets).

#![expect(unsafe_code, reason = "looks symbols up and reads what they name")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

use super::base;
use crate::sys;

/// Offsets that the ABI of x86-64 fixes: compilers and the loader use them.
pub(super) const TCB: usize = 0;
pub(super) const DTV: usize = 0x08;
pub(super) const SELF: usize = 0x10;
/// Whether there is more than one thread, for old versions of glibc; shadow stacks.
pub(super) const MULTIPLE_THREADS: usize = 0x18;
pub(super) const FEATURE_1: usize = 0x48;
pub(super) const STACK_GUARD: usize = 0x28;
pub(super) const POINTER_GUARD: usize = 0x30;

type Destructor = unsafe extern "C" fn(*mut c_void);
type Allocate = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Deallocate = unsafe extern "C" fn(*mut c_void, bool);

/// The findings. Offsets are from the base.
#[derive(Debug)]
pub(super) struct Glibc {
    pub(super) allocate: Allocate,
    pub(super) deallocate: Deallocate,
    pub(super) call_tls_dtors: unsafe extern "C" fn(),
    pub(super) ctype_init: unsafe extern "C" fn(),
    /// The thread's number, 32 bits.
    pub(super) tid: usize,
    /// The links of the list of threads, two words.
    pub(super) list: usize,
    /// The head of the robust list: three words, behind a word that points to it.
    pub(super) robust: usize,
    /// The values of the first pthread keys, [`KEYS_A_LEVEL`] pairs of a number and a value.
    pub(super) first_values: usize,
    /// Pointers to arrays of the same, the first of which is `first_values`.
    pub(super) values: usize,
    /// The word that points to the resolver's state, below the base, and that state, above it.
    pub(super) resolver: (isize, usize),
    /// The restartable-sequence area, if glibc has one.
    pub(super) rseq: Option<isize>,
    /// libc's own thread-locals, below the base.
    pub(super) libc: Range<isize>,
    /// The thread-locals of all other modules that were loaded at start.
    pub(super) modules: Vec<Module>,
    /// Whether there were modules whose thread-locals hang off the dtv.
    pub(super) dynamic: bool,
    /// The generation of a new dtv: a dtv with another may know modules that were loaded since.
    pub(super) generation: usize,
    keys: *const Key,
}

/// The pointer to a thread's cache of free memory (`tcache`), one of libc's thread-locals.
#[derive(Clone, Copy, Debug)]
pub(super) struct MallocCache {
    /// Where it is, from the base.
    pub(super) offset: isize,
    /// Its value in a thread that has no cache yet.
    pub(super) none: usize,
    /// Where the pointer to the thread's arena is (`thread_arena`), if it was found; 0 in a thread
    /// that has none yet.
    pub(super) arena: Option<isize>,
}

/// Bytes of a heap of an arena, and what it is aligned to (`HEAP_MAX_SIZE`).
const HEAP: usize = 64 << 20;
/// More than what a heap begins with, before the arena in the first of them.
const HEAP_HEAD: usize = 256;

/// Returns whether this may be the address of an arena with heaps of its own: behind the beginning
/// of one. The main arena is none.
#[inline]
pub(super) fn is_behind_heap_start(arena: usize) -> bool {
    arena >= HEAP && (1..HEAP_HEAD).contains(&(arena % HEAP))
}

/// Returns whether this is such an arena.
///
/// # Safety
/// If it may be one, its page is mapped.
pub(super) unsafe fn is_arena(address: usize) -> bool {
    // The first word of a heap leads to its arena. SAFETY: it is in the same page.
    is_behind_heap_start(address) && unsafe { word(address - address % HEAP) } == address
}

/// The thread-locals of a module: their place and their initial values; the rest is zero.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) offset: isize,
    pub(super) image: *const u8,
    pub(super) image_len: usize,
    pub(super) len: usize,
}

/// A pthread key as glibc keeps it; checked by `probe_keys`.
#[repr(C)]
#[derive(Debug)]
struct Key {
    seq: usize,
    destructor: Option<Destructor>,
}

/// Keys whose values are in one array.
pub(super) const KEYS_A_LEVEL: usize = 32;
/// Arrays of values.
pub(super) const LEVELS: usize = 32;

// SAFETY: pointers to functions and to objects that are never unloaded: libc, the loader, the
// program, its libraries.
unsafe impl Send for Glibc {}
// SAFETY: as above; only `keys` points to changing data, and it is read as other threads read it.
unsafe impl Sync for Glibc {}

/// Returns whether fibers can have storage of their own; the error says why not.
pub(crate) fn available() -> io::Result<()> {
    Glibc::get().map(|_| ())
}

impl Glibc {
    /// Returns the findings; probes on the first call.
    pub(super) fn get() -> io::Result<&'static Self> {
        static FOUND: OnceLock<Result<Glibc, String>> = OnceLock::new();
        FOUND.get_or_init(find).as_ref().map_err(|why| {
            let message = format!(
                "fibers cannot have thread-local storage of their own here (glibc {}): {why}",
                version()
            );
            io::Error::new(io::ErrorKind::Unsupported, message)
        })
    }

    /// Returns the destructor of a key that is in use, if it has one.
    pub(super) fn destructor(&self, key: usize) -> Option<Destructor> {
        // SAFETY: fewer than the keys there are; glibc reads the entry without a lock, too.
        let key = unsafe { ptr::read_volatile(self.keys.add(key)) };
        // An odd number: in use.
        if key.seq % 2 == 1 {
            key.destructor
        } else {
            None
        }
    }
}

fn version() -> String {
    // SAFETY: a string that lives as long as the process.
    unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }
        .to_string_lossy()
        .into_owned()
}

fn find() -> Result<Glibc, String> {
    /// The kernel allows programs to write the base (Linux 5.9 on a processor from 2012 on).
    const FSGSBASE: u64 = 1 << 1;
    // SAFETY: no preconditions.
    if unsafe { libc::getauxval(libc::AT_HWCAP2) } & FSGSBASE == 0 {
        return Err("the kernel or the processor does not let programs write the base of thread-local storage \
                    (FSGSBASE; Linux 5.9 or newer does)"
            .to_owned());
    }
    // Probe on a thread that is not the main one, which differs in some respects.
    let thread = std::thread::Builder::new().name("plainweave-probe".into());
    let probe = sys::start_thread(thread, probe);
    let probe = probe.map_err(|error| format!("cannot start a thread to probe on: {error}"))?;
    probe
        .join()
        .unwrap_or_else(|_| Err("the probe panicked".to_owned()))
}

/// Returns the address of a private symbol.
fn private(name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: valid strings.
    let address =
        unsafe { libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), c"GLIBC_PRIVATE".as_ptr()) };
    if address.is_null() {
        Err(format!("it has no {}", name.to_string_lossy()))
    } else {
        Ok(address)
    }
}

/// Returns the offset in a debuggers' table entry, after checking the member's size in bits.
fn offset_of(name: &CStr, bits: u32) -> Result<usize, String> {
    // SAFETY: these symbols are arrays of three 32-bit words: size in bits, count, offset.
    let [found, _count, offset] = unsafe { private(name)?.cast::<[u32; 3]>().read() };
    if found != bits {
        return Err(format!(
            "{} has {found} bits, not {bits}",
            name.to_string_lossy()
        ));
    }
    Ok(offset as usize)
}

fn expect(holds: bool, what: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("{what} is not where it was expected"))
    }
}

/// # Safety
/// A word may be read there.
pub(super) unsafe fn word(address: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { ptr::read_volatile(ptr::with_exposed_provenance(address)) }
}

/// Probes glibc, on a thread that does nothing else.
fn probe() -> Result<Glibc, String> {
    let base = base::base();
    // SAFETY: the size is a 32-bit word.
    let size = unsafe { private(c"_thread_db_sizeof_pthread")?.cast::<u32>().read() } as usize;
    // SAFETY: the head of this thread's descriptor.
    let head = unsafe { [word(base + TCB), word(base + SELF)] };
    expect(
        head == [base; 2] && (1024..1 << 16).contains(&size),
        "the thread's descriptor",
    )?;
    expect(
        offset_of(c"_thread_db_pthread_dtvp", 64)? == DTV,
        "the table of dynamic thread-locals",
    )?;
    expect(
        offset_of(c"_thread_db_dtv_t_counter", 64)? == 0,
        "that table's generation",
    )?;
    let tid = offset_of(c"_thread_db_pthread_tid", 32)?;
    let list = offset_of(c"_thread_db_pthread_list", 128)?;
    expect(tid + 4 <= size && list + 16 <= size, "the thread's number")?;
    // SAFETY: within the descriptor; `gettid` has no preconditions.
    let (number, real) = unsafe { (word(base + tid) as u32, libc::gettid()) };
    expect(number == real as u32, "the thread's number")?;
    let resolver = probe_resolver(base, size)?;
    let (first_values, values, keys) = probe_keys(base, size)?;
    // SAFETY: the symbols are functions of these types, in every glibc that has them; arguments
    // that an older one does not know do not matter.
    unsafe {
        let allocate = std::mem::transmute::<*mut c_void, Allocate>(private(c"_dl_allocate_tls")?);
        let deallocate =
            std::mem::transmute::<*mut c_void, Deallocate>(private(c"_dl_deallocate_tls")?);
        // Before the modules are examined: one that is loaded in between then counts as loaded
        // later.
        let generation = probe_generation(allocate, deallocate)?;
        let (libc, modules, dynamic) = probe_modules(base)?;
        Ok(Glibc {
            allocate,
            deallocate,
            call_tls_dtors: std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(private(
                c"__call_tls_dtors",
            )?),
            ctype_init: std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(private(
                c"__ctype_init",
            )?),
            tid,
            list,
            robust: probe_robust(base, size)?,
            first_values,
            values,
            resolver,
            rseq: probe_rseq(),
            libc,
            modules,
            dynamic,
            generation,
            keys,
        })
    }
}

/// Returns the generation of the dtv, which says which modules it knows.
///
/// # Safety
/// The base of a block, or of a thread.
pub(super) unsafe fn generation(base: usize) -> usize {
    // SAFETY: the descriptor's word leads to the dtv, which begins with its generation.
    unsafe { word(word(base + DTV)) }
}

/// # Safety
/// The loader's functions.
unsafe fn probe_generation(allocate: Allocate, deallocate: Deallocate) -> Result<usize, String> {
    // SAFETY: null asks for memory, which is given back unused.
    unsafe {
        let block = allocate(ptr::null_mut());
        if block.is_null() {
            return Err("there is no memory to probe with".to_owned());
        }
        let generation = generation(block.expose_provenance());
        deallocate(block, true);
        Ok(generation)
    }
}

/// Finds the robust list's head: the kernel knows where a thread's list is.
fn probe_robust(base: usize, size: usize) -> Result<usize, String> {
    let mut head = 0usize;
    let mut len = 0usize;
    // SAFETY: two words to write to.
    let said = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &mut head, &mut len) };
    let inside = said == 0 && len == 24 && (base + 8..base + size).contains(&head);
    expect(inside, "the list of robust locks")?;
    // SAFETY: within the descriptor. Empty: the head points to itself, and so does the word before.
    let empty = unsafe { word(head) == head && word(head - 8) == head };
    expect(empty, "the list of robust locks")?;
    Ok(head - base)
}

/// Finds the resolver's state: a thread that is not the main one has it in its descriptor.
fn probe_resolver(base: usize, size: usize) -> Result<(isize, usize), String> {
    let pointer = private(c"__resp")?.addr();
    expect(
        pointer < base && base - pointer < 1 << 20,
        "the resolver's pointer",
    )?;
    // SAFETY: a thread-local word.
    let state = unsafe { word(pointer) };
    expect((base..base + size).contains(&state), "the resolver's state")?;
    Ok((pointer.wrapping_sub(base) as isize, state - base))
}

/// Finds the values and destructors of keys, with a key of its own.
fn probe_keys(base: usize, size: usize) -> Result<(usize, usize, *const Key), String> {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let values = offset_of(c"_thread_db_pthread_specific", (LEVELS * 64) as u32)?;
    let keys = private(c"__pthread_keys")?.cast::<Key>().cast_const();
    let destructor = offset_of(c"_thread_db_pthread_key_struct_destr", 64)?;
    let seq = offset_of(c"_thread_db_pthread_key_struct_seq", 64)?;
    // SAFETY: the size is a 32-bit word.
    let key_size = unsafe {
        private(c"_thread_db_sizeof_pthread_key_struct")?
            .cast::<u32>()
            .read()
    } as usize;
    expect(
        (seq, destructor, key_size) == (0, 8, 16),
        "the table of keys",
    )?;
    let first = values.wrapping_sub(KEYS_A_LEVEL * 16);
    expect(
        first < size && values + LEVELS * 8 <= size,
        "the values of keys",
    )?;
    let mut key = 0;
    // SAFETY: a place for the key; a function that lives as long as the process.
    if unsafe { libc::pthread_key_create(&mut key, Some(nothing)) } != 0 {
        return Err("there is no pthread key left to probe with".to_owned());
    }
    let mark = ptr::from_mut(&mut key).cast::<c_void>();
    // SAFETY: the key is valid; offsets are within the descriptor and, for a key of a later level,
    // its array.
    let found = unsafe {
        libc::pthread_setspecific(key, mark);
        let level = key as usize / KEYS_A_LEVEL;
        let place = key as usize % KEYS_A_LEVEL;
        let array = if level == 0 {
            base + first
        } else {
            word(base + values + level * 8)
        };
        let value = word(array + place * 16 + 8);
        libc::pthread_setspecific(key, ptr::null());
        let entry = ptr::read_volatile(keys.add(key as usize));
        let known = entry
            .destructor
            .is_some_and(|d| ptr::fn_addr_eq(d, nothing as Destructor));
        value == mark.addr() && known && entry.seq % 2 == 1 && word(base + values) == base + first
    };
    // SAFETY: as above.
    unsafe { libc::pthread_key_delete(key) };
    expect(found, "the values of keys")?;
    Ok((first, values, keys))
}

/// Finds the restartable-sequence area, which is public since glibc 2.35.
fn probe_rseq() -> Option<isize> {
    // SAFETY: a valid string; the symbol is a `ptrdiff_t`.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
        offset.cast::<isize>().as_ref().copied()
    }
}

/// The result of `probe_modules`.
struct Gathered {
    base: usize,
    errno: usize,
    libc: Option<Range<isize>>,
    modules: Vec<Module>,
    dynamic: bool,
}

fn probe_modules(base: usize) -> Result<(Range<isize>, Vec<Module>, bool), String> {
    // SAFETY: no preconditions.
    let errno = unsafe { libc::__errno_location() }.addr();
    let mut gathered = Gathered {
        base,
        errno,
        libc: None,
        modules: Vec::new(),
        dynamic: false,
    };
    // SAFETY: `gather` takes its last argument for this type.
    unsafe { libc::dl_iterate_phdr(Some(gather), ptr::from_mut(&mut gathered).cast()) };
    let libc = gathered
        .libc
        .ok_or_else(|| "its own thread-locals were not found".to_owned())?;
    Ok((libc, gathered.modules, gathered.dynamic))
}

unsafe extern "C" fn gather(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: valid for the call; `data` is what `probe_modules` gave.
    let (info, found) = unsafe { (&*info, &mut *data.cast::<Gathered>()) };
    if info.dlpi_tls_modid == 0 {
        return 0;
    }
    // SAFETY: the module's program headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    for header in headers
        .iter()
        .filter(|h| h.p_type == libc::PT_TLS && h.p_memsz > 0)
    {
        let start = info.dlpi_tls_data.addr();
        let len = header.p_memsz as usize;
        // Static ones lie below the base; 1 MiB is far more than glibc reserves.
        if start == 0 || start >= found.base || found.base - start > 1 << 20 {
            found.dynamic = true;
            continue;
        }

        let offset = start.wrapping_sub(found.base) as isize;
        if (start..start + len).contains(&found.errno) {
            found.libc = Some(offset..offset + len as isize);
        } else if !is_loader(info.dlpi_name) {
            let image = (info.dlpi_addr + header.p_vaddr) as usize;
            let image = ptr::with_exposed_provenance(image);
            found.modules.push(Module {
                offset,
                image,
                image_len: header.p_filesz as usize,
                len,
            });
        }
    }

    0
}

/// Returns whether the module is the loader, whose thread-locals, if any, count as libc's.
fn is_loader(name: *const c_char) -> bool {
    // SAFETY: null or a string.
    !name.is_null()
        && unsafe { CStr::from_ptr(name) }
            .to_bytes()
            .windows(8)
            .any(|part| part == b"ld-linux")
}
