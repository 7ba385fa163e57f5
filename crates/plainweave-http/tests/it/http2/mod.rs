//! HTTP/2 from outside: by the client side of h2, and by frames that are written by hand.

mod client;
mod ends;
mod floods;
mod memory;
mod permits;
mod raw;
mod requests;
mod splits;
mod tls;
mod tunnels;
mod windows;
