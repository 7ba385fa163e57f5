//! A dump as JSON.

use std::fmt::{self, Display, Write};

use super::{Activity, Dump, FiberState, Frame, Object, WorkerState};

/// A dump that is displayed as JSON, in one line.
///
/// An object with `fibers`, `workers`, `not_started`, `missing` and `took_seconds`; each fiber has
/// `id`, `name`, `state` (`running`, `ready`, `waiting`, `ended`), `worker`, `age_seconds`,
/// `cancelled` and `frames`; one that waits has `reason` and `timed` as well, and `object` if it is
/// known. What is not known is `null`; addresses are text.
#[derive(Clone, Copy, Debug)]
pub struct Json<'a>(pub(super) &'a Dump);

/// Text with its quotes.
struct Text<'a>(&'a str);

/// A list of what `F` writes of each.
struct List<'a, T, F>(&'a [T], F);

/// A value or `null`.
struct OrNull<T>(Option<T>);

impl Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dump = self.0;
        write!(f, "{{\"fibers\":{}", List(&dump.fibers, fiber))?;
        write!(f, ",\"workers\":{}", List(&dump.workers, worker))?;
        write!(f, ",\"not_started\":{}", dump.not_started)?;
        let missing = |f: &mut fmt::Formatter<'_>, why: &String| Text(why).fmt(f);
        write!(f, ",\"missing\":{}", List(&dump.missing, missing))?;
        write!(f, ",\"took_seconds\":{}}}", dump.took.as_secs_f64())
    }
}

fn fiber(f: &mut fmt::Formatter<'_>, fiber: &FiberState) -> fmt::Result {
    write!(
        f,
        "{{\"id\":{},\"name\":{}",
        fiber.id,
        OrNull(fiber.name.as_deref().map(Text))
    )?;
    let state = match &fiber.activity {
        Activity::Running => "running",
        Activity::Ready => "ready",
        Activity::Waiting { .. } => "waiting",
        Activity::Ended => "ended",
    };

    write!(f, ",\"state\":\"{state}\"")?;
    if let Activity::Waiting {
        reason,
        timed,
        object,
    } = &fiber.activity
    {
        let reason = format!("{reason:?}").to_lowercase();
        write!(f, ",\"reason\":\"{reason}\",\"timed\":{timed},\"object\":")?;
        match object {
            Some(object) => write_object(f, object)?,
            None => f.write_str("null")?,
        }
    }
    write!(
        f,
        ",\"worker\":{},\"age_seconds\":{}",
        OrNull(fiber.worker),
        fiber.age.as_secs_f64()
    )?;

    write!(
        f,
        ",\"cancelled\":{},\"frames\":{}}}",
        fiber.cancelled,
        List(&fiber.frames, frame)
    )
}

fn write_object(f: &mut fmt::Formatter<'_>, object: &Object) -> fmt::Result {
    let fibers = |f: &mut fmt::Formatter<'_>, fiber: &u64| fiber.fmt(f);
    write!(
        f,
        "{{\"kind\":{},\"address\":\"{:#x}\"",
        Text(object.kind),
        object.address
    )?;
    write!(
        f,
        ",\"fibers\":{},\"about\":{}}}",
        List(&object.fibers, fibers),
        Text(&object.about)
    )
}

fn frame(f: &mut fmt::Formatter<'_>, frame: &Frame) -> fmt::Result {
    write!(f, "{{\"address\":\"{:#x}\"", frame.address)?;
    write!(
        f,
        ",\"function\":{}",
        OrNull(frame.function.as_deref().map(Text))
    )?;
    let file = frame.file.as_ref().map(|file| file.to_string_lossy());
    write!(
        f,
        ",\"file\":{},\"line\":{}}}",
        OrNull(file.as_deref().map(Text)),
        OrNull(frame.line)
    )
}

fn worker(f: &mut fmt::Formatter<'_>, worker: &WorkerState) -> fmt::Result {
    let held = worker.held.map(|held| held.as_secs_f64());
    write!(f, "{{\"id\":{},\"asleep\":{}", worker.id, worker.asleep)?;
    write!(
        f,
        ",\"runs\":{},\"held_seconds\":{}}}",
        OrNull(worker.runs),
        OrNull(held)
    )
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                // Control characters of both kinds, for terminals; and the line ends of JavaScript.
                c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                    write!(f, "\\u{:04x}", u32::from(c))?
                }
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

impl<T, F: Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result> Display for List<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (at, item) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_char(',')?;
            }
            (self.1)(f, item)?;
        }
        f.write_char(']')
    }
}

impl<T: Display> Display for OrNull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("null"),
        }
    }
}
