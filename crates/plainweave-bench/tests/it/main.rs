//! The program that measures, from outside, with the smallest parameters.

mod cache_sweep;
mod cache_tls;
mod http;
mod limit;
mod predict;
mod report;
mod resume;
mod seeds;
#[path = "../../../plainweave/tests/common/skip.rs"]
mod skip;
mod std_io;
mod tiny;
mod trace_svg;
mod web;
mod web_sweep;

fn installed(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|dir| dir.join(program).is_file())
}
