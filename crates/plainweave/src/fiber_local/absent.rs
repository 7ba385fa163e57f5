//! Platforms where fibers cannot have storage of their own: any target but x86-64 Linux with a
//! shared glibc. Either [`available`] refuses, or a function here is unreachable because there is
//! no [`Block`].

#![expect(unsafe_code, reason = "has the signatures of what it stands for")]

use std::io;

/// Never exists.
#[derive(Debug)]
pub(crate) enum Block {}

impl Block {
    pub(crate) fn new() -> io::Result<Self> {
        available().map(|()| unreachable!())
    }

    pub(crate) fn base(&self) -> usize {
        match *self {}
    }

    pub(crate) fn lend_malloc_cache(&self, _home: usize) {
        match *self {}
    }

    pub(crate) fn reset(&mut self) {
        match *self {}
    }

    pub(crate) fn end(self) -> Result<(), Self> {
        match self {}
    }
}

/// Returns the error that says why.
pub(crate) fn available() -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "fibers cannot have thread-local storage of their own here: it needs x86-64 Linux and a shared glibc, and \
         this program was built for something else",
    ))
}

pub(crate) fn base_of_worker() -> usize {
    0
}

pub(crate) fn end_of_fiber() {}

pub(crate) unsafe fn on<R>(_: usize, f: impl FnOnce() -> R) -> R {
    f()
}

pub(crate) unsafe fn set(_: usize) {}
