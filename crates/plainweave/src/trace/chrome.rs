//! Records as JSON in Chrome's trace format (`docs/trace.md` says which parts of it).
//!
//! All rings are merged by time and written in one pass. A slice is written when it ends, and what
//! happened within it after that, so that within a track times never go back. Until then it is kept
//! as text.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fmt::{self, Display};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::vec;

use crate::atomics::event_ring::{Copied, Words};
use crate::fiber::Reason;
use crate::sched::event::{Decoded, Event, Stop, decode};
use crate::sched::recorder::{Recorder, Scale};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 16;
/// The track of threads outside the pool.
const OUTSIDE: usize = 1_000_000;

/// Writes the records of these runtimes.
pub(super) fn write(recorders: &[&Recorder], out: impl Write) -> io::Result<()> {
    let first = recorders.iter().map(|recorder| recorder.clock.epoch).min();
    let mut json = Json {
        out: BufWriter::with_capacity(BUFFER, out),
        begun: false,
        kept: BTreeMap::new(),
    };

    let mut tracks = Vec::new();
    for (i, recorder) in recorders.iter().enumerate() {
        let since = first.map_or(0, |first| {
            recorder.clock.epoch.duration_since(first).as_nanos() as u64
        });
        let (workers, outside) = recorder.copy();
        // Every event is older than this.
        let time = Time {
            scale: recorder.clock.scale(),
            since,
        };

        for (tid, copied) in workers.into_iter().chain([(OUTSIDE, outside)]) {
            tracks.push(Track::new(Place { pid: i + 1, tid }, time, copied));
        }
    }

    let mut names = HashMap::new();
    tracks
        .iter()
        .for_each(|track| gather_names(track.events.as_slice(), &mut names));
    json.begin(&tracks)?;
    for (i, recorder) in recorders.iter().enumerate() {
        json.name("process_name", Place { pid: i + 1, tid: 0 }, &recorder.name)?;
    }
    for track in &tracks {
        track.describe(&mut json)?;
    }

    Merge {
        json,
        tracks,
        names,
        arrows: HashMap::new(),
        next_arrow: 1,
    }
    .write()
}

/// Where an event is: the runtime and the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    pid: usize,
    tid: usize,
}

/// From a runtime's readings of its clock to the trace's time.
#[derive(Clone, Copy, Debug)]
struct Time {
    scale: Scale,
    since: u64,
}

impl Time {
    fn nanos(self, reading: u64) -> u64 {
        self.since + self.scale.nanos(reading)
    }
}

/// Collects the names of fibers.
fn gather_names(events: &[Words], names: &mut HashMap<u64, String>) {
    let mut name: Option<Vec<u8>> = None;
    for words in events {
        match decode(*words) {
            Some(Decoded::Name {
                begins: true,
                piece,
            }) => name = Some(piece.to_vec()),
            // The beginning may be lost.
            Some(Decoded::Name {
                begins: false,
                piece,
            }) => name = name.map(|name| [&name[..], &piece].concat()),
            Some(Decoded::Event {
                event: Event::Runs { fiber },
                ..
            }) => {
                if let Some(name) = name.take() {
                    let name = String::from_utf8_lossy(&name);
                    names.insert(fiber, name.trim_end_matches('\0').to_owned());
                }
            }
            _ => {}
        }
    }
}

/// What a track's open slice is of, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Fiber(u64, u64),
    Sleep(u64),
}

/// The events of a worker, or of the threads outside.
struct Track {
    place: Place,
    time: Time,
    lost: u64,
    events: vec::IntoIter<Words>,
    next: Option<Event>,
    /// The time of its last event.
    last: u64,
    /// The least time of what is written next. A slice begins a nanosecond after the end of the one
    /// before, although both may be one reading of the clock: viewers add times up in floating
    /// point, and must not find that they overlap.
    free: u64,
    open: Option<Open>,
    /// The thread that the next events of the track outside belong to.
    thread: u64,
    /// An arrow from a victim, to the fiber that runs next.
    stolen: Option<u64>,
}

impl Track {
    fn new(place: Place, time: Time, copied: Copied) -> Self {
        let Copied { lost, events } = copied;
        let events = events.into_iter();
        Self {
            place,
            time,
            lost,
            events,
            next: None,
            last: 0,
            free: 0,
            open: None,
            thread: 0,
            stolen: None,
        }
    }

    /// Returns the time for something that happened at `at`.
    fn write_at(&mut self, at: u64) -> u64 {
        self.free = self.free.max(at);
        self.free
    }

    /// Returns the time for the end of a slice at `at`.
    fn end_at(&mut self, at: u64) -> u64 {
        let end = self.write_at(at);
        self.free = end + 1;
        end
    }

    fn runs(&self, fiber: u64) -> bool {
        matches!(self.open, Some(Open::Fiber(runs, _)) if runs == fiber)
    }

    /// Goes to the next event, and returns its time.
    fn advance(&mut self) -> Option<u64> {
        loop {
            if let Some(Decoded::Event { time, event }) = decode(self.events.next()?) {
                self.next = Some(event);
                self.last = self.last.max(self.time.nanos(time));
                return Some(self.last);
            }
        }
    }

    fn describe(&self, json: &mut Json<impl Write>) -> io::Result<()> {
        match self.place.tid {
            OUTSIDE => json.name("thread_name", self.place, "other threads")?,
            tid => json.name("thread_name", self.place, &format!("worker {tid}"))?,
        }

        let index = self.place.tid;
        json.event(
            "M",
            self.place,
            0,
            format_args!("\"name\":\"thread_sort_index\",\"args\":{{\"sort_index\":{index}}}"),
        )
    }
}

/// An arrow that has begun.
struct Arrow {
    number: u64,
    kind: &'static str,
}

/// The state of writing.
struct Merge<W: Write> {
    json: Json<W>,
    tracks: Vec<Track>,
    names: HashMap<u64, String>,
    /// By the fiber that is ready.
    arrows: HashMap<u64, Arrow>,
    next_arrow: u64,
}

impl<W: Write> Merge<W> {
    fn write(mut self) -> io::Result<()> {
        let advance =
            |tracks: &mut [Track], i: usize| tracks[i].advance().map(|at| Reverse((at, i)));
        let mut order: BinaryHeap<_> = (0..self.tracks.len())
            .filter_map(|i| advance(&mut self.tracks, i))
            .collect();
        while let Some(Reverse((at, i))) = order.pop() {
            if let Some(event) = self.tracks[i].next.take() {
                self.event(i, at, event)?;
            }
            order.extend(advance(&mut self.tracks, i));
        }

        for i in 0..self.tracks.len() {
            let Time { scale, since } = self.tracks[i].time;
            let now = self.tracks[i].last.max(since + scale.now_nanos());
            self.close(i, now, "goes on")?;
        }

        self.json.end()
    }

    fn event(&mut self, i: usize, at: u64, event: Event) -> io::Result<()> {
        match event {
            Event::Spawned { fiber } => self.begin_arrow(i, at, fiber, "spawn"),
            Event::Woken { fiber } => self.begin_arrow(i, at, fiber, "wake"),
            Event::Runs { fiber } => self.run(i, at, fiber),
            Event::Stops { fiber, why } if self.tracks[i].runs(fiber) => {
                self.close(i, at, stopped(why))
            }
            Event::Stole { victim, fibers } => self.steal(i, at, victim, fibers),
            Event::Sleeps => {
                self.close(i, at, "lost")?;
                let begin = self.tracks[i].write_at(at);
                self.open(i, Open::Sleep(begin));
                Ok(())
            }
            Event::Awake if matches!(self.tracks[i].open, Some(Open::Sleep(_))) => {
                self.close(i, at, "wakes up")
            }
            Event::Thread { number } => {
                self.tracks[i].thread = number;
                Ok(())
            }
            // Its beginning is lost.
            Event::Stops { .. } | Event::Awake => Ok(()),
        }
    }

    fn run(&mut self, i: usize, at: u64, fiber: u64) -> io::Result<()> {
        self.close(i, at, "lost")?;
        let place = self.tracks[i].place;
        let at = self.tracks[i].write_at(at);
        self.open(i, Open::Fiber(fiber, at));

        if let Some(number) = self.tracks[i].stolen.take() {
            self.json.arrow(
                "f",
                place,
                at,
                Arrow {
                    number,
                    kind: "steal",
                },
            )?;
        }

        match self.arrows.remove(&fiber) {
            Some(arrow) => self.json.arrow("f", place, at, arrow),
            None => Ok(()),
        }
    }

    fn open(&mut self, i: usize, open: Open) {
        self.tracks[i].open = Some(open);
        self.json.kept.insert(self.tracks[i].place, Vec::new());
    }

    /// Ends a track's slice, if one is open.
    fn close(&mut self, i: usize, at: u64, then: &str) -> io::Result<()> {
        let place = self.tracks[i].place;
        let Some(open) = self.tracks[i].open.take() else {
            return Ok(());
        };
        let at = self.tracks[i].end_at(at);
        let within = self.json.kept.remove(&place).unwrap_or_default();

        match open {
            Open::Sleep(begin) => self.json.slice(place, begin..at, "asleep", "worker")?,
            Open::Fiber(fiber, begin) => match self.names.get(&fiber) {
                Some(name) => self.json.run(place, begin..at, name, fiber, then)?,
                None => self
                    .json
                    .run(place, begin..at, &format!("fiber {fiber}"), fiber, then)?,
            },
        }

        self.json.out.write_all(&within)
    }

    fn begin_arrow(&mut self, i: usize, at: u64, fiber: u64, kind: &'static str) -> io::Result<()> {
        let number = self.arrow_from(i, at, kind)?;
        self.arrows.insert(fiber, Arrow { number, kind });
        Ok(())
    }

    /// Begins an arrow on a track: at its open slice, or at one of no length, because viewers tie
    /// arrows to slices.
    fn arrow_from(&mut self, i: usize, at: u64, kind: &'static str) -> io::Result<u64> {
        let place = self.tracks[i].place;
        let number = self.next_arrow;
        let at = self.tracks[i].write_at(at);
        self.next_arrow += 1;

        match (self.tracks[i].open, place.tid) {
            (Some(Open::Fiber(..)), _) => {}
            (_, OUTSIDE) => {
                self.json.slice(
                    place,
                    at..at,
                    &format!("thread {}", self.tracks[i].thread),
                    "outside",
                )?;
            }
            _ => self.json.slice(place, at..at, kind, "worker")?,
        }

        self.json.arrow("s", place, at, Arrow { number, kind })?;
        if !matches!(self.tracks[i].open, Some(Open::Fiber(..))) {
            // The slice of no length is over.
            self.tracks[i].end_at(at);
        }

        Ok(number)
    }

    fn steal(&mut self, i: usize, at: u64, victim: usize, fibers: u64) -> io::Result<()> {
        let place = self.tracks[i].place;
        let written = self.tracks[i].write_at(at);
        self.json.steal(place, written, victim, fibers)?;
        let victim = Place {
            tid: victim,
            ..place
        };

        if let Some(victim) = self.tracks.iter().position(|track| track.place == victim) {
            self.tracks[i].stolen = Some(self.arrow_from(victim, at, "steal")?);
        }
        Ok(())
    }
}

/// Says what a fiber did after its slice.
fn stopped(why: Stop) -> &'static str {
    match why {
        Stop::Ended => "ended",
        Stop::Yielded => "yielded",
        Stop::Suspended(reason) => match reason {
            Reason::Park => "waits: park",
            Reason::Sleep => "waits: sleep",
            Reason::Io => "waits: I/O",
            Reason::Join => "waits: join",
            Reason::Scope => "waits: scope",
            Reason::Blocking => "waits: blocking",
            Reason::Sync => "waits: sync",
            Reason::Future => "waits: future",
        },
    }
}

/// The file.
struct Json<W: Write> {
    out: BufWriter<W>,
    begun: bool,
    /// What happened within open slices.
    kept: BTreeMap<Place, Vec<u8>>,
}

impl<W: Write> Json<W> {
    fn begin(&mut self, tracks: &[Track]) -> io::Result<()> {
        let lost: u64 = tracks.iter().map(|track| track.lost).sum();
        write!(
            self.out,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"overwritten\":{lost}}},\"traceEvents\":["
        )
    }

    fn end(mut self) -> io::Result<()> {
        writeln!(self.out, "\n]}}")?;
        self.out.flush()
    }

    /// Writes an event, or keeps it if a slice is open there. The first is a name, and not kept.
    fn event(
        &mut self,
        phase: &str,
        place: Place,
        at: u64,
        rest: fmt::Arguments<'_>,
    ) -> io::Result<()> {
        let comma = if std::mem::replace(&mut self.begun, true) {
            ","
        } else {
            ""
        };

        let Place { pid, tid } = place;
        let out: &mut dyn Write = match self.kept.get_mut(&place) {
            Some(kept) => kept,
            None => &mut self.out,
        };

        write!(
            out,
            "{comma}\n{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{},{rest}}}",
            Micros(at)
        )
    }

    fn slice(
        &mut self,
        place: Place,
        time: Range<u64>,
        name: &str,
        category: &str,
    ) -> io::Result<()> {
        let length = Micros(time.end - time.start);
        let rest = format!("\"dur\":{length},\"name\":\"{name}\",\"cat\":\"{category}\"");
        self.event("X", place, time.start, format_args!("{rest}"))
    }

    fn run(
        &mut self,
        place: Place,
        time: Range<u64>,
        name: &str,
        fiber: u64,
        then: &str,
    ) -> io::Result<()> {
        let length = Micros(time.end - time.start);
        let name = Quoted(name);
        let args = format!("\"args\":{{\"fiber\":{fiber},\"then\":\"{then}\"}}");
        let rest = format!("\"dur\":{length},\"name\":{name},\"cat\":\"fiber\",{args}");
        self.event("X", place, time.start, format_args!("{rest}"))
    }

    fn steal(&mut self, place: Place, at: u64, victim: usize, fibers: u64) -> io::Result<()> {
        let args = format!("\"args\":{{\"victim\":{victim},\"fibers\":{fibers}}}");
        self.event(
            "i",
            place,
            at,
            format_args!("\"s\":\"t\",\"name\":\"steal\",\"cat\":\"worker\",{args}"),
        )
    }

    /// One end of an arrow: `s` or `f`.
    fn arrow(
        &mut self,
        end: &str,
        place: Place,
        at: u64,
        Arrow { number, kind }: Arrow,
    ) -> io::Result<()> {
        // It ends at the slice that is open.
        let bind = if end == "f" { "\"bp\":\"e\"," } else { "" };
        self.event(
            end,
            place,
            at,
            format_args!("{bind}\"id\":{number},\"name\":\"{kind}\",\"cat\":\"{kind}\""),
        )
    }

    fn name(&mut self, what: &str, place: Place, name: &str) -> io::Result<()> {
        self.event(
            "M",
            place,
            0,
            format_args!("\"name\":\"{what}\",\"args\":{{\"name\":{}}}", Quoted(name)),
        )
    }
}

/// Nanoseconds, in microseconds.
struct Micros(u64);

impl Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Text as a JSON string.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for char in self.0.chars() {
            match char {
                '"' | '\\' => write!(f, "\\{char}")?,
                char if char.is_control() => write!(f, "\\u{:04x}", u32::from(char))?,
                char => write!(f, "{char}")?,
            }
        }
        f.write_str("\"")
    }
}
