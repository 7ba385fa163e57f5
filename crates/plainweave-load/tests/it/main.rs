//! The load generators as a library: loads in tests of one's own.

mod library;
mod own_protocol;
