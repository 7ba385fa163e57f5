//! The end of a fiber as a branch of a select.

use std::fmt;

use super::{Case, Selector, Source};
use crate::sched::closure::End;
use crate::scope::ScopedJoinHandle;
use crate::thread::{JoinHandle, LocalJoinHandle};

/// A fiber's end that is waited for beside others. It has the handle to itself, because a fiber
/// wakes one joiner.
pub struct JoinBranch<'a> {
    end: &'a mut dyn End,
    watches: bool,
    chosen: bool,
}

/// Makes the ends of the fibers of these handles branches of a select.
macro_rules! branches {
    ($($handle:ty),+) => {
        $(impl<T> $handle {
            /// Returns the fiber's end as a branch of a select.
            #[doc(hidden)]
            pub fn select_branch(&mut self) -> JoinBranch<'_> {
                JoinBranch { end: self.end(), watches: false, chosen: false }
            }
        })+
    };
}

branches!(JoinHandle<T>, LocalJoinHandle<T>, ScopedJoinHandle<'_, T>);

impl JoinBranch<'_> {
    /// Returns it as one of the select's cases.
    pub fn case(&mut self) -> Case<'_> {
        Case::new(self)
    }

    /// Returns something if it was chosen: then a join does not wait.
    pub fn output(self) -> Option<()> {
        self.chosen.then_some(())
    }
}

impl Source for JoinBranch<'_> {
    fn attempt(&mut self) -> bool {
        self.chosen = self.end.is_done();
        self.chosen
    }

    fn watch(&mut self, selector: &Selector, _: usize) -> bool {
        self.watches = self.end.watch(selector.waker.clone());
        !self.watches
    }

    fn unwatch(&mut self, _: &Selector, _: usize, _: bool) {
        if std::mem::take(&mut self.watches) {
            self.end.unwatch();
        }
    }

    fn is_ready(&self) -> bool {
        self.end.is_done()
    }
}

impl fmt::Debug for JoinBranch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinBranch")
    }
}
