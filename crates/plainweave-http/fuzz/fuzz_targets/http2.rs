//! cargo-fuzz's door to `entry::http2`.

#![no_main]

// The other targets have the rest.
#[allow(dead_code)]
#[path = "../entry.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::http2(data));
