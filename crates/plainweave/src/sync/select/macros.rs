//! The macro. It turns each branch into a value that implements `Source`, runs them, and then, with
//! all of them gone, runs the body of the one that has an output.

/// Waits until the first of several operations can be done, does it, and runs the body of its
/// branch.
///
/// ```
/// use std::time::Duration;
/// use plainweave::sync::{channel, select};
///
/// plainweave::run(|| {
///     let (requests, to_serve) = channel::bounded(8);
///     let (stop, stopped) = channel::bounded::<()>(0);
///     let server = plainweave::spawn(move || loop {
///         select! {
///             recv(to_serve) -> request => match request {
///                 Ok(n) => assert_eq!(n, 1),
///                 Err(_) => break "no more requests",
///             },
///             recv(stopped) -> _ => break "stopped",
///             after(Duration::from_secs(5)) => break "idle",
///         }
///         .expect("not cancelled")
///     });
///     requests.send(1).unwrap();
///     drop(stop);
///     assert_eq!(server.join().unwrap(), "stopped");
/// });
/// ```
///
/// | branch | is done when | gives |
/// |---|---|---|
/// | `recv(receiver) -> result` | a value was received, or the channel is closed (of `broadcast`, too) | as `recv` |
/// | `send(sender, value) -> result` | the value was sent, or the channel is closed | as `send` |
/// | `acquire(semaphore) -> result` | there was a permit, or the semaphore is closed | as `acquire` |
/// | `signal(signals) -> result` | a signal has come | as [`Signals::wait`](crate::signal::Signals::wait) |
/// | `changed(receiver) -> result` | a `watch` has a value that was not seen, or no sender | as `changed` |
/// | `notified(notify)` | a [`Notify`](crate::sync::Notify), or a `Notified`, was notified | |
/// | `promise(promise) -> result` | the promise has ended | as [`Promise::wait`](crate::sync::Promise::wait) |
/// | `join(handle) -> result` | the fiber has ended | as `join`; the handle is used up |
/// | `join_next(set) -> result` | a fiber of a `JoinSet` has ended, or none is left | as `join_next` |
/// | `readable(socket)`, `writable(stream)` | a read (of a listener, an accept) or a write would not block | |
/// | `after(duration)`, `at(instant)` | the time has come | |
/// | `tick(interval) -> instant` | the next time of a [`time::Interval`](crate::time::Interval) has come | it |
/// | `future(future) -> output` | the future, which the select polls, has ended (lend one to keep it) | its output |
/// | `default` | nothing else can be done at once; the select does not wait for that | |
///
/// Where several can be done at once, one of them is chosen at random; after a wait, the one that
/// ended it. After `biased;` it is the first that is written, always: put what ends a loop before
/// what keeps it busy. Branches are separated by commas, which a block in braces may leave out;
/// there may be one `default`, as the last.
///
/// ```
/// # use plainweave::sync::{Notify, channel, select};
/// # plainweave::run(|| {
/// let (stop, (jobs, to_do)) = (Notify::new(), channel::unbounded());
/// (0..100).for_each(|n| jobs.send(n).unwrap());
/// stop.notify_one();
/// let stopped = select! {
///     biased;
///     notified(stop) => true,
///     recv(to_do) -> _ => false,
/// };
/// assert!(stopped.unwrap());
/// # });
/// ```
///
/// # Conditions
/// `, if condition` between a branch and its `=>` disables the branch where the condition is false:
/// it is neither tried nor waited for. All conditions are evaluated, in order, before the branches'
/// arguments; the arguments are evaluated in any case.
///
/// ```
/// # use plainweave::sync::{channel, select};
/// # plainweave::run(|| {
/// let (requests, incoming) = channel::bounded(8);
/// let (replies, outgoing) = channel::bounded(1);
/// requests.send(20).unwrap();
/// let mut reply = None;
/// for _ in 0..2 {
///     select! {
///         recv(incoming) -> request, if reply.is_none() => reply = request.ok().map(|n| n + 1),
///         send(replies, &mut reply) -> _, if reply.is_some() => (),
///     }
///     .unwrap();
/// }
/// assert_eq!(outgoing.recv().unwrap(), 21);
/// # });
/// ```
///
/// # What losing branches keep
/// A branch that is not chosen has done nothing: it has received no value, sent none, and used up
/// no result. Arguments are evaluated once, in order, before anything is tried. A value given to
/// `send` is dropped like an argument of any other call if its branch is not chosen. To keep it,
/// lend it: `send(sender, &mut slot)`, where `slot` is an `Option` with the value. It is taken if
/// it is sent, and comes back in the error if the channel is closed; while the slot is empty, the
/// branch cannot be done. `join` takes the name of a handle that is declared `mut`, of any of the
/// three kinds; it is moved if its branch is chosen, and else waits for the next select.
///
/// # Errors
/// The value of the macro is a [`Result`](std::io::Result): that of the chosen body, or why nothing
/// was chosen: the caller was cancelled ([`is_cancelled`](crate::is_cancelled)) or ran into its
/// deadline ([`TimedOut`](std::io::ErrorKind::TimedOut)) before anything could be done, or all
/// conditions were false ([`InvalidInput`](std::io::ErrorKind::InvalidInput)). With `default` it is
/// never an error.
///
/// A socket that was readable may not be so any more when its body reads, if others read from it
/// too: then the read waits. A fiber that waits for sockets is pinned to its worker meanwhile.
///
/// Bodies run after the select: they may use what the branches use, leave by `return`, `break` and
/// `?`, and panic.
///
/// Context: any thread or fiber; may suspend without `default`.
#[macro_export]
macro_rules! select {
    () => {
        ::core::compile_error!("`select!` has no branch to wait for")
    };
    (biased; $($branches:tt)+) => {
        $crate::__select!(@branch [(biased)] $($branches)+)
    };
    ($($branches:tt)+) => {
        $crate::__select!(@branch [] $($branches)+)
    };
}

/// The parts of [`select!`]. `@branch` reads what is waited for, `@result` and `@plain` what
/// follows it, and `@body` what is then done, into a list of `(names (initial value) (condition)
/// (binding) (body))`; names that one step of a macro makes up differ from those of another.
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    (@branch [$($done:tt)*] recv($receiver:expr) -> $($rest:tt)+) => {
        $crate::__select!(@result [$($done)*] [branch output value] ($receiver.select_branch()) (value) $($rest)+)
    };
    (@branch [$($done:tt)*] changed($watched:expr) -> $($rest:tt)+) => {
        $crate::__select!(@result [$($done)*] [branch output value] ($watched.select_branch()) (value) $($rest)+)
    };
    (@branch [$($done:tt)*] future($future:expr) -> $($rest:tt)+) => {
        $crate::__select!(@result [$($done)*] [branch output value]
            ($crate::sync::select::FutureBranch::new($future)) (value) $($rest)+)
    };
    (@branch [$($done:tt)*] tick($interval:expr) -> $($rest:tt)+) => {
        $crate::__select!(@result [$($done)*] [branch output value] ($interval.select_branch()) (value) $($rest)+)
    };
    (@branch [$($done:tt)*] send($sender:expr, &mut $slot:expr) -> $($rest:tt)+) => {
        $crate::__select!(@result [$($done)*] [branch output value]
            ($crate::sync::select::SendBranch::lent(&$sender, &mut $slot)) (value) $($rest)+)
    };
    (@branch [$($done:tt)*] send($sender:expr, $value:expr) -> $($rest:tt)+) => {
        $crate::__select!(@result [$($done)*] [branch output value]
            ($crate::sync::select::SendBranch::new(&$sender, $value)) (value) $($rest)+)
    };
    (@branch [$($done:tt)*] acquire($semaphore:expr) -> $($rest:tt)+) => {
        $crate::__select!(@result [$($done)*] [branch output value]
            ($crate::sync::select::AcquireBranch::new(&$semaphore)) (value) $($rest)+)
    };
    (@branch [$($done:tt)*] signal($signals:expr) -> $($rest:tt)+) => {
        $crate::__select!(@result [$($done)*] [branch output value] ($signals.select_branch()) (value) $($rest)+)
    };
    (@branch [$($done:tt)*] promise($promise:expr) -> $($rest:tt)+) => {
        $crate::__select!(@result [$($done)*] [branch output value] ($promise.select_branch()) (value) $($rest)+)
    };
    (@branch [$($done:tt)*] join_next($set:expr) -> $($rest:tt)+) => {
        $crate::__select!(@result [$($done)*] [branch output value] ($set.select_branch()) (value) $($rest)+)
    };
    (@branch [$($done:tt)*] join($handle:ident) -> $($rest:tt)+) => {
        $crate::__select!(@result [$($done)*] [branch output value] ($handle.select_branch()) ({
            let () = value;
            $handle.join()
        }) $($rest)+)
    };
    (@branch [$($done:tt)*] notified($notify:expr) $($rest:tt)+) => {
        $crate::__select!(@plain [$($done)*] [branch output value]
            ($notify.select_branch()) (let () = value;) $($rest)+)
    };
    (@branch [$($done:tt)*] after($limit:expr) $($rest:tt)+) => {
        $crate::__select!(@plain [$($done)*] [branch output value]
            ($crate::sync::select::TimerBranch::after($limit)) (let () = value;) $($rest)+)
    };
    (@branch [$($done:tt)*] at($time:expr) $($rest:tt)+) => {
        $crate::__select!(@plain [$($done)*] [branch output value]
            ($crate::sync::select::TimerBranch::at($time)) (let () = value;) $($rest)+)
    };
    (@branch [$($done:tt)*] readable($socket:expr) $($rest:tt)+) => {
        $crate::__select!(@plain [$($done)*] [branch output value]
            ($socket.readable_branch()) (let () = value;) $($rest)+)
    };
    (@branch [$($done:tt)*] writable($stream:expr) $($rest:tt)+) => {
        $crate::__select!(@plain [$($done)*] [branch output value]
            ($stream.writable_branch()) (let () = value;) $($rest)+)
    };
    (@branch [$($done:tt)*] default => $body:expr $(,)?) => {
        $crate::__select!(@run [$($done)*] [$body])
    };
    (@branch [$($done:tt)+]) => {
        $crate::__select!(@run [$($done)+] [])
    };
    (@branch [$($done:tt)*] $($wrong:tt)+) => {
        $crate::__select!(@wrong $($wrong)+)
    };
    (@wrong $($wrong:tt)+) => {
        ::core::compile_error!(::core::concat!(
            "`select!` expects branches like `recv(receiver) -> result => body`, separated by commas: `recv`, `send`, ",
            "`changed`, `acquire`, `signal`, `promise`, `join`, `join_next`, `tick` and `future` with a result, ",
            "`notified`, `readable`, `writable`, `after` and `at` without, `, if condition` before `=>` where one is ",
            "to be disabled at times, and `default => body` as the last; found: `",
            ::core::stringify!($($wrong)+),
            "`"
        ))
    };
    (@result [$($done:tt)*] [$($name:ident)+] ($initial:expr) ($outcome:expr)
        $result:pat $(, if $condition:expr)? => $($rest:tt)+
    ) => {
        $crate::__select!(@body [$($done)*] [
            ($($name)+) ($initial) ($crate::__select!(@is_enabled $($condition)?)) (let $result = $outcome;)
        ] $($rest)+)
    };
    (@plain [$($done:tt)*] [$($name:ident)+] ($initial:expr) ($($binding:tt)+)
        $(, if $condition:expr)? => $($rest:tt)+
    ) => {
        $crate::__select!(@body [$($done)*] [
            ($($name)+) ($initial) ($crate::__select!(@is_enabled $($condition)?)) ($($binding)+)
        ] $($rest)+)
    };
    // What follows is not what should. (Not a branch, which would begin a select of its own.)
    (@result [$($done:tt)*] [$($name:ident)+] ($initial:expr) ($outcome:expr) $($wrong:tt)+) => {
        $crate::__select!(@wrong $($wrong)+)
    };
    (@plain [$($done:tt)*] [$($name:ident)+] ($initial:expr) ($($binding:tt)+) $($wrong:tt)+) => {
        $crate::__select!(@wrong $($wrong)+)
    };
    (@is_enabled) => { true };
    (@is_enabled $condition:expr) => { $condition };
    (@body [$($done:tt)*] [$($branch:tt)+] $body:block, $($rest:tt)*) => {
        $crate::__select!(@branch [$($done)* ($($branch)+ ($body))] $($rest)*)
    };
    (@body [$($done:tt)*] [$($branch:tt)+] $body:block $($rest:tt)*) => {
        $crate::__select!(@branch [$($done)* ($($branch)+ ($body))] $($rest)*)
    };
    (@body [$($done:tt)*] [$($branch:tt)+] $body:expr, $($rest:tt)*) => {
        $crate::__select!(@branch [$($done)* ($($branch)+ ($body))] $($rest)*)
    };
    (@body [$($done:tt)*] [$($branch:tt)+] $body:expr) => {
        $crate::__select!(@branch [$($done)* ($($branch)+ ($body))])
    };
    (@run [(biased) $($branches:tt)*] [$($default:expr)?]) => {
        $crate::__select!(@do true [$($branches)*] [$($default)?])
    };
    (@run [$($branches:tt)*] [$($default:expr)?]) => {
        $crate::__select!(@do false [$($branches)*] [$($default)?])
    };
    (@do $biased:tt [] [$default:expr]) => {
        $crate::__select!(@ok $default)
    };
    (@do $biased:tt [$((
        ($branch:ident $output:ident $value:ident) ($initial:expr) ($condition:expr) ($($binding:tt)*) ($body:expr)
    ))+] [$($default:expr)?]) => {{
        // Temporaries in the branches' arguments live until all branches are gone, at the end of
        // this statement.
        let ($($output,)+ _interrupt) = match ([$($condition),+], ($($initial,)+)) {
            (enabled, ($(mut $branch,)+)) => {
                let interrupt = $crate::sync::select::run(
                    &mut [$($branch.case()),+],
                    &enabled,
                    $crate::__select!(@is_some $($default)?),
                    $biased,
                );
                ($($branch.output(),)+ interrupt)
            }
        };

        $(if let ::core::option::Option::Some($value) = $output {
            $($binding)*
            $crate::__select!(@ok $body)
        } else)+ {
            $crate::__select!(@otherwise _interrupt $($default)?)
        }
    }};
    (@is_some) => { false };
    (@is_some $default:expr) => { true };
    (@otherwise $interrupt:ident) => {
        ::core::result::Result::Err($crate::sync::select::interrupted($interrupt))
    };
    (@otherwise $interrupt:ident $default:expr) => {
        $crate::__select!(@ok $default)
    };
    (@ok $body:expr) => {
        match $body {
            // After a body that leaves by `return`, say.
            #[allow(unreachable_code)]
            done => ::core::result::Result::<_, ::std::io::Error>::Ok(done),
        }
    };
}
