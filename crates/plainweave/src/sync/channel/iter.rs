//! Receiving by `for`.

use super::Receiver;

/// Receives until there is nothing more to come; see [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T>(&'a Receiver<T>);

/// Receives what is there; see [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T>(&'a Receiver<T>);

/// Receives until there is nothing more to come, and owns the receiver.
#[derive(Debug)]
pub struct IntoIter<T>(Receiver<T>);

impl<T> Receiver<T> {
    /// Returns an iterator that calls [`Receiver::recv`] and ends with its first error: when the
    /// channel is empty and all senders are gone, or when the caller is cancelled or late.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self)
    }

    /// Returns an iterator that calls [`Receiver::try_recv`] and ends when there is nothing to
    /// receive now.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter(self)
    }
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}
