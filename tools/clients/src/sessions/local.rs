//! Crates that compute, or only note something down.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use image::{ImageFormat, Rgb, RgbImage};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use rayon::prelude::*;
use tracing_subscriber::layer::SubscriberExt;

use super::{Opened, Outcome, Row, Waits, expect, session};

pub const ROWS: &[Row] = &[
    Row {
        name: "flate2",
        by: "",
        waits: Waits::Computes,
        has_deadline: false,
        open: |_| computed(compress),
    },
    Row {
        name: "image, rayon",
        by: "",
        waits: Waits::Computes,
        has_deadline: false,
        open: |_| computed(draw),
    },
    Row {
        name: "tracing",
        by: "`plainweave_tracing::registry()`",
        waits: Waits::Computes,
        has_deadline: false,
        open: |_| computed(trace),
    },
    Row {
        name: "metrics",
        by: "",
        waits: Waits::Computes,
        has_deadline: false,
        open: |_| computed(count),
    },
];

fn computed(what: fn() -> Outcome) -> Opened {
    session((), move |()| what(), move |()| what())
}

fn compress() -> Outcome {
    let text = "woven ".repeat(1000);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes())?;
    let mut read = String::new();
    GzDecoder::new(&encoder.finish()?[..]).read_to_string(&mut read)?;
    expect(read, text)
}

/// Draws a picture by all of rayon's threads, and reads it back.
fn draw() -> Outcome {
    let mut picture = RgbImage::new(64, 64);
    picture
        .par_enumerate_pixels_mut()
        .for_each(|(x, y, pixel)| {
            *pixel = Rgb([x as u8, y as u8, 7]);
        });
    let mut file = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut file, ImageFormat::Png)?;
    let read = image::load_from_memory(file.get_ref())?.into_rgb8();
    expect(read.get_pixel(40, 50).0, [40, 50, 7])
}

fn trace() -> Outcome {
    let layers = plainweave_tracing::registry()
        .with(tracing_subscriber::fmt::layer().with_writer(std::io::sink));
    tracing::subscriber::with_default(layers, || {
        let span = tracing::info_span!("request", id = 7);
        let entered = span.enter();
        plainweave::yield_now();
        let name = tracing::Span::current().metadata().map(|of| of.name());
        drop(entered);
        expect(name, Some("request"))
    })
}

fn count() -> Outcome {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || {
        metrics::counter!("requests").increment(1);
        plainweave::yield_now();
        metrics::counter!("requests").increment(2);
    });
    let values = recorder.snapshotter().snapshot().into_vec();
    expect(&values[0].3, &DebugValue::Counter(3))
}
