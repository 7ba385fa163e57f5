//! What a suspended fiber waits for, for dumps and reports of deadlocks.
//!
//! A fiber that waits for an object (a lock, a channel, another fiber) leaves a [`Note`] in its own
//! frame and a pointer to it in its header: two plain stores in a wait that suspends, and none
//! anywhere else. Whoever owns the suspended fiber may follow the pointer, because then the frame
//! stands still, and what it borrows cannot go away.

#![expect(unsafe_code, reason = "follows a fiber's pointer to what it waits for")]

use std::cell::Cell;

use super::{Header, Reason};

/// The object that a fiber waits for, as it was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Object {
    /// What it is: `mutex`, `channel`, `fiber`, `scope`.
    pub kind: &'static str,
    /// Its address.
    pub address: usize,
    /// The fibers that the wait is for, by number: the holder of a lock, the fiber to be joined, a
    /// scope's fibers (a thousand at most). Empty if these are not known.
    pub fibers: Vec<u64>,
    /// What else it says of itself: `2 senders, 1 receiver, 0 values`.
    pub about: String,
    /// The lower half of the number of the fiber that took a lock; 0 for a plain thread.
    pub(crate) holder: Option<u32>,
    /// How many of what is waited for are not among `fibers`, or run on another runtime.
    pub(crate) unknown: usize,
}

/// Who asks what a fiber waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    /// The pool whose fibers are asked for.
    pub(crate) pool: *const (),
    /// The most children of a scope that are named; those left out are counted with what is not
    /// known.
    pub(crate) children: usize,
    /// Only who is waited for, without words.
    pub(crate) is_brief: bool,
}

/// What can say what it is.
pub(crate) trait Describe {
    /// Fills in what is known. Runs no user code and does not wait.
    fn describe(&self, asker: &Asker, object: &mut Object);
}

/// A pointer to what a fiber waits for; lies in the frame of the wait.
#[derive(Debug)]
pub(crate) struct Note {
    object: *const (),
    describe: unsafe fn(*const (), &Asker, &mut Object),
}

impl Note {
    pub(crate) fn of<T: Describe>(object: &T) -> Self {
        /// # Safety
        /// `object` points to a `T`.
        unsafe fn describe<T: Describe>(object: *const (), asker: &Asker, to: &mut Object) {
            // SAFETY: the caller's promise.
            unsafe { (*object.cast::<T>()).describe(asker, to) }
        }

        Self {
            object: std::ptr::from_ref(object).cast(),
            describe: describe::<T>,
        }
    }
}

/// Why a fiber was last suspended.
#[derive(Debug)]
pub(crate) struct Waits(Cell<u8>);

/// How many looks at long waits have found a fiber in the same wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlierLooks {
    None,
    One,
    More,
}

/// A note is set.
const NOTED: u8 = 0x80;
/// A timer ends the wait.
const TIMED: u8 = 0x40;
/// Operations are pending at the worker's driver.
const PENDING: u8 = 0x20;
/// The unused pages of the fiber's stack have gone back since the wait began (`sched/long_waits`).
const STACK_TRIMMED: u8 = 0x10;
/// An earlier look at long waits has found the fiber in this wait.
const SEEN: u8 = 0x08;
/// The bits of the reason itself.
const REASON: u8 = 0x07;

impl Waits {
    pub(super) fn new() -> Self {
        Self(Cell::new(Reason::Park as u8))
    }

    #[inline(always)]
    pub(crate) fn set(&self, reason: Reason, noted: bool) {
        self.0.set(reason as u8 | if noted { NOTED } else { 0 });
    }

    /// Notes a wait for operations that `awaited` points to.
    #[inline(always)]
    pub(crate) fn set_pending(&self) {
        self.0.set(Reason::Io as u8 | PENDING);
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.0.get() & PENDING != 0
    }

    /// Notes a wait for `reason`, and returns what was noted before.
    pub(crate) fn replace(&self, reason: Reason) -> u8 {
        self.0.replace(reason as u8)
    }

    /// Notes again what [`Self::replace`] has returned.
    pub(crate) fn put_back(&self, before: u8) {
        self.0.set(before);
    }

    /// Notes that the wait ends at a deadline at the latest.
    #[inline(always)]
    pub(crate) fn set_timed(&self) {
        self.0.set(self.0.get() | TIMED);
    }

    #[inline(always)]
    pub(crate) fn is_for(&self, reason: Reason) -> bool {
        self.0.get() & REASON == reason as u8
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.0.get() & TIMED != 0
    }

    /// Notes that a look at long waits has come by, and returns how often one had before.
    pub(crate) fn look(&self) -> EarlierLooks {
        let before = self.0.get();
        let (earlier, now) = match before & (SEEN | STACK_TRIMMED) {
            0 => (EarlierLooks::None, SEEN),
            SEEN => (EarlierLooks::One, SEEN | STACK_TRIMMED),
            _ => (EarlierLooks::More, 0),
        };

        self.0.set(before | now);
        earlier
    }

    pub(crate) fn reason(&self) -> Reason {
        Reason::ALL
            .into_iter()
            .find(|reason| self.is_for(*reason))
            .unwrap_or(Reason::Park)
    }
}

impl Header {
    /// Returns the object that the fiber waits for, if it has noted one, with at most `children` of
    /// those of a scope.
    ///
    /// # Safety
    /// The caller owns the fiber, which is suspended.
    pub(crate) unsafe fn awaited(&self, children: usize) -> Option<Object> {
        // SAFETY: the caller's promise.
        unsafe { self.describe_awaited(children, false) }
    }

    /// Returns the lower half of the number of the one fiber of this pool that the fiber waits for,
    /// without a time limit: the holder of a lock, or one that it joins.
    ///
    /// # Safety
    /// As for [`Self::awaited`].
    pub(crate) unsafe fn waits_for(&self) -> Option<u32> {
        if self.own.waits.is_timed() {
            return None;
        }
        // SAFETY: the caller's promise.
        let object = unsafe { self.describe_awaited(0, true) }?;
        match (object.holder, &object.fibers[..]) {
            (Some(holder), _) => (holder != 0).then_some(holder),
            (None, [fiber]) if object.unknown == 0 => Some(*fiber as u32),
            _ => None,
        }
    }

    /// # Safety
    /// As for [`Self::awaited`].
    unsafe fn describe_awaited(&self, children: usize, is_brief: bool) -> Option<Object> {
        if self.own.waits.0.get() & NOTED == 0 {
            return None;
        }
        let mut object = Object::default();
        // SAFETY: set before the suspension that set NOTED; the frame that it lies in has not gone
        // on since, nor has what it borrows.
        let note = unsafe { &*self.own.awaited.get().cast::<Note>() };

        // SAFETY: as `of` has made it.
        unsafe {
            (note.describe)(
                note.object,
                &Asker {
                    pool: self.pool_ptr().as_ptr(),
                    children,
                    is_brief,
                },
                &mut object,
            )
        };

        Some(object)
    }
}

impl Reason {
    /// Returns what a wait for no known object is for.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Reason::Park => "unpark",
            Reason::Sleep => "the clock",
            Reason::Io => "I/O",
            Reason::Join => "a fiber",
            Reason::Scope => "a scope",
            Reason::Blocking => "a job of the blocking pool",
            Reason::Sync => "one of several things (select)",
            Reason::Future => "a future",
        }
    }
}

impl Describe for Header {
    fn describe(&self, asker: &Asker, object: &mut Object) {
        (object.kind, object.address) = ("fiber", std::ptr::from_ref(self).addr());
        object.fibers.push(self.id());
        object.unknown = usize::from(!std::ptr::eq(self.pool_ptr().as_ptr(), asker.pool));
        if let Some(name) = self.name() {
            object.about = format!("{name:?}");
        }
    }
}
