//! cargo-fuzz's door to `entry::request`.

#![no_main]

// The other targets have the rest.
#[allow(dead_code, unused_imports)]
#[path = "../entry.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::request(data));
