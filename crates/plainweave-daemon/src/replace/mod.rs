//! `--replace`: a new server takes over the listening sockets of the one that runs, and that one
//! ends. No client is refused, for the sockets are the same: what waits in the kernel's queue is
//! accepted by whoever accepts next. (Two sockets of one port, by `SO_REUSEPORT`, have a queue
//! each, and what waits in the old one is reset when it is closed.)
//!
//! Each server offers its sockets at a Unix socket, the FILE of `--replace` ([`Offer`]). One that
//! is started with the same file asks there first ([`Inherited`]):
//!
//! ```text
//!    the new one                                the old one
//!    "plainweave 1 web"             ->
//!                                   <-          a message with each socket, then "all"
//!    opens what it needs besides,
//!    loads files and certificates
//!    "ready"                        ->
//!                                   <-          "yours", and it stops
//!    accepts
//!                                   <-          a message with each connection, if they are such
//!                                               that another process can go on with them
//! ```
//!
//! * **The old one goes on until "ready".** If the new one fails before, the connection ends, and
//!   nothing has changed. If the old one does not want any more, it says why; an end without a word
//!   is the end of its process, and the new one goes on with the sockets that it has.
//! * **Both have the sockets from the first message on**, so from then on the old one may not shut
//!   them down: that would end listening for the new one too (`sharing`). It lets them be, and
//!   its accept loops end with its runtime.
//! * **The socket of FILE is handed over too**, and so are the files of Unix sockets: there is no
//!   moment without them.
//! * **Who may ask**: root, and the user that the server runs as. FILE is that user's alone.
//!
//! A service manager may open the sockets, too, and hands them over in its own way (`LISTEN_FDS`);
//! these are never shut down, and are called "managed NAME" when they are handed over in turn.

mod channel; // Messages with descriptors between the two servers.
mod inherited; // What a server finds open when it starts.
mod offer; // What a server gives to the one that replaces it.

use std::path::PathBuf;

use clap::Args;

pub use inherited::{Inherited, Unasked, check};
pub use offer::{Adopt, Heir, Offer};

/// The flag.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Where to listen")]
pub struct ReplaceFlags {
    /// Take over from the server that was started with the same FILE, if one runs: this one gets
    /// its listening sockets, and it ends once it has answered what it has begun. A cache hands its
    /// connections over, but those of users and of TLS, and no items. The next one does the same
    /// with this one; FILE is a Unix socket
    #[arg(long, value_name = "FILE")]
    pub replace: Option<PathBuf>,
}
