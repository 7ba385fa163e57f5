//! `plainweave cache` from outside: its program, run as a user runs it.

mod clients;
mod connections;
mod differential;
mod files;
mod memory;
mod memory_limit;
mod monitoring;
#[path = "../../../../plainweave-cache/src/tests/packet.rs"]
mod packet;
mod packets;
mod privileges;
pub(crate) mod running;
mod status;
mod telling;
#[cfg(feature = "tls")]
mod tls;
