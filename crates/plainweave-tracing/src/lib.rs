//! A registry of spans for [`tracing-subscriber`](tracing_subscriber) in programs with many fibers.
//!
//! `tracing_subscriber::registry()` knows 4,096 threads at most and panics beyond. To it each fiber
//! that has made a span is a thread, because a fiber has thread-local storage of its own. This one
//! counts workers:
//!
//! ```
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! let layers = plainweave_tracing::registry().with(tracing_subscriber::fmt::layer().with_writer(std::io::sink));
//! tracing::subscriber::with_default(layers, || {
//!     let span = tracing::info_span!("request", id = 7);
//!     let _entered = span.enter();
//!     tracing::info!("served");
//! });
//! ```
//!
//! Layers and filters for each of them work as on the other registry. Which spans a fiber has
//! entered travels with the fiber. Two things differ: layers hear of the *end* of a span on the
//! worker's thread-local storage ([`plainweave::with_worker_storage`]), and
//! `tracing_subscriber::fmt()`, which brings its own registry, has to be written as the layer
//! above.
//!
//! # How it works
//! Spans are stored in the other registry, which gives each thread a shard, and the thread its
//! number, when it makes a span or removes one. So these two are done on the worker's storage. What
//! belongs to the caller, which spans it has entered and what filters have just decided, stays on
//! the fiber's. A new span stores what the filters have decided, so on the worker's storage they
//! are asked again. A span is removed when the last layer has heard of its end, which only the
//! outermost one knows; so for a reference that is given up the whole subscriber is called again,
//! on the worker's storage.

#![expect(
    unsafe_code,
    reason = "a subscriber passes a question about its parts on"
)]

use std::any::TypeId;
use std::ptr;
use std::sync::OnceLock;

use plainweave::{owns_storage, with_worker_storage};
use tracing_core::dispatcher::{self, WeakDispatch};
use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::{Dispatch, Event, Interest, LevelFilter, Metadata, Subscriber};
use tracing_subscriber::filter::FilterId;
use tracing_subscriber::registry::{self, LookupSpan};

/// Creates a registry; add layers with
/// [`SubscriberExt::with`](tracing_subscriber::layer::SubscriberExt::with).
#[must_use]
pub fn registry() -> Registry {
    Registry::default()
}

/// A store for spans that any number of fibers may use at once; see [the crate](crate).
#[derive(Debug, Default)]
pub struct Registry {
    spans: registry::Registry,
    /// Whether some layer has a filter of its own.
    has_filters: bool,
    /// The subscriber of which this is the innermost part.
    whole: OnceLock<WeakDispatch>,
}

impl Registry {
    fn whole(&self) -> Option<Dispatch> {
        self.whole.get()?.upgrade()
    }
}

impl Subscriber for Registry {
    fn on_register_dispatch(&self, whole: &Dispatch) {
        // A second one would be a copy of the first: a subscriber becomes part of one.
        let _ = self.whole.set(whole.downgrade());
        self.spans.on_register_dispatch(whole);
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.spans.register_callsite(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.spans.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.spans.max_level_hint()
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        if !owns_storage() {
            return self.spans.new_span(attributes);
        }
        let metadata = attributes.metadata();
        // Which span is the current one, the worker's storage does not say.
        let parent = if attributes.is_contextual() {
            self.spans.current_span().into_inner().map(|(id, _)| id)
        } else {
            attributes.parent().cloned()
        };

        let whole = if self.has_filters { self.whole() } else { None };
        with_worker_storage(|| {
            if let Some(whole) = whole {
                // For what the filters note: the caller knows the answer.
                let _ = whole.enabled(metadata);
            }

            // Values are the layers' affair.
            let no_values: [(_, Option<&dyn tracing_core::field::Value>); 0] = [];
            let values = metadata.fields().value_set(&no_values);
            self.spans.new_span(&match parent {
                Some(parent) => Attributes::child_of(parent, metadata, &values),
                None => Attributes::new_root(metadata, &values),
            })
        })
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.spans.record(id, values);
    }

    fn record_follows_from(&self, id: &Id, follows: &Id) {
        self.spans.record_follows_from(id, follows);
    }

    fn event_enabled(&self, event: &Event<'_>) -> bool {
        self.spans.event_enabled(event)
    }

    fn event(&self, event: &Event<'_>) {
        self.spans.event(event);
    }

    fn enter(&self, id: &Id) {
        self.spans.enter(id);
    }

    fn exit(&self, id: &Id) {
        self.spans.exit(id);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.spans.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        let Some(whole) = self.whole().filter(|_| owns_storage()) else {
            return self.spans.try_close(id);
        };
        // This call comes here again, through all layers, which hear of the end if it is the end.
        // Its parent's end, which may follow, asks for the current subscriber. To the layers of the
        // first call nothing has ended.
        with_worker_storage(|| dispatcher::with_default(&whole, || whole.try_close(id)));
        false
    }

    fn current_span(&self) -> Current {
        self.spans.current_span()
    }

    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some(ptr::from_ref(self).cast());
        }
        // Layers ask for the other registry to learn which layer is the last to hear of an end, and
        // which spans the caller has entered. SAFETY: the caller's promise, for a part of this one
        // that lives as long.
        unsafe { self.spans.downcast_raw(id) }
    }
}

impl<'a> LookupSpan<'a> for Registry {
    type Data = registry::Data<'a>;

    fn span_data(&'a self, id: &Id) -> Option<Self::Data> {
        self.spans.span_data(id)
    }

    fn register_filter(&mut self) -> FilterId {
        self.has_filters = true;
        self.spans.register_filter()
    }
}
