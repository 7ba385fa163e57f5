//! `plainweave cache` from outside: its program, run as a user runs it.

#[path = "../common/child.rs"]
mod child;
mod clients;
mod connections;
mod differential;
mod files;
#[path = "../common/group.rs"]
mod group;
mod memory;
mod memory_limit;
mod monitoring;
mod privileges;
mod running;
#[path = "../../../plainweave/tests/common/skip.rs"]
mod skip;
mod status;
mod telling;
