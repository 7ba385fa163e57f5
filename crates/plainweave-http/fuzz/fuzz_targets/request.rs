//! cargo-fuzz's door to `entry::request`.

#![no_main]

// The other target has the rest.
#[allow(dead_code)]
#[path = "../entry.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::request(data));
