//! `plainweave cache` from outside: its program, run as a user runs it.

mod connections;
mod running;
