//! A permit as a branch of a select.

use std::io;

use super::{Closed, Permit, Semaphore, Watchers, closed, try_take};
use crate::sync::select::{Case, Place, Selector, Source};

/// A permit that is waited for beside others.
#[derive(Debug)]
pub struct AcquireBranch<'a> {
    semaphore: &'a Semaphore,
    taken: Option<io::Result<Permit<'a>>>,
    /// Among the semaphore's watchers.
    place: Place,
}

impl<'a> AcquireBranch<'a> {
    /// Creates one that has not begun.
    pub fn new(semaphore: &'a Semaphore) -> Self {
        Self {
            semaphore,
            taken: None,
            place: Place::default(),
        }
    }

    /// Returns it as one of the select's cases.
    pub fn case(&mut self) -> Case<'_> {
        Case::new(self)
    }

    /// Returns what it came to, if it was chosen.
    pub fn output(self) -> Option<io::Result<Permit<'a>>> {
        self.taken
    }

    fn permit(&self) -> Permit<'a> {
        Permit {
            semaphore: self.semaphore,
            count: 1,
        }
    }
}

impl Source for AcquireBranch<'_> {
    fn attempt(&mut self) -> bool {
        self.taken = match self.semaphore.0.with(|locked| try_take(locked, 1)) {
            Some(Ok(())) => Some(Ok(self.permit())),
            Some(Err(Closed)) => Some(Err(closed())),
            None => None,
        };
        self.taken.is_some()
    }

    fn watch(&mut self, selector: &Selector, branch: usize) -> bool {
        self.semaphore.0.with(|locked| {
            let queued = locked.first_tag(0).is_some();
            let state = &mut locked.state;
            let may_succeed = state.closed || (state.permits > 0 && !queued);
            if !may_succeed {
                let watchers = state
                    .watchers
                    .get_or_insert_with(|| Box::new(Watchers::new()));
                self.place = watchers.enter(selector, branch, None);
            }

            may_succeed
        })
    }

    fn unwatch(&mut self, selector: &Selector, branch: usize, claimed: bool) {
        let place = std::mem::take(&mut self.place);
        self.semaphore.0.with(|locked| {
            let watchers = locked.state.watchers.as_mut();
            watchers.and_then(|watchers| watchers.leave(selector, branch, place))
        });
        if claimed {
            self.taken = Some(Ok(self.permit()));
        }
    }
}
