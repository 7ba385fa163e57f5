//! Threads and locks of each system, in one shape.

/// Over the locks of a crate, whose `lock` and `wait` give results.
macro_rules! shape {
    ($($path:ident)::+, $spawn:path, $yield:path, $handle:ty, |$condvar:ident, $guard:ident| $wait:expr) => {
        pub use $($path)::+::atomic::AtomicUsize;
        use $($path)::+ as sync;

        pub struct Mutex<T>(sync::Mutex<T>);

        impl<T> Mutex<T> {
            pub fn new(value: T) -> Self {
                Self(sync::Mutex::new(value))
            }

            pub fn lock(&self) -> sync::MutexGuard<'_, T> {
                self.0.lock().expect("free")
            }
        }

        pub struct Condvar(sync::Condvar);

        impl Condvar {
            pub fn new() -> Self {
                Self(sync::Condvar::new())
            }

            #[allow(unused_mut, reason = "not all wait in place")]
            pub fn wait<'a, T>(&self, mut $guard: sync::MutexGuard<'a, T>) -> sync::MutexGuard<'a, T> {
                let $condvar = &self.0;
                $wait
            }

            pub fn notify_one(&self) {
                self.0.notify_one();
            }

            pub fn notify_all(&self) {
                self.0.notify_all();
            }
        }

        pub struct Handle($handle);

        impl Handle {
            /// Goes on with the other's panic.
            pub fn join(self) {
                self.0.join().expect("no panic");
            }
        }

        pub fn spawn(f: impl FnOnce() + Send + 'static) -> Handle {
            Handle($spawn(f))
        }

        pub fn yield_now() {
            $yield();
        }
    };
}

pub mod fibers {
    pub mod on {
        shape!(
            plainweave::sync,
            plainweave::spawn,
            plainweave::yield_now,
            plainweave::JoinHandle<()>,
            |condvar, guard| {
                condvar.wait(&mut guard).expect("woken");
                guard
            }
        );
    }
    pub mod bugs {
        include!("bugs.rs");
    }
}

pub mod shuttled {
    pub mod on {
        shape!(
            shuttle::sync,
            shuttle::thread::spawn,
            shuttle::thread::yield_now,
            shuttle::thread::JoinHandle<()>,
            |condvar, guard| condvar.wait(guard).expect("woken")
        );
    }
    pub mod bugs {
        include!("bugs.rs");
    }
}

pub mod threads {
    pub mod on {
        shape!(
            std::sync,
            std::thread::spawn,
            std::thread::yield_now,
            std::thread::JoinHandle<()>,
            |condvar, guard| condvar.wait(guard).expect("woken")
        );
    }
    pub mod bugs {
        include!("bugs.rs");
    }
}
