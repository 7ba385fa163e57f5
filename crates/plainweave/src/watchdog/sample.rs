//! Samples what a thread is doing right now, by a signal: where it is, on whose stack, and what
//! that stack holds.
//!
//! The asker sends SIGURG to the one thread (`tgkill`). The handler, on that thread's alternate
//! stack, inspects what it has interrupted and writes registers and a copy of the stack to a
//! [`SignalSlot`]. The asker finds the callers (`watchdog/unwind`) and their names.
//!
//! # Why it is hard
//! Anything may be half done at that point: the allocator's lock may be held, the thread-local base
//! may be on its way from one block to another. So the handler allocates nothing, locks nothing,
//! calls nothing in libc (whose `errno` is a thread-local) and uses no thread-local storage. It
//! does not panic either.
//!
//! 1. `gettid` and the slot tell whether the question is for this thread. If not (another process
//!    sent the signal, or the asker has given up), it returns.
//! 2. The stack pointer is looked up among the slabs (`stack/table`). On a fiber's stack the owner
//!    word leads to the fiber's number and name. The fiber has not ended, because it is what was
//!    interrupted.
//! 3. The registers that unwinding starts from are stored. On a fiber's stack, whose bounds are
//!    known, what lies above the stack pointer is copied, 32 KiB at most; on any other stack
//!    nothing.
//! 4. The answer is published, and the asker woken.
//!
//! SIGURG is used because its default action is to ignore it, and almost no program uses it
//! (out-of-band data, for processes that ask for it; Go's runtime, for the same purpose). If it has
//! a handler already, the result is an error. The handler stays installed for the life of the
//! process: a signal that comes late must find it.
//!
//! # Rejected
//! * *Unwinding in the handler* with the tables that panics use: it takes locks and allocates.
//! * *Following frame pointers in the handler*, which we did: most programs have none, and then
//!   callers were missing.
//! * *ptrace*: a thread cannot trace threads of its own process.
//! * */proc/self/task/TID/syscall*: answers for blocked threads only.

#![expect(
    unsafe_code,
    reason = "a signal handler that copies the stack it interrupts"
)]

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::Timespec;
use rustix::thread::gettid;

use super::entry;
use crate::atomics::signal_slot::{Answer, SignalSlot};
use crate::fiber::saved::word;
use crate::shim;
use crate::stack::{GUARD_SIZE, OverflowInfo, SlotHit, lookup};
use crate::sys;

/// Limit on the words of a stack that are copied, 32 KiB.
const MOST_STACK: usize = 4096;
/// Limit on the bytes of a fiber's name; the rest is cut.
const MOST_NAME: usize = 128;

/// Indices of an answer's words: three registers, number of words copied, whether on a fiber's
/// stack, its number, length of its name.
const INSTRUCTION: usize = 0;
const STACK: usize = 1;
const FRAME: usize = 2;
const COUNT: usize = 3;
const ON_FIBER: usize = 4;
const NUMBER: usize = 5;
const NAME_LEN: usize = 6;
/// Index of the name, eight bytes a word.
const NAME: usize = 7;
/// Index of the copy's first word.
const COPY: usize = NAME + MOST_NAME / size_of::<usize>();
const WORDS: usize = COPY + MOST_STACK;

static SAMPLES: Questions = Questions::new();

/// What a thread was doing.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// The fiber on whose stack it was: number and name. `None` if it was on no fiber's.
    pub(crate) fiber: Option<(u64, Option<String>)>,
    /// The instruction pointer.
    pub(crate) instruction: usize,
    /// The stack pointer.
    pub(crate) stack: usize,
    /// The frame pointer's register, which may hold anything.
    pub(crate) frame: usize,
    /// The words from `stack` on; none if it was on no fiber's.
    pub(crate) copy: Vec<usize>,
}

impl Sample {
    fn of(words: &[usize]) -> Self {
        let name: Vec<u8> = words[NAME..COPY]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let name = &name[..words[NAME_LEN].min(MOST_NAME)];
        let name = (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned());
        Self {
            fiber: (words[ON_FIBER] != 0).then_some((words[NUMBER] as u64, name)),
            instruction: words[INSTRUCTION],
            stack: words[STACK],
            frame: words[FRAME],
            copy: words[COPY..][..words[COUNT].min(MOST_STACK)].to_vec(),
        }
    }
}

/// Prepares [`ask`]. May be called repeatedly.
///
/// # Errors
/// The signal has a handler; the processor is not x86-64.
pub(crate) fn install() -> io::Result<()> {
    if !cfg!(target_arch = "x86_64") {
        let message = "on_stall, report_stalls: what a worker does can be looked at on x86-64 only; build without them";
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    install_handler()
}

/// Returns whether a signal will reach the threads that the caller is about to start, and this
/// handler: it is not another's, nor blocked. Installs the handler.
pub(crate) fn can_signal() -> bool {
    let is_ours = || {
        sys::signal_action(libc::SIGURG)
            .is_ok_and(|action| action.sa_sigaction == on_signal as *const () as usize)
    };
    install_handler().is_ok() && is_ours() && !sys::is_blocked(libc::SIGURG)
}

/// Installs the signal handler. May be called repeatedly.
///
/// # Errors
/// The signal has another one.
fn install_handler() -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }

    SAMPLES.prepare(WORDS);
    entry::prepare();
    if !matches!(
        sys::signal_action(libc::SIGURG)?.sa_sigaction,
        libc::SIG_DFL | libc::SIG_IGN
    ) {
        let message = "on_stall, report_stalls: SIGURG has a handler already, and a worker is asked what it does by \
                       that signal; install the handler after the runtime is built, such that it calls the one before \
                       it (as signal-hook does), or build without them";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
    }

    // SAFETY: `on_signal` keeps to what the head of this file says of it.
    unsafe { sys::handle_signal(libc::SIGURG, on_signal, libc::SA_RESTART) }?;
    *installed = true;
    Ok(())
}

/// Returns what a thread of this process does now, after [`install`]. Returns `None` if it has not
/// answered within `limit`: it has ended, has the signal blocked, or is in a part of the kernel
/// that no signal interrupts.
///
/// Context: a thread that may block.
pub(crate) fn ask(thread: u32, limit: Duration) -> Option<Sample> {
    SAMPLES
        .ask(thread, 0, limit)
        .map(|words| Sample::of(&words))
}

/// Questions of one kind, asked and answered by a slot.
pub(super) struct Questions {
    /// Set before the handler is installed.
    slot: OnceLock<SignalSlot>,
    askers: Mutex<()>,
}

impl Questions {
    pub(super) const fn new() -> Self {
        Self {
            slot: OnceLock::new(),
            askers: Mutex::new(()),
        }
    }

    /// Makes the slot, for answers of this many words, unless there is one.
    pub(super) fn prepare(&self, words: usize) {
        self.slot.get_or_init(|| SignalSlot::new(words));
    }

    /// Asks a thread. Returns the answer, or `None` if there is none within `limit`.
    ///
    /// Context: a thread that may block.
    pub(super) fn ask(&self, thread: u32, detail: u64, limit: Duration) -> Option<Vec<usize>> {
        let _alone = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = self.slot.get()?;
        let question = slot.ask(thread, detail)?;
        let end = Instant::now() + limit;
        let sent = send(thread);

        loop {
            let state = match slot.answer(question) {
                Ok(words) => return Some(words),
                Err(state) => state,
            };

            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !sent {
                slot.withdraw(question);
                return slot.answer(question).ok();
            }

            // An error means that the word has changed, time is up, or a signal came: check again
            // in each case.
            let left = Timespec::try_from(left).ok();
            shim::futex_wait(slot.futex(), state, left.as_ref());
        }
    }

    /// Has `answer` answer what the calling thread is asked, if it is, and wakes the asker.
    ///
    /// Context: the signal's handler.
    pub(super) fn answer(&self, thread: u32, answer: impl FnOnce(&Answer<'_>)) {
        let Some(slot) = self.slot.get() else { return };
        let Some(asked) = slot.take(thread) else {
            return;
        };
        answer(&asked);
        drop(asked);
        shim::futex_wake(slot.futex());
    }
}

/// Sends the signal. Returns whether there is such a thread.
fn send(thread: u32) -> bool {
    // SAFETY: a system call on numbers; the signal has a handler, or its default action, which is
    // to ignore it.
    unsafe {
        libc::syscall(
            libc::SYS_tgkill,
            libc::c_long::from(std::process::id()),
            thread,
            libc::SIGURG,
        ) == 0
    }
}

/// Handles the signal; the steps are those at the head of this file.
extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // A raw system call: neither `errno` nor another thread-local.
    let thread = gettid().as_raw_pid() as u32;
    entry::answer(thread);
    SAMPLES.answer(thread, |answer| take_sample(answer, context));
}

/// Writes an answer: steps 2 and 3.
fn take_sample(answer: &Answer<'_>, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context.
    let Some(registers) = (unsafe { registers(context) }) else {
        return;
    };

    // SAFETY: if the stack pointer lies on a fiber's stack, then on that of the fiber interrupted
    // here, which is in use.
    let hit = unsafe { lookup(registers.stack) };
    answer.put(ON_FIBER, usize::from(hit.is_some()));
    answer.put(INSTRUCTION, registers.instruction);
    answer.put(STACK, registers.stack);
    answer.put(FRAME, registers.frame);
    let mut count = 0;

    if let Some(hit) = hit {
        let (number, name) = owner(&hit);
        answer.put(NUMBER, number as usize);
        answer.put(NAME_LEN, name.len());

        for (at, part) in name.chunks(size_of::<usize>()).enumerate() {
            let mut word = [0; size_of::<usize>()];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            answer.put(NAME + at, usize::from_ne_bytes(word));
        }

        let stack = hit.slot_base + GUARD_SIZE..hit.slot_base + GUARD_SIZE + hit.size;
        if registers.stack >= stack.start && registers.stack.is_multiple_of(size_of::<usize>()) {
            count = ((stack.end - registers.stack) / size_of::<usize>()).min(MOST_STACK);
            for at in 0..count {
                // SAFETY: a word of the slot of a running fiber, mapped above its guard; aligned.
                answer.put(COPY + at, unsafe {
                    word(registers.stack + at * size_of::<usize>())
                });
            }
        }
    }

    answer.put(COUNT, count);
}

/// Returns the number and name of the fiber that a slot in use belongs to.
fn owner(hit: &SlotHit) -> (u64, &[u8]) {
    // SAFETY: an owner that is not null points to an `OverflowInfo` that stays valid while it is
    // set (`Stack::set_owner`), and the fiber that set it is the one interrupted here.
    let Some(info) = (unsafe { hit.owner.cast::<OverflowInfo>().as_ref() }) else {
        return (0, &[]);
    };
    // SAFETY: `name_len` bytes are valid at `name_ptr` by the field's contract.
    (info.id, unsafe {
        std::slice::from_raw_parts(info.name_ptr, info.name_len.min(MOST_NAME))
    })
}

/// The registers that unwinding starts from.
struct Registers {
    instruction: usize,
    frame: usize,
    stack: usize,
}

/// # Safety
/// The context comes from the kernel, as the argument of a signal handler.
#[cfg(target_arch = "x86_64")]
unsafe fn registers(context: *mut libc::c_void) -> Option<Registers> {
    // SAFETY: the caller's promise.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let of = |register: libc::c_int| registers[register as usize] as usize;
    Some(Registers {
        instruction: of(libc::REG_RIP),
        frame: of(libc::REG_RBP),
        stack: of(libc::REG_RSP),
    })
}

/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn registers(_: *mut libc::c_void) -> Option<Registers> {
    None
}
