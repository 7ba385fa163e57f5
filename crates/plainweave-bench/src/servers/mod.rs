//! The experiments on servers, ours beside their peers. What they share is `serving`.

pub(crate) mod cache; // The cache server beside memcached, in CPU time of the server per request.
// The cache server beside memcached as the load grows past what it can bear.
pub(crate) mod cache_sweep;
pub(crate) mod echo; // Echo over loopback.
// What does a fair scheduler cost in a real server? Policies, modes and drivers under the traffic
// of memcached and of a web site, one change at a time.
pub(crate) mod fairness;
pub(crate) mod files; // How a file gets into a socket.
// The HTTP library and `plainweave web` beside their peers, in CPU time of the server per request.
pub(crate) mod http;
// Is `plainweave load` to be believed? What it costs a server and itself, beside other load
// generators, and what it says of latencies that are known.
pub(crate) mod load;
// The five architectures of `plainweave web` and `plainweave cache` side by side, under the same
// traffic.
pub(crate) mod shapes;
pub(crate) mod stall; // A server, one of whose requests in a hundred holds up its thread for 50 ms.
// Reads of a file, datagrams and children, beside threads and raw loops.
pub(crate) mod std_io;
pub(crate) mod store; // The cache's store, without a server.
pub(crate) mod web; // `plainweave web` beside nginx.
pub(crate) mod web_sweep; // The published experiment on static web servers.
