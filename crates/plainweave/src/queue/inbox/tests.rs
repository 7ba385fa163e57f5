//! A task for the tests and models of [inboxes](super): a value in a box, with a link.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use super::{Link, Linked};
use crate::shim::UnsafeCell;

/// Owns a value; a thin pointer.
pub(crate) struct Boxed<T>(NonNull<Node<T>>);

/// What a [`Boxed`] points to.
pub(crate) struct Node<T> {
    /// A cell of the shim, so that a model sees whether reading it is ordered after writing it.
    value: UnsafeCell<T>,
    link: Link<Node<T>>,
}

impl<T> Boxed<T> {
    /// Boxes `value`.
    pub(crate) fn new(value: T) -> Self {
        let node = Box::new(Node {
            value: UnsafeCell::new(value),
            link: Link::new(),
        });
        Self(NonNull::from(Box::leak(node)))
    }

    /// Unboxes the value.
    pub(crate) fn into_value(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: the handle owns the node.
        let node = unsafe { this.0.as_ref() };
        // SAFETY: read once: the handle is not dropped, and the box below drops no value.
        let value = node.value.with(|value| unsafe { value.read() });

        // SAFETY: from `Box::leak`; `ManuallyDrop` has the same layout, and the link needs no
        // dropping.
        drop(unsafe { Box::from_raw(this.0.as_ptr().cast::<ManuallyDrop<Node<T>>>()) });
        value
    }
}

impl<T> Drop for Boxed<T> {
    fn drop(&mut self) {
        // SAFETY: from `Box::leak`; the handle is the only owner.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: a unique owner of the value.
unsafe impl<T: Send> Send for Boxed<T> {}

// SAFETY: the node lives until the handle is dropped, and the handle is forgotten meanwhile.
unsafe impl<T: Send> Linked for Boxed<T> {
    type Node = Node<T>;

    fn into_node(self) -> NonNull<Node<T>> {
        ManuallyDrop::new(self).0
    }

    unsafe fn from_node(node: NonNull<Node<T>>) -> Self {
        Self(node)
    }

    unsafe fn link<'a>(node: NonNull<Node<T>>) -> &'a Link<Node<T>> {
        // SAFETY: the node is alive; only its link is borrowed.
        unsafe { &*ptr::addr_of!((*node.as_ptr()).link) }
    }
}
