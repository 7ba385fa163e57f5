//! Spans of far more fibers than the registry of tracing-subscriber has numbers for threads, with
//! layers on top.

use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plainweave::sync::Barrier;
use plainweave::{Runtime, Storage, time, yield_now};
use tracing::{Level, info, info_span, trace};
use tracing_core::span::{Attributes, Id};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

const FIBERS: usize = 20_000;

/// Takes the lines of a `fmt` layer.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn taken(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().expect("not poisoned"));
        String::from_utf8(bytes)
            .expect("text")
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> {
        let lines = self.clone();
        tracing_subscriber::fmt::layer()
            .without_time()
            .with_ansi(false)
            .with_writer(move || lines.clone())
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .expect("not poisoned")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Counts what it hears of.
#[derive(Clone, Default)]
struct Counts(Arc<[AtomicUsize; 3]>);

impl Counts {
    fn now(&self) -> [usize; 3] {
        [0, 1, 2].map(|n| self.0[n].load(Ordering::SeqCst))
    }

    fn add(&self, n: usize) {
        self.0[n].fetch_add(1, Ordering::SeqCst);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Counts {
    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.add(0);
    }

    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        self.add(1);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        // It is there until all layers have heard of its end.
        assert!(context.span(&id).is_some());
        self.add(2);
    }
}

fn runtime() -> Runtime {
    let runtime = Runtime::builder()
        .workers(2)
        .stack_size(64 << 10)
        .build()
        .expect("a runtime");
    assert_eq!(runtime.storage(), Storage::Own);
    runtime
}

/// Runs `f` on fibers of which each is in a span of its own while all others are, and says its
/// number there.
fn in_spans(fibers: usize, f: impl Fn(usize) + Copy + Send + Sync) {
    let runtime = runtime();
    let all = Barrier::new(fibers);
    runtime.scope(|scope| {
        for n in 0..fibers {
            let all = &all;
            scope.spawn(move || {
                let outer = info_span!("outer", n);
                let entered = outer.enter();
                let inner = info_span!("inner", twice = 2 * n).entered();
                all.wait().expect("not cancelled");
                yield_now();
                f(n);
                assert_eq!(tracing::Span::current().id(), inner.id());
                drop(inner);
                time::sleep(Duration::from_millis(1)).expect("not cancelled");
                assert_eq!(tracing::Span::current().id(), outer.id());
                drop(entered);
                assert!(tracing::Span::current().is_none());
            });
        }
    });
}

/// One test: a process has one global subscriber.
#[test]
fn layers_see_the_spans_of_twenty_thousand_fibers() {
    let all = Lines::default();
    let few = Lines::default();
    let counts = Counts::default();
    let filtered = Counts::default();
    // Of the layers that have a filter, one sees spans and no events, and one what a directive
    // names.
    let named = EnvFilter::new("off,fibers[named]=trace");
    let layers = plainweave_tracing::registry()
        .with(all.layer())
        .with(counts.clone())
        .with(few.layer().with_filter(LevelFilter::WARN))
        .with(
            filtered
                .clone()
                .with_filter(tracing_subscriber::filter::filter_fn(|metadata| {
                    metadata.is_span()
                })),
        )
        .with(Counts::default().with_filter(named));
    tracing::subscriber::set_global_default(layers).expect("the only one");

    in_spans(FIBERS, |n| info!(n, "says"));
    let lines = all.taken();
    assert_eq!(lines.len(), FIBERS);
    let right = |line: &String| {
        let number = |before: &str, after: char| -> usize {
            let (_, rest) = line.split_once(before).expect(line);
            rest.split(after)
                .next()
                .and_then(|digits| digits.parse().ok())
                .expect(line)
        };

        let n = number("outer{n=", '}');
        assert_eq!(
            (number("inner{twice=", '}'), number("says n=", ' ')),
            (2 * n, n),
            "{line}"
        );
        n
    };

    assert_eq!(
        lines.iter().map(right).collect::<HashSet<_>>().len(),
        FIBERS
    );
    assert_eq!(counts.now(), [2 * FIBERS, FIBERS, 2 * FIBERS]);
    assert_eq!(
        (filtered.now(), few.taken().len()),
        ([2 * FIBERS, 0, 2 * FIBERS], 0)
    );

    // A filter decides for its layer alone, also about what a span is to later lookups.
    in_spans(10, |n| {
        let _disabled = tracing::span!(Level::TRACE, "disabled").entered();
        trace!("nobody asks for that level of `few`");
        tracing::warn!(n, "both");
    });
    let warned = few.taken();
    assert!(
        warned.len() == 10
            && warned
                .iter()
                .all(|line| !line.contains("disabled") && line.contains("both"))
    );
    assert!(
        warned.iter().all(|line| !line.contains("outer")),
        "spans are below WARN: {warned:?}"
    );
    assert!(
        all.taken()
            .iter()
            .any(|line| line.contains("disabled: ") && line.contains("both"))
    );

    // Threads outside are threads, and spans go from one to the other.
    let before = counts.now();
    let span = info_span!("shared");
    let clone = span.clone();
    let runtime = runtime();
    runtime.run(|| clone.in_scope(|| info!("on a fiber")));
    runtime.run(move || drop(clone));
    assert_eq!(counts.now()[2], before[2]);
    std::thread::spawn(move || span.in_scope(|| info!("on a thread")))
        .join()
        .expect("no panic");
    assert_eq!(counts.now(), [before[0] + 1, before[1] + 2, before[2] + 1]);
    assert!(all.taken().iter().all(|line| line.contains("shared: ")));

    // A subscriber of one fiber's own: its parents end with their children too.
    let own = Counts::default();
    let counted = own.clone();
    runtime.run(move || {
        tracing::subscriber::with_default(plainweave_tracing::registry().with(counted), || {
            let child = {
                let parent = info_span!("parent");
                parent.in_scope(|| info_span!("child"))
            };

            yield_now();
            drop(child);
        });
    });
    assert_eq!(own.now(), [2, 0, 2]);
}
