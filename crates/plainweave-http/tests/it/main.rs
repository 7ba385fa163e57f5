//! The library from outside: over a scripted stream, over sockets, on a real directory.

mod bodies;
mod cache;
mod conn;
mod faults;
mod files;
mod fuzz;
mod heads;
mod preconditions;
mod ranges;
mod site;
mod socket;
mod support;
