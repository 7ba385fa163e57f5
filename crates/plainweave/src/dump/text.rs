//! A dump as text.

use std::fmt;

use super::{Activity, Dump, FiberState, Object, WorkerState};

/// Numbers of fibers shown of a list.
const SHOWN: usize = 8;

impl fmt::Display for Dump {
    /// Names are quoted, with control characters escaped, so that each line is one that was meant.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |wanted: fn(&Activity) -> bool| {
            self.fibers
                .iter()
                .filter(|fiber| wanted(&fiber.activity))
                .count()
        };

        let running = count(|of| matches!(of, Activity::Running));
        let ready = count(|of| matches!(of, Activity::Ready));
        let waiting = count(|of| matches!(of, Activity::Waiting { .. }));
        write!(
            f,
            "{} fibers: {running} running, {ready} ready, {waiting} waiting",
            self.fibers.len()
        )?;
        writeln!(
            f,
            "; {} more have not started (in {:.1?})",
            self.not_started, self.took
        )?;
        self.workers
            .iter()
            .try_for_each(|worker| writeln!(f, "{worker}"))?;
        self.fibers
            .iter()
            .try_for_each(|fiber| writeln!(f, "{fiber}"))?;

        self.missing
            .iter()
            .try_for_each(|missing| writeln!(f, "missing: {missing}"))
    }
}

impl fmt::Display for WorkerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}: ", self.id)?;
        match self.runs {
            _ if self.asleep => f.write_str("asleep")?,
            Some(fiber) => write!(f, "runs fiber #{fiber}")?,
            None => f.write_str("awake")?,
        }

        self.held
            .map_or(Ok(()), |held| write!(f, ", held up for {held:.1?}"))
    }
}

impl fmt::Display for FiberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fiber #{}", self.id)?;
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        write!(f, ": {}", self.activity)?;
        if let Some(worker) = self.worker {
            write!(f, "; worker {worker}")?;
        }
        write!(f, ", {:.1?} old", self.age)?;
        if self.cancelled {
            f.write_str(", cancelled")?;
        }

        self.frames
            .iter()
            .try_for_each(|frame| write!(f, "\n    {frame}"))
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Activity::Running => f.write_str("running"),
            Activity::Ready => f.write_str("ready"),
            Activity::Ended => f.write_str("ended"),
            Activity::Waiting {
                reason,
                timed,
                object,
            } => {
                f.write_str("waiting for ")?;
                match object {
                    Some(object) => write!(f, "{object}")?,
                    None => f.write_str(reason.words())?,
                }
                f.write_str(if *timed { ", with a deadline" } else { "" })
            }
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}", self.kind)?;
        // The address of a fiber, or of what a scope keeps, means nothing to a reader.
        let own = matches!(self.kind, "fiber" | "scope");
        if self.address != 0 && !own {
            write!(f, " at {:#x}", self.address)?;
        }

        if !self.fibers.is_empty() {
            f.write_str(if own { ": " } else { ", held by " })?;
            for (at, fiber) in self.fibers.iter().take(SHOWN).enumerate() {
                write!(f, "{}fiber #{fiber}", if at > 0 { ", " } else { "" })?;
            }
            if self.fibers.len() > SHOWN {
                write!(f, " and {} more", self.fibers.len() - SHOWN)?;
            }
        }

        if self.about.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", self.about)
        }
    }
}
