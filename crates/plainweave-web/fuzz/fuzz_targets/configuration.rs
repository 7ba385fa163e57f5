//! cargo-fuzz's door to `plainweave_web::fuzzing::configuration`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plainweave_web::fuzzing::configuration(data));
