//! A wait for what tells its watchers of each change and leaves it to them to look: a watched
//! value, a broadcast channel, a notification.

use std::fmt;

use super::{Case, Place, Selector, Source, Watchers};

/// Such a primitive, as a branch of a select uses it.
pub(crate) trait Watched {
    /// What a wait gives.
    type Output;

    /// Performs the wait if it is over already.
    fn attempt(&mut self) -> Option<Self::Output>;

    /// Calls `f` under the primitive's lock, with its watchers, and whether an attempt may succeed.
    fn look(&self, f: &mut dyn FnMut(&mut Watchers, bool));
}

/// A wait for such a primitive beside others.
pub struct NoticeBranch<'a, T> {
    watched: Box<dyn Watched<Output = T> + 'a>,
    /// Among the primitive's watchers.
    place: Place,
    output: Option<T>,
}

impl<'a, T> NoticeBranch<'a, T> {
    pub(crate) fn new(watched: impl Watched<Output = T> + 'a) -> Self {
        Self {
            watched: Box::new(watched),
            place: Place::default(),
            output: None,
        }
    }

    /// Returns it as one of the select's cases.
    pub fn case(&mut self) -> Case<'_> {
        Case::new(self)
    }

    /// Returns what it came to, if it was chosen.
    pub fn output(self) -> Option<T> {
        self.output
    }
}

impl<T> Source for NoticeBranch<'_, T> {
    fn attempt(&mut self) -> bool {
        self.output = self.watched.attempt();
        self.output.is_some()
    }

    fn watch(&mut self, selector: &Selector, branch: usize) -> bool {
        let place = &mut self.place;
        let mut ready = false;
        self.watched.look(&mut |watchers, may_succeed| {
            ready = may_succeed;
            if !may_succeed {
                *place = watchers.enter(selector, branch, None);
            }
        });
        ready
    }

    fn unwatch(&mut self, selector: &Selector, branch: usize, _: bool) {
        let place = std::mem::take(&mut self.place);
        self.watched.look(&mut |watchers, _| {
            watchers.leave(selector, branch, place);
        });
    }
}

impl<T> fmt::Debug for NoticeBranch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoticeBranch")
    }
}
