//! cargo-fuzz's door to `plainweave_web::fuzzing::paths`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plainweave_web::fuzzing::paths(data));
