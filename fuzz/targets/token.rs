//! Feeds the fuzzer's bytes to the check of the same name.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drainwell_checks::token::check(data);
});
