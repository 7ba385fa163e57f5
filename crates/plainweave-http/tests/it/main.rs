//! The library from outside: over a scripted stream, over sockets, on a real directory.

#![allow(
    clippy::duplicate_mod,
    reason = "the reverse proxy has the client, which is an example too, as a module"
)]

mod bodies;
mod cache;
mod client;
mod compression;
mod conn;
mod examples;
mod faults;
mod files;
mod fuzz;
mod handlers;
mod heads;
mod http2;
mod listings;
mod pages;
mod preconditions;
mod proxy;
mod races;
mod ranges;
mod roots;
mod serve;
mod site;
#[path = "../../../plainweave/tests/common/skip.rs"]
mod skip;
mod socket;
mod stop;
mod support;
mod tags;
mod tls;
mod twins;
mod upgrades;
