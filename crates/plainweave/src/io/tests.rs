//! What every driver must do: one list of tests, run for each driver.
//!
//! A test takes a function that makes a fresh driver on the calling thread; `for_drivers!`
//! instantiates the list. The drivers may differ in whether an operation is answered by `submit` or
//! later, so tests ask [`Rig::finish`] for the result and only insist on `Pending` where nothing
//! can have arrived.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

mod cancel;
mod echo;
mod fallback;
mod files;
mod many;
mod moved;
mod readiness;
mod recurring;
mod shared;
mod sim;
mod sleep;
mod stream;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::driver::{Access, Completion, Driver, OpRef, Submitted, Wait};
use super::epoll::Epoll;
use super::op::{Interest, Op, Operation, RawResult};
use super::source::Source;
use super::uring::Uring;

type Make = dyn Fn() -> Box<dyn Driver>;

/// Instantiates the list for each driver, with the names as test names. `small_uring` has queues of
/// 4 and 16 entries, `polling_uring` makes the calls itself after a poll entry, `shared_uring` may
/// be called by any thread.
macro_rules! for_drivers {
    ($($file:ident: $($test:ident)+;)+) => {
        for_drivers!(@ epoll "epoll" (Epoll::new(Instant::now(), 0)) $($($file $test)+)+);
        for_drivers!(@ uring "uring" (Uring::new(Instant::now(), 0, Access::OwnerThread, 256)) $($($file $test)+)+);
        for_drivers!(@ small_uring "uring" (Uring::new(Instant::now(), 0, Access::OwnerThread, 4)) $($($file $test)+)+);
        for_drivers!(@ shared_uring "uring" (Uring::new(Instant::now(), 0, Access::AnyThread, 64)) $($($file $test)+)+);
        for_drivers!(@ entered_uring "uring"
            (Uring::new(Instant::now(), 0, Access::OwnerEnters, 64)) $($($file $test)+)+);
        for_drivers!(@ polling_uring "uring" (Uring::polling(64)) $($($file $test)+)+);
    };
    (@ $module:ident $name:literal ($new:expr) $($file:ident $test:ident)+) => {
        mod $module {
            use super::*;

            $(#[test]
            fn $test() {
                super::$file::$test(&|| super::named($name, $new));
            })+
        }
    };
}

for_drivers! {
    stream: receives_what_is_there receives_what_comes_later sends_and_waits_for_room vectored_calls_use_all_buffers
        accepts_with_the_peers_address connects reports_a_refused_connection poll_tells_both_directions
        a_poll_sees_what_others_have_read
        end_of_stream_after_queued_data a_short_read_then_the_end urgent_data_cuts_no_stream_short
        close_wakes_a_receive close_wakes_an_accept close_wakes_a_connect reading_and_writing_at_once
        two_readers_share_what_comes datagrams_are_not_mistaken_for_a_drained_stream a_reused_descriptor_is_a_new_source
        a_source_under_a_new_name_takes_over;
    readiness: a_poll_is_judged_by_what_it_waits_for a_waiting_write_outlasts_the_peers_half_close
        a_write_to_a_half_closed_peer_waits a_waiting_read_outlasts_an_urgent_mark
        an_accept_waits_for_a_connection_and_nothing_else a_connect_waits_for_its_outcome;
    recurring: each_wait_ends_with_what_comes what_was_left_ends_the_next_wait what_others_have_read_ends_no_wait
        a_cancelled_wait_is_followed_by_others two_waits_at_a_time a_wait_ends_with_the_stream
        a_wait_sees_what_is_behind_an_urgent_mark a_source_that_goes_is_closed_at_once
        another_connection_with_its_number a_connection_that_moves;
    cancel: a_cancelled_receive_reports_once a_cancelled_accept a_cancelled_connect a_cancelled_poll
        nothing_is_lost_when_data_meets_a_cancel
        cancel_of_ten_thousand_waiters_is_quick dropped_with_operations_in_flight;
    files: a_file_is_opened_written_and_read a_call_on_a_file_ends_early;
    many: five_thousand_in_flight a_file_that_cannot_wait_is_its_own_error more_completions_than_the_queue_holds;
    sleep: woken_before_and_during_a_wait woken_many_times until_is_not_early signals_do_not_end_a_sleep
        an_idle_driver_wants_no_poll;
}

fn named<D: Driver + 'static>(name: &str, driver: std::io::Result<D>) -> Box<dyn Driver> {
    let driver = driver.expect("the driver under test is available");
    assert_eq!(driver.name(), name);
    Box::new(driver)
}

/// A driver and what it has reported.
struct Rig {
    driver: Box<dyn Driver>,
    reports: Vec<Completion>,
}

impl Rig {
    fn new(make: &Make) -> Self {
        Self {
            driver: make(),
            reports: Vec::new(),
        }
    }

    /// Submits an operation, which stays in the caller's frame until it has been reported: each
    /// test ensures that.
    fn submit(&mut self, op: &Operation) -> Submitted {
        assert_eq!(op.result.get(), None);
        // SAFETY: tests keep operations, buffers and sources until the completion.
        let submitted = unsafe { self.driver.submit(OpRef::from(op)) };
        if let Submitted::Done(result) = submitted {
            op.result.set(Some(result));
        }
        submitted
    }

    #[track_caller]
    fn pending(&mut self, op: &Operation) {
        assert_eq!(self.submit(op), Submitted::Pending);
    }

    fn cancel(&mut self, op: &Operation) {
        // SAFETY: tests cancel only what is pending.
        unsafe { self.driver.cancel(OpRef::from(op), &mut self.reports) };
        self.note_reports();
    }

    fn poll(&mut self, wait: Wait) {
        self.driver.poll(wait, &mut self.reports).expect("poll");
        self.note_reports();
    }

    /// Polls for a while without waiting, so that the kernel can do its part.
    fn settle(&mut self) {
        for _ in 0..3 {
            self.poll(Wait::No);
            std::thread::sleep(Duration::from_millis(2));
        }
        self.poll(Wait::No);
    }

    /// Checks that each operation is reported once, and only while it is in flight.
    fn note_reports(&mut self) {
        for Completion { op, result } in self.reports.drain(..) {
            // SAFETY: tests keep operations until their completion.
            let op = unsafe { op.as_ref() };
            assert_eq!(op.result.replace(Some(result)), None, "reported twice");
        }
    }

    #[track_caller]
    fn wait_for(&mut self, op: &Operation) -> RawResult {
        let limit = Instant::now() + Duration::from_secs(5);
        while op.result.get().is_none() {
            assert!(Instant::now() < limit, "no completion within 5 s");
            let soon = self.driver.now() + 50_000_000;
            self.poll(Wait::Until(soon));
        }
        op.result.get().unwrap()
    }

    /// Submits and waits.
    #[track_caller]
    fn finish(&mut self, op: &Operation) -> RawResult {
        self.submit(op);
        self.wait_for(op)
    }

    /// Drops a source as the runtime does when its last user drops it.
    fn drop_source(&mut self, source: Source) {
        let id = source.id();
        drop(source);
        self.driver.forget(id);
    }
}

fn source(fd: impl Into<OwnedFd>) -> Source {
    let fd = fd.into();
    rustix::io::ioctl_fionbio(&fd, true).expect("non-blocking mode");
    Source::new(fd)
}

/// Returns a source and its peer, connected by TCP over loopback.
fn tcp_pair() -> (Source, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_nodelay(true).unwrap();
    (source(listener.accept().unwrap().0), peer)
}

fn unix_pair() -> (Source, UnixStream) {
    let (ours, peer) = UnixStream::pair().unwrap();
    (source(ours), peer)
}

fn recv(source: &Source, buf: &mut [u8]) -> Operation {
    Operation::new(
        Op::Recv {
            buf: buf.as_mut_ptr(),
            len: buf.len(),
        },
        source,
    )
}

fn send(source: &Source, buf: &[u8]) -> Operation {
    Operation::new(
        Op::Send {
            buf: buf.as_ptr(),
            len: buf.len(),
        },
        source,
    )
}

fn poll(source: &Source, interest: Interest) -> Operation {
    Operation::new(Op::Poll(interest), source)
}

/// A buffer for the peer's address: accept writes it, connect reads it.
struct Address {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl Address {
    fn empty() -> Self {
        Self {
            // SAFETY: all-zero bytes are an address of an unspecified family.
            storage: unsafe { std::mem::zeroed() },
            len: size_of::<libc::sockaddr_storage>() as libc::socklen_t,
        }
    }

    fn of(address: SocketAddr) -> Self {
        let SocketAddr::V4(v4) = address else {
            panic!("IPv4 in tests")
        };
        let mut this = Self::empty();
        // SAFETY: a storage is large enough and aligned for an IPv4 address.
        let inet = unsafe { &mut *(&raw mut this.storage).cast::<libc::sockaddr_in>() };
        inet.sin_family = libc::AF_INET as libc::sa_family_t;
        inet.sin_port = v4.port().to_be();
        inet.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
        this.len = size_of::<libc::sockaddr_in>() as libc::socklen_t;

        this
    }

    fn accept(&mut self, source: &Source) -> Operation {
        Operation::new(
            Op::Accept {
                addr: &mut self.storage,
                len: &mut self.len,
            },
            source,
        )
    }

    fn connect(&self, source: &Source) -> Operation {
        Operation::new(
            Op::Connect {
                addr: &self.storage,
                len: self.len,
            },
            source,
        )
    }
}

/// Returns a new TCP socket, not connected.
fn new_socket() -> Source {
    let fd = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    source(fd)
}

/// Returns a loopback port without a listener, kept bound so that no other socket takes it.
fn refused_address() -> (OwnedFd, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
        .unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket.into(), address)
}

/// Returns a listener whose queue is full: connecting to it hangs without an answer.
fn hanging_listener() -> (socket2::Socket, SocketAddr, Vec<socket2::Socket>) {
    let socket =
        || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let listener = socket();
    listener
        .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
        .unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let fill = (0..3)
        .map(|_| {
            let s = socket();
            s.set_nonblocking(true).unwrap();
            let _ = s.connect(&address);
            s
        })
        .collect();

    std::thread::sleep(Duration::from_millis(5));
    (listener, address.as_socket().unwrap(), fill)
}

fn write(mut peer: impl Write, bytes: &[u8]) {
    peer.write_all(bytes).unwrap();
}
