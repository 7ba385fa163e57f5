//! A cache in a program of one's own.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use plainweave::time::{saturating_add, sleep};
use plainweave::{Builder, net};
use plainweave_daemon::architecture::{Architecture, Loops};
use plainweave_daemon::listening::Listening;
use plainweave_daemon::sharing::Sharing;

use super::certificates::Security;
use super::operation::UNREAD;
use super::service::{Service, maintain};
use super::settings::Settings;
use super::shared::Cache;
use super::store::{Config, Store, Time};

/// Between two looks at how many connections are left.
const LOOK: Duration = Duration::from_millis(2);

/// What a cache takes on. The defaults are those of `plainweave cache`, for one worker.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of items, their keys and the index.
    pub memory_bytes: usize,
    /// Bytes of the largest item, with its key.
    pub item_max_bytes: usize,
    /// Parts of the store, each with a lock: four for each worker is plenty, one will do for one.
    pub shards: usize,
    /// Connections at a time; others wait until one has ended.
    pub connections: usize,
    /// Commands that one connection may have carried out before others get a turn.
    pub commands_in_a_row: usize,
    /// Silence after which a connection is closed; none by default.
    pub idle_timeout: Option<Duration>,
    /// How long a client may take none of its replies before it is disconnected.
    pub write_timeout: Duration,
    /// Whether `flush_all` is carried out.
    pub flush: bool,
}

impl Default for Options {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            memory_bytes: 64 << 20,
            item_max_bytes: 1 << 20,
            shards: 1,
            connections: settings.connections,
            commands_in_a_row: settings.commands,
            idle_timeout: settings.idle_timeout,
            write_timeout: settings.write_timeout,
            flush: settings.flush,
        }
    }
}

/// A cache that clients of memcached's protocol reach over TCP and Unix sockets, and the program
/// itself by its [`Store`].
///
/// ```
/// use std::io::{BufRead, BufReader, Write};
/// use std::time::Duration;
///
/// use plainweave::net::{TcpListener, TcpStream};
/// use plainweave_cache::{Options, Server};
///
/// plainweave::run(|| -> std::io::Result<()> {
///     let server = Server::new(Options { memory_bytes: 16 << 20, ..Options::default() });
///     let address = server.start(TcpListener::bind("127.0.0.1:0")?)?;
///
///     let mut client = TcpStream::connect(address)?;
///     client.write_all(b"set greeting 0 0 5\r\nhello\r\n")?;
///     let mut reply = String::new();
///     BufReader::new(&client).read_line(&mut reply)?;
///     assert_eq!(reply, "STORED\r\n");
///     assert_eq!(server.store().stats().items, 1);
///
///     assert!(server.shutdown(Duration::from_secs(1)));
///     Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A client cannot end the program: `shutdown` is refused.
pub struct Server {
    service: Service,
    maintained: Once,
}

impl Server {
    /// Makes an empty cache.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let config = Config {
            memory: options.memory_bytes,
            item_max: options.item_max_bytes,
            evict: true,
            shards: options.shards,
            ..Config::default()
        };
        let settings = Settings {
            connections: options.connections.max(1),
            threads: options.shards.max(1),
            commands: options.commands_in_a_row.max(1),
            idle_timeout: options.idle_timeout,
            write_timeout: options.write_timeout,
            flush: options.flush,
            ..Settings::default()
        };

        // Nobody waits for clients that ask to stop: they are refused.
        let (cache, _asked) = Cache::new(config, settings);
        Self {
            service: Service {
                cache: Arc::new(cache),
                architecture: Architecture::Driver,
                loops: Arc::new(Loops::none()),
            },
            maintained: Once::new(),
        }
    }

    /// Accepts and serves a listener's connections on the calling fiber's runtime, beside the
    /// caller; any number of listeners at a time. Returns its address.
    ///
    /// Context: a fiber.
    ///
    /// # Errors
    /// There is no stack for the fiber that accepts, or the listener has no address.
    pub fn start(&self, listener: net::TcpListener) -> io::Result<SocketAddr> {
        let address = listener.local_addr()?;
        self.accept(Listening::tcp(listener, &Sharing::default()))?;
        Ok(address)
    }

    /// Does the same for a Unix socket.
    ///
    /// # Errors
    /// As for [`Server::start`].
    pub fn start_unix(&self, listener: net::UnixListener) -> io::Result<()> {
        self.accept(Listening::unix(listener, &Sharing::default()))
    }

    fn accept(&self, listener: Listening) -> io::Result<()> {
        if self.service.cache.is_stopping() {
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "the cache has ended",
            ));
        }

        self.service.start(listener, Security::Plain)?;
        let mut maintained = Ok(());
        self.maintained.call_once(|| {
            let cache = self.service.cache.clone();
            let maintain = move || maintain(&cache);
            maintained = Builder::new().in_turn().spawn(maintain).map(drop);
        });
        maintained
    }

    /// Returns the items. What the program does there, clients see.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.service.cache.store
    }

    /// Returns the time for calls of the store.
    #[must_use]
    pub fn now(&self) -> Time {
        self.service.cache.clock.now()
    }

    /// Returns how many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.service.cache.connections()
    }

    /// Stops accepting, ends the connections that wait for a command, and waits for the others for
    /// at most `grace`. Who takes none of its replies meanwhile is cut. Returns whether all have
    /// ended. The items stay.
    ///
    /// Context: any thread or fiber; may suspend.
    pub fn shutdown(&self, grace: Duration) -> bool {
        let cache = &self.service.cache;
        cache.begin_to_stop(None);
        let clients = &cache.clients;
        let end = saturating_add(Instant::now(), grace);
        let mut unread = clients.unread();
        let mut look = saturating_add(Instant::now(), UNREAD);

        while cache.connections() > 0 {
            let now = Instant::now();
            if now >= end || sleep(LOOK).is_err() {
                return cache.connections() == 0;
            }
            if now >= look {
                clients.cut_those_that_still_are(&unread);
                unread = clients.unread();
                look = saturating_add(now, UNREAD);
            }
        }
        true
    }
}

impl Drop for Server {
    /// Ends it without waiting.
    fn drop(&mut self) {
        self.service.cache.begin_to_stop(None);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("addresses", &self.service.cache.listeners.addresses())
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}
