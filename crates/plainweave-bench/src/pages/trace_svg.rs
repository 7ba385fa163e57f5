//! A trace as a picture: a row for each worker, a bar for each time that a fiber ran, lines for
//! wake-ups, spawns and steals. For pages; to look into a trace, use a viewer (docs/trace.md).

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::Value;

use crate::harness::report::say;
use plainweave_report::gantt::{self, Gantt, Kind, Micros};

/// Draw a trace as an SVG picture.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// The trace: a file that `--trace` of a server or `Tracer::write_json` has written
    file: PathBuf,

    /// Where the picture goes [default: the trace's name with .svg in place of .json]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Where the picture begins, in milliseconds of the trace [default: its first event]
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    from: Option<f64>,

    /// How many milliseconds it shows [default: all that follow]
    #[arg(long = "for", value_name = "MS")]
    length: Option<f64>,
}

/// More shapes than this are too many for one picture.
const MOST: usize = 20_000;

/// Runtime and worker.
type Track = (u64, u64);

#[derive(Clone, Debug, PartialEq)]
struct Slice {
    track: Track,
    name: String,
    cat: String,
    then: String,
    begin: Micros,
    end: Micros,
}

#[derive(Clone, Debug, PartialEq)]
struct Arrow {
    kind: String,
    from: (Track, Micros),
    to: (Track, Micros),
}

/// What of a trace is drawn.
#[derive(Debug, Default)]
struct Trace {
    /// Their names, in order.
    tracks: BTreeMap<Track, String>,
    slices: Vec<Slice>,
    arrows: Vec<Arrow>,
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let file = &flags.file;
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let trace = Trace::read(&text)
        .with_context(|| format!("{} is not a trace of Plainweave", file.display()))?;
    let trace = trace.cut(flags.from, flags.length)?;
    let out = flags
        .out
        .clone()
        .unwrap_or_else(|| file.with_extension("svg"));

    ensure!(
        out != *file,
        "{} is the trace itself: name the picture by --out",
        out.display()
    );
    std::fs::write(&out, trace.svg()).with_context(|| format!("cannot write {}", out.display()))?;
    say(&format!("written: {}", out.display()));

    Ok(())
}

impl Trace {
    fn read(text: &[u8]) -> anyhow::Result<Self> {
        let file: Value = serde_json::from_slice(text)?;
        let events = file["traceEvents"]
            .as_array()
            .context("it has no traceEvents")?;
        let mut trace = Self::default();
        let mut begun = BTreeMap::new();
        let mut ended = Vec::new();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();

        for event in events {
            let number = |key: &str| {
                event[key]
                    .as_u64()
                    .with_context(|| format!("no {key} in {event}"))
            };

            let time = |key: &str| {
                event[key]
                    .as_f64()
                    .with_context(|| format!("no {key} in {event}"))
            };

            let track = (number("pid")?, number("tid")?);
            let at = time("ts")?;
            match event["ph"].as_str().unwrap_or_default() {
                "M" if event["name"] == "thread_name" => {
                    trace.tracks.insert(track, word(&event["args"]["name"]));
                }
                "X" => {
                    let name = word(&event["name"]);
                    let cat = word(&event["cat"]);
                    let then = word(&event["args"]["then"]);
                    trace
                        .tracks
                        .entry(track)
                        .or_insert_with(|| "(no name)".to_owned());
                    trace.slices.push(Slice {
                        track,
                        name,
                        cat,
                        then,
                        begin: at,
                        end: at + time("dur")?,
                    });
                }
                "s" => {
                    begun.insert(number("id")?, (track, at));
                }
                "f" => ended.push((number("id")?, word(&event["name"]), (track, at))),
                _ => {}
            }
        }

        // The end of an arrow may stand before its beginning in the file, and one of them be
        // missing.
        let arrows = ended.into_iter().filter_map(|(id, kind, to)| {
            Some(Arrow {
                kind,
                from: begun.remove(&id)?,
                to,
            })
        });

        trace.arrows = arrows.collect();
        Ok(trace)
    }

    /// Returns what lies between two points in time, and the tracks that it takes.
    fn cut(self, from: Option<f64>, length: Option<f64>) -> anyhow::Result<Self> {
        let first = self
            .slices
            .iter()
            .map(|slice| slice.begin)
            .fold(f64::INFINITY, f64::min);
        let begin = from.map_or(first, |ms| ms * 1e3);
        let end = length.map_or(f64::INFINITY, |ms| begin + ms * 1e3);
        let within = |at: Micros| (begin..=end).contains(&at);
        let Self {
            mut tracks,
            slices,
            arrows,
        } = self;
        let slices = slices
            .into_iter()
            .filter(|slice| slice.end >= begin && slice.begin <= end);
        let cut = |slice: Slice| Slice {
            begin: slice.begin.max(begin),
            end: slice.end.min(end),
            ..slice
        };

        let slices: Vec<_> = slices.map(cut).collect();
        let arrows = arrows
            .into_iter()
            // Half an arrow would point to where nothing is drawn.
            .filter(|arrow| within(arrow.from.1) && within(arrow.to.1));
        let arrows: Vec<_> = arrows.collect();
        ensure!(
            !slices.is_empty(),
            "nothing happens there: choose other values of --from and --for"
        );
        let shapes = slices.len() + arrows.len();

        ensure!(
            shapes <= MOST,
            "{shapes} slices and arrows are too many for a picture: narrow it by --from and --for"
        );
        // A worker that did nothing meanwhile takes no row.
        tracks.retain(|track, _| slices.iter().any(|slice| slice.track == *track));

        Ok(Self {
            tracks,
            slices,
            arrows,
        })
    }

    fn svg(&self) -> String {
        let ends = |of: fn(&Slice) -> Micros| self.slices.iter().map(of);
        // Only what is drawn has a row.
        let row = |track: &Track| self.tracks.keys().position(|known| known == track);
        let bar = |slice: &Slice| {
            let Slice {
                name,
                cat,
                then,
                begin,
                end,
                ..
            } = slice;
            Some(gantt::Bar {
                row: row(&slice.track)?,
                begin: *begin,
                end: *end,
                name: name.clone(),
                title: format!("{name}: {:.3} \u{b5}s, {then}", end - begin),
                kind: match cat.as_str() {
                    "fiber" => Kind::Fiber,
                    _ if name == "asleep" => Kind::Asleep,
                    _ => Kind::Worker,
                },
            })
        };

        let arrow = |Arrow { kind, from, to }: &Arrow| {
            Some(gantt::Arrow {
                kind: kind.clone(),
                from: (row(&from.0)?, from.1),
                to: (row(&to.0)?, to.1),
                title: format!("{kind}, {:.3} \u{b5}s", to.1 - from.1),
            })
        };

        Gantt {
            rows: self.tracks.values().cloned().collect(),
            bars: self.slices.iter().filter_map(bar).collect(),
            arrows: self.arrows.iter().filter_map(arrow).collect(),
            begin: ends(|slice| slice.begin).fold(f64::INFINITY, f64::min),
            end: ends(|slice| slice.end).fold(f64::NEG_INFINITY, f64::max),
            ..Gantt::default()
        }
        .svg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"{"traceEvents":[
        {"ph":"M","pid":1,"tid":0,"ts":0.000,"name":"thread_name","args":{"name":"worker 0"}},
        {"ph":"M","pid":1,"tid":1,"ts":0.000,"name":"thread_name","args":{"name":"worker <1>"}},
        {"ph":"M","pid":1,"tid":2,"ts":0.000,"name":"thread_name","args":{"name":"unused"}},
        {"ph":"X","pid":1,"tid":1,"ts":3.000,"dur":2998.000,"name":"c","cat":"fiber","args":{"fiber":2}},
        {"ph":"f","pid":1,"tid":1,"ts":3.000,"bp":"e","id":1,"name":"wake","cat":"wake"},
        {"ph":"X","pid":1,"tid":0,"ts":1.000,"dur":3.000,"name":"a & b","cat":"fiber","args":{"then":"ended"}},
        {"ph":"s","pid":1,"tid":0,"ts":2.000,"id":1,"name":"wake","cat":"wake"}]}"#;

    #[test]
    fn what_is_drawn() {
        let trace = Trace::read(TRACE.as_bytes()).unwrap();
        assert_eq!(
            (trace.slices.len(), trace.arrows.len(), trace.tracks.len()),
            (2, 1, 3)
        );
        assert_eq!(
            trace.arrows[0],
            Arrow {
                kind: "wake".to_owned(),
                from: ((1, 0), 2.0),
                to: ((1, 1), 3.0)
            }
        );
        let svg = trace.cut(None, None).unwrap().svg();
        assert!(
            svg.contains("a &amp; b: 3.000 \u{b5}s, ended") && svg.contains("worker &lt;1&gt;"),
            "{svg}"
        );
        assert_eq!(
            (
                svg.matches("<rect class='fiber'").count(),
                svg.matches("<path class='wake'").count()
            ),
            (2, 1),
            "{svg}"
        );

        assert!(
            !svg.contains("unused") && svg.contains(">0 ms<") && svg.contains(">1 ms<"),
            "{svg}"
        );
    }

    #[test]
    fn a_part_is_cut_out() {
        let cut = |from, length| Trace::read(TRACE.as_bytes()).unwrap().cut(from, length);
        let part = cut(Some(1.0), Some(1.0)).unwrap();
        assert_eq!(
            (part.slices.len(), part.arrows.len(), part.tracks.len()),
            (1, 0, 1)
        );
        assert_eq!((part.slices[0].begin, part.slices[0].end), (1000.0, 2000.0));
        let error = cut(Some(10.0), None).unwrap_err();

        assert!(error.to_string().contains("--from"), "{error}");
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for text in [
            "",
            "{}",
            r#"{"traceEvents":[{"ph":"X"}]}"#,
            r#"{"traceEvents":[{"ph":"X","pid":1,"tid":1,"ts":1}]}"#,
        ] {
            assert!(Trace::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
