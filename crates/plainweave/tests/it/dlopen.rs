//! Fibers with thread-local storage of their own, and libraries that are loaded while the program
//! runs. Such a library's thread-locals hang on a table of the block, and must be as new for each
//! fiber, however the block was used.
//!
//! What is loaded stays so for the whole process, hence a process for each test.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

use std::ffi::{CString, c_int};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::*;
use plainweave::{Io, Movement, Runtime, yield_now};

/// The library's functions.
#[derive(Clone, Copy)]
struct Library {
    next: extern "C" fn() -> c_int,
    left: extern "C" fn() -> c_int,
}

impl Library {
    /// Builds and loads it.
    fn load() -> Self {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dlopen/library.c");
        let target = format!(
            "{}/library-{}.so",
            env!("CARGO_TARGET_TMPDIR"),
            std::process::id()
        );
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o", &target, source])
            .status();
        assert!(
            built.is_ok_and(|status| status.success()),
            "cc builds {source}"
        );
        let path = CString::new(&*target).expect("no zeros");

        // SAFETY: valid strings; the library runs no code when it is loaded, is never unloaded, and
        // its functions are of these types.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            std::fs::remove_file(target).expect("there");
            let [next, left] = [c"next", c"left"].map(|name| libc::dlsym(library, name.as_ptr()));
            assert!(!library.is_null() && !next.is_null() && !left.is_null());
            Self {
                next: std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> c_int>(next),
                left: std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> c_int>(left),
            }
        }
    }

    /// Checks that the calling fiber finds initial values, and later those that it has set, on
    /// whatever thread it runs.
    fn is_ones_own(self) {
        assert_eq!((self.left)(), 0);
        for n in 0..20 {
            assert_eq!((self.next)(), 7 + n);
            yield_now();
            assert_eq!((self.left)(), n + 1);
        }
    }
}

fn runtime(io: Io) -> Runtime {
    // No spare workers: each keeps free blocks, which are counted here.
    let builder = Runtime::builder()
        .io(io)
        .workers(2)
        .max_workers(2)
        .report_stalls(false);
    builder
        .own_storage()
        .movement(Movement::Anytime)
        .build()
        .expect("a runtime")
}

/// Far more fibers than blocks.
fn each_has_its_own(runtime: &Runtime, library: Library) {
    for _ in 0..50 {
        let fibers: Vec<_> = (0..40)
            .map(|_| runtime.spawn(move || library.is_ones_own()))
            .collect();
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("as new"));
    }

    assert!(
        runtime.metrics().storage_blocks < 300,
        "{} blocks",
        runtime.metrics().storage_blocks
    );
}

/// Runs `test` in a process of its own, for each driver.
fn in_processes(name: &str, test: impl Fn(Io)) {
    let drivers = [("epoll", Io::Epoll), ("uring", Io::Uring)];
    if let Some((_, io)) = drivers.into_iter().find(|(part, _)| is_child(part)) {
        return unless_it_hangs(name, || test(io));
    }
    for (part, _) in drivers {
        let output = in_child(name, part, &[]);
        assert!(output.status.success(), "{part}: {}", stderr_of(&output));
    }
}

#[test]
fn loaded_before_the_first_fiber() {
    in_processes("loaded_before_the_first_fiber", |io| {
        let library = Library::load();
        each_has_its_own(&runtime(io), library);
    });
}

#[test]
fn loaded_while_blocks_are_free() {
    in_processes("loaded_while_blocks_are_free", |io| {
        let runtime = runtime(io);
        for fiber in (0..100)
            .map(|_| runtime.spawn(yield_now))
            .collect::<Vec<_>>()
        {
            fiber.join().expect("no panic");
        }
        each_has_its_own(&runtime, Library::load());
    });
}

#[test]
fn loaded_by_a_fiber_while_others_run() {
    in_processes("loaded_by_a_fiber_while_others_run", |io| {
        let runtime = runtime(io);
        let loaded = Arc::new(std::sync::OnceLock::new());
        let running = Arc::new(AtomicUsize::new(0));
        let fibers: Vec<_> = (0..40)
            .map(|_| {
                let loaded = loaded.clone();
                let running = running.clone();
                runtime.spawn(move || {
                    running.fetch_add(1, Ordering::SeqCst);
                    let library: Library = loop {
                        match loaded.get() {
                            Some(library) => break *library,
                            None => yield_now(),
                        }
                    };
                    library.is_ones_own();
                })
            })
            .collect();
        eventually("all run", || running.load(Ordering::SeqCst) == 40);
        let library = runtime.spawn(Library::load).join().expect("no panic");

        assert!(loaded.set(library).is_ok());
        fibers
            .into_iter()
            .for_each(|fiber| fiber.join().expect("as new"));
        each_has_its_own(&runtime, library);
    });
}

/// Neither the tables nor what hangs on them is left behind.
#[test]
fn nothing_is_lost() {
    in_processes("nothing_is_lost", |io| {
        let runtime = runtime(io);
        let library = Library::load();
        // SAFETY: no preconditions.
        let in_use = || unsafe { libc::mallinfo2() }.uordblks;
        each_has_its_own(&runtime, library);
        let before = in_use();

        for _ in 0..5 {
            each_has_its_own(&runtime, library);
        }

        // Some of the blocks have the library's storage, and which ones changes.
        let swing = runtime.metrics().storage_blocks * (16 << 10);
        let more = in_use().saturating_sub(before);
        assert!(
            more < swing,
            "10,000 fibers left {more} bytes, more than {swing}"
        );
    });
}
