//! A value in a box with room for its place in an [inbox](super), and an inbox for such: what to send where tasks have
//! no link of their own. Fibers have one; the runtime's inboxes hold them as they are.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use super::{Inbox, Link, Linked};
use crate::shim::UnsafeCell;

/// Owns a value; a thin pointer.
pub struct Letter<T>(NonNull<Sheet<T>>);

/// What a [`Letter`] points to.
pub(crate) struct Sheet<T> {
    /// A cell of the shim, so that a model sees whether reading it is ordered after writing it.
    value: UnsafeCell<T>,
    link: Link<Sheet<T>>,
}

impl<T> Letter<T> {
    /// Boxes `value`.
    pub fn new(value: T) -> Self {
        let sheet = Box::new(Sheet { value: UnsafeCell::new(value), link: Link::new() });
        Self(NonNull::from(Box::leak(sheet)))
    }

    /// Unboxes the value.
    #[must_use]
    pub fn into_value(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: the handle owns the sheet.
        let sheet = unsafe { this.0.as_ref() };
        // SAFETY: read once: the handle is not dropped, and the box below drops no value.
        let value = sheet.value.with(|value| unsafe { value.read() });
        // SAFETY: from `Box::leak`; `ManuallyDrop` has the same layout, and the link needs no dropping.
        drop(unsafe { Box::from_raw(this.0.as_ptr().cast::<ManuallyDrop<Sheet<T>>>()) });
        value
    }

    /// Looks at the value.
    #[inline]
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        // SAFETY: the handle owns the sheet.
        let sheet = unsafe { self.0.as_ref() };
        // SAFETY: nobody writes the value while it is borrowed.
        sheet.value.with(|value| look(unsafe { &*value }))
    }
}

impl<T> Drop for Letter<T> {
    fn drop(&mut self) {
        // SAFETY: from `Box::leak`; the handle is the only owner.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: a unique owner of the value.
unsafe impl<T: Send> Send for Letter<T> {}
// SAFETY: sharing it shares the value.
unsafe impl<T: Sync> Sync for Letter<T> {}

// SAFETY: the sheet lives until the handle is dropped, and the handle is forgotten meanwhile.
unsafe impl<T: Send> Linked for Letter<T> {
    type Node = Sheet<T>;

    fn into_node(self) -> NonNull<Sheet<T>> {
        ManuallyDrop::new(self).0
    }

    unsafe fn from_node(node: NonNull<Sheet<T>>) -> Self {
        Self(node)
    }

    unsafe fn link<'a>(node: NonNull<Sheet<T>>) -> &'a Link<Sheet<T>> {
        // SAFETY: the node is alive; only its link is borrowed.
        unsafe { &*ptr::addr_of!((*node.as_ptr()).link) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Letter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|value| f.debug_tuple("Letter").field(value).finish())
    }
}

/// An inbox: any thread pushes, one takes everything at once; unbounded, no lock. `&Letters` is shared by all.
pub struct Letters<T: Send>(Inbox<Letter<T>>);

impl<T: Send> Letters<T> {
    /// An empty inbox.
    #[must_use]
    pub fn new() -> Self {
        Self(Inbox::new())
    }

    /// Any thread; lock-free, allocates nothing. Returns whether the inbox was empty: of the pushes between two takes
    /// exactly the first is told so.
    #[inline]
    pub fn push(&self, letter: Letter<T>) -> bool {
        self.0.push(letter)
    }

    /// Any thread, usually one. Takes everything, oldest first; an empty inbox costs one load. What is not taken from
    /// the iterator is dropped with it.
    #[inline]
    pub fn take_all(&self) -> impl ExactSizeIterator<Item = Letter<T>> + use<T> {
        self.0.take_all()
    }

    /// Any thread. Never true while a letter is in whose push happened before this look.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Send> Default for Letters<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send> fmt::Debug for Letters<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Letters").field("is_empty", &self.is_empty()).finish()
    }
}
