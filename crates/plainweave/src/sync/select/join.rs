//! The end of a fiber as a branch of a select.

use std::fmt;
use std::sync::Arc;

use super::{Case, Selector, Source};
use crate::sched::closure::End;

/// A fiber's end that is waited for beside others. It has the handle to itself, because a fiber wakes one joiner.
pub struct JoinBranch<'a> {
    end: &'a mut dyn End,
    watches: bool,
    chosen: bool,
}

impl<'a> JoinBranch<'a> {
    pub(crate) fn new(end: &'a mut dyn End) -> Self {
        Self { end, watches: false, chosen: false }
    }

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

    fn watch(&mut self, selector: &Arc<Selector>, _: usize) -> bool {
        self.watches = self.end.watch(selector.waker.clone());
        !self.watches
    }

    fn unwatch(&mut self, _: &Arc<Selector>, _: usize, _: bool) {
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
