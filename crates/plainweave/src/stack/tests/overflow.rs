//! Each case runs in a child process: this test binary again, with the case in an environment
//! variable.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use super::super::guard::Guards;
use super::super::{overflow, table};
use super::*;
use crate::context::tests::{Flow, flow};

const CASE: &str = "PLAINWEAVE_STACK_TEST";

fn run(case: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command.args([
        "--exact",
        "stack::tests::overflow::child",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env(CASE, case).output().expect("a child")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Uses up the stack, about a page per call.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 256]);
    if depth == u64::MAX {
        0
    } else {
        recurse(depth + 1) + std::hint::black_box(frame)[7]
    }
}

/// Overflows a fiber called `name` (unnamed if empty, a stack without owner if `None`) on a stack
/// of this pool.
fn overflow_on(pool: &StackPool, name: Option<&str>) {
    overflow::install(std::ptr::null);
    let _alt = ensure_alt_stack().expect("an alternate stack");
    let _others: Vec<Stack> = (0..70).map(|_| pool.take().expect("stack")).collect();
    let stack = pool.take().expect("stack");
    let text = name.unwrap_or_default();
    let info = OverflowInfo {
        name_ptr: text.as_ptr(),
        name_len: text.len(),
        id: 4711,
    };

    if name.is_some() {
        stack.set_owner(std::ptr::from_ref(&info).cast());
    }
    let flow = Flow::new(stack.bottom_address(), stack.base(), overflows);
    flow.ask(0);
}

extern "C" fn overflows(argument: usize, _: usize) -> ! {
    let flow = flow(argument);
    flow.end(recurse(0) as usize)
}

/// Address 8, because Rust checks null pointers itself in debug builds.
const NOWHERE: usize = 8;

fn null_dereference() {
    let pointer = std::hint::black_box(std::ptr::without_provenance_mut::<u8>(NOWHERE));
    // SAFETY: none; the child is meant to die of it.
    unsafe { pointer.write_volatile(1) };
}

extern "C" fn exit_with_43(_: libc::c_int) {
    // SAFETY: `_exit` may be called in a handler.
    unsafe { libc::_exit(43) }
}

extern "C" fn exit_with_42(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's siginfo, handed on; `_exit` may be called in a handler.
    unsafe {
        libc::_exit(
            if signal == libc::SIGSEGV && (*info).si_addr().addr() == NOWHERE {
                42
            } else {
                1
            },
        )
    }
}

fn set_action(handler: usize, flags: libc::c_int) {
    // SAFETY: a zeroed action with a handler of the signature that the flags ask for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
    }
}

/// Does nothing in the parent; in a child, runs the case.
#[test]
fn child() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    let mprotect = StackConfig {
        guard: GuardMode::Mprotect,
        ..config(64 << 10)
    };

    match case.as_str() {
        "overflow" => overflow_on(
            &StackPool::new(config(64 << 10)).expect("pool"),
            Some("weaver"),
        ),
        "overflow, mprotect" => {
            overflow_on(&StackPool::new(mprotect).expect("pool"), Some("weaver"))
        }
        "overflow, no owner" => overflow_on(&StackPool::new(config(64 << 10)).expect("pool"), None),
        "overflow, no name" => {
            overflow_on(&StackPool::new(config(64 << 10)).expect("pool"), Some(""))
        }
        "overflow, own alternate stack" => {
            let none = libc::stack_t {
                ss_sp: std::ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            };

            // SAFETY: withdraws the alternate stack that Rust gave this thread; its memory stays.
            unsafe { libc::sigaltstack(&none, std::ptr::null_mut()) };
            overflow_on(
                &StackPool::new(config(64 << 10)).expect("pool"),
                Some("weaver"),
            );
        }
        "locked" => locked_memory(),
        "wild pointer into a guard" => {
            let pool = StackPool::new(config(64 << 10)).expect("pool");
            let stack = pool.take().expect("stack");
            overflow::install(std::ptr::null);
            // SAFETY: none; the child is meant to die of it.
            unsafe { stack.bottom().wrapping_sub(8).write_volatile(1) };
        }
        "default" => {
            set_action(libc::SIG_DFL, 0);
            overflow::install(std::ptr::null);
            null_dereference();
        }
        "ignore" => {
            set_action(libc::SIG_IGN, 0);
            overflow::install(std::ptr::null);
            // SAFETY: sends a signal to this thread.
            unsafe { libc::raise(libc::SIGSEGV) };
            null_dereference();
        }
        "rust's own" => {
            overflow::install(std::ptr::null);
            overflow::install(std::ptr::null);
            null_dereference();
        }
        "sent" => {
            set_action(libc::SIG_DFL, 0);
            overflow::install(std::ptr::null);
            // SAFETY: sends a signal to this thread.
            unsafe { libc::raise(libc::SIGSEGV) };
        }
        "with siginfo" => {
            set_action(exit_with_42 as *const () as usize, libc::SA_SIGINFO);
            overflow::install(std::ptr::null);
            null_dereference();
        }
        "without siginfo" => {
            set_action(exit_with_43 as *const () as usize, 0);
            overflow::install(std::ptr::null);
            null_dereference();
        }
        other => panic!("no case {other}"),
    }

    panic!("survived");
}

/// Exits 0 when light guards work although all memory is locked, 77 when this process may not lock
/// memory.
fn locked_memory() -> ! {
    // Without MCL_ONFAULT, so that a writable mapping would be filled at once.
    // SAFETY: `mlockall` has no preconditions.
    if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } != 0 {
        std::process::exit(77);
    }
    let light =
        StackPool::new(config(1 << 20)).is_ok_and(|pool| pool.stats().guard == GuardKind::Madvise);
    let pool = StackPool::with_guards(config(1 << 20), Guards::new(GuardMode::Auto)).expect("pool");
    let guard = pool.stats().guard;
    let stack = pool.take().expect("stack");

    assert_eq!(
        stack.high_water(),
        0,
        "a lazily committed stack stays so under mlockall"
    );

    // Now the slab is locked after it was made: guards are refused until it is unlocked again.
    // SAFETY: as above.
    if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) } != 0 {
        std::process::exit(77);
    }
    touch(&stack, 64 << 10);
    stack.shrink(0);
    assert_eq!(stack.high_water(), 0, "locked pages are given back as well");
    let later: Vec<Stack> = (0..10).map(|_| pool.take().expect("stack")).collect();

    assert!(
        later
            .iter()
            .all(|stack| !writable(stack.bottom().wrapping_sub(1)))
    );
    assert_eq!(pool.stats().guard, guard);
    let kernel_has_it = light || guard == GuardKind::Madvise;

    std::process::exit(if kernel_has_it { 0 } else { 78 });
}

/// What follows the fiber in the message; libtest names the thread after the test, and the kernel
/// cuts that.
const OVERFLOWED: &str = "on thread 'stack::tests::o' has overflowed its stack of 64 KiB at 0x";

#[test]
fn an_overflow_names_the_fiber_and_aborts() {
    for case in [
        "overflow",
        "overflow, mprotect",
        "overflow, own alternate stack",
    ] {
        let output = run(case);
        let text = stderr(&output);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGABRT),
            "{case}: {text}"
        );
        let from = text
            .find("plainweave: ")
            .unwrap_or_else(|| panic!("{case}: {text}"));
        let line = text[from..].lines().next().expect("a line");
        let start = format!("plainweave: fiber 'weaver' (#4711) {OVERFLOWED}");
        let end = "; raise it with Builder::stack_size or Runtime::builder().stack_size(..)";

        assert!(
            line.starts_with(&start) && line.ends_with(end),
            "{case}: {line}"
        );
        let address = &line[start.len()..line.len() - end.len()];
        assert!(
            usize::from_str_radix(address, 16).is_ok(),
            "{case}: {address}"
        );
    }

    let text = stderr(&run("overflow, no name"));
    assert!(
        text.contains(&format!("plainweave: fiber #4711 {OVERFLOWED}")),
        "{text}"
    );
    let text = stderr(&run("overflow, no owner"));
    assert!(
        text.contains(&format!("plainweave: a fiber {OVERFLOWED}")),
        "{text}"
    );
}

#[test]
fn other_faults_go_where_they_went_before() {
    for case in [
        "default",
        "ignore",
        "rust's own",
        "sent",
        "wild pointer into a guard",
    ] {
        let output = run(case);
        let text = stderr(&output);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGSEGV),
            "{case}: {text}"
        );
        assert!(!text.contains("plainweave: "), "{case}: {text}");
    }

    assert_eq!(run("with siginfo").status.code(), Some(42));
    assert_eq!(run("without siginfo").status.code(), Some(43));
}

#[test]
fn locked_memory_gets_guards_all_the_same() {
    let output = run("locked");
    let code = output.status.code();
    // 77: may not lock memory here; 78: a kernel without light guards.
    assert!(
        matches!(code, Some(0 | 77 | 78)),
        "{code:?}: {}",
        stderr(&output)
    );
}

#[test]
fn an_alternate_stack_is_made_once_and_withdrawn() {
    std::thread::spawn(|| {
        let none = libc::stack_t {
            ss_sp: std::ptr::null_mut(),
            ss_flags: libc::SS_DISABLE,
            ss_size: 0,
        };

        // SAFETY: withdraws the alternate stack that Rust gave this thread; its memory stays.
        unsafe { libc::sigaltstack(&none, std::ptr::null_mut()) };
        let first = ensure_alt_stack().expect("ours");
        let second = ensure_alt_stack().expect("no second one");
        assert!(first.is_ours() && !second.is_ours());
        drop(second);
        assert!(!ensure_alt_stack().expect("still there").is_ours());
        drop(first);
        assert!(ensure_alt_stack().expect("a new one").is_ours());
    })
    .join()
    .expect("the thread's checks hold");
}

/// The alternate stack that `std` made for the thread.
#[test]
fn a_small_alternate_stack_is_replaced_and_put_back() {
    std::thread::spawn(|| {
        let present = || {
            let mut stack = libc::stack_t {
                ss_sp: std::ptr::null_mut(),
                ss_flags: 0,
                ss_size: 0,
            };

            // SAFETY: a null new stack only asks.
            unsafe { libc::sigaltstack(std::ptr::null(), &mut stack) };
            (stack.ss_sp.addr(), stack.ss_size)
        };

        let before = present();
        let ours = ensure_alt_stack().expect("ours");
        assert!(ours.is_ours() && present().1 > before.1, "{before:?}");
        drop(ours);
        assert_eq!(present(), before);
    })
    .join()
    .expect("the thread's checks hold");
}

#[test]
fn a_reused_entry_is_never_read_half() {
    let stop = std::sync::atomic::AtomicBool::new(false);
    let pool = StackPool::new(config(MIN_SIZE)).expect("pool");
    let stack = pool.take().expect("stack");
    let top = stack.top().addr().get();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                drop(StackPool::new(config(64 << 10)).expect("pool"));
            }
            stop.store(true, Ordering::Release);
        });
        while !stop.load(Ordering::Acquire) {
            // SAFETY: the pool that holds the address outlives the call.
            let hit = unsafe { table::lookup(top - 1) }.expect("registered throughout");
            assert_eq!(
                (hit.slot_base, hit.size),
                (top - MIN_SIZE - GUARD_SIZE, MIN_SIZE)
            );
        }
    });

    pool.put(stack);
}
