//! The library from outside: over a scripted stream, over sockets, on a real directory.

mod bodies;
mod cache;
mod conn;
mod faults;
mod files;
mod fuzz;
mod heads;
mod listings;
mod pages;
mod preconditions;
mod races;
mod ranges;
mod site;
mod socket;
mod stop;
mod support;
mod tls;
mod twins;
