//! `#[plainweave::test]` and `#[plainweave::main]`: tests that should pass, and what is said of
//! those that should not.

#![expect(clippy::print_stdout, reason = "what tests print is captured")]

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plainweave::sync::Mutex;
use plainweave::sync::channel::bounded;
use plainweave::time::sleep;
use plainweave::{Builder, spawn};

#[plainweave::test]
fn fibers_meet() {
    let (sender, receiver) = bounded(1);
    spawn(move || sender.send(1));
    assert_eq!(receiver.recv().unwrap(), 1);
    assert!(plainweave::on_fiber());
    assert_eq!(plainweave::current().name(), Some("test"));
}

#[plainweave::test(
    workers = 1,
    io = "epoll",
    policy = "lifo",
    seed = 7,
    stack_size = 65536
)]
fn settings_are_taken() -> Result<(), Box<dyn std::error::Error>> {
    let metrics = plainweave::metrics().ok_or("on a fiber")?;
    assert_eq!(
        metrics
            .workers
            .iter()
            .filter(|worker| !worker.spare)
            .count(),
        1
    );
    sleep(Duration::from_millis(1))?;
    Ok(())
}

/// An hour takes no time.
#[plainweave::test(io = "sim", timeout = "30s")]
fn time_is_simulated() {
    sleep(Duration::from_secs(3600)).expect("not cancelled");
}

/// Each seed is a run of its own.
#[plainweave::test(io = "sim", seeds = 100)]
fn seeds_are_taken() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    sleep(Duration::from_secs(3600)).expect("not cancelled");
    println!("{} seeds", RUNS.fetch_add(1, Ordering::SeqCst) + 1);
}

/// A thread of the test's own may wake a fiber, in its own time.
#[plainweave::test(io = "sim")]
fn threads_wake_simulated_fibers() {
    let (sender, receiver) = bounded(1);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1500));
        sender.send(7)
    });
    assert_eq!(receiver.recv().expect("sent"), 7);
    thread.join().expect("no panic").expect("received");
}

/// A panic that is joined is the test's to judge.
#[plainweave::test(deny_leaks)]
fn a_panic_is_joined() {
    let error = spawn(|| panic!("as it should")).join().unwrap_err();
    assert!(error.is_panic());
}

#[plainweave::test]
#[should_panic(expected = "of two lines\nas it should")]
fn a_panic_is_expected() {
    panic!("of two lines\nas it should");
}

/// What fails on purpose, and is run by the tests below.
mod subjects {
    use super::*;

    #[plainweave::test(timeout = "300ms")]
    #[ignore = "run by its test"]
    fn hangs() {
        let (sender, receiver) = bounded::<()>(1);
        let waits = Builder::new().name("waits-for-ever");
        let waiting = waits.spawn(move || receiver.recv()).unwrap();
        println!("about to wait");
        let _ = waiting.join();
        drop(sender);
    }

    /// Nothing on virtual time will wake these, so it is not waited for.
    #[plainweave::test(io = "sim", timeout = "60s")]
    #[ignore = "run by its test"]
    fn waits_for_ever() {
        let (sender, receiver) = bounded::<()>(1);
        let other = Builder::new().name("gets-nothing");
        let other = other.spawn(move || receiver.recv()).unwrap();
        sleep(Duration::from_secs(7200)).expect("not cancelled");
        let _ = other.join();
        drop(sender);
    }

    /// Between the look and the step another may come, by some seeds.
    #[plainweave::test(io = "sim", seeds = 100)]
    #[ignore = "run by its test"]
    fn checks_then_acts() {
        let tickets = Arc::new(Mutex::new(1));
        let buy = |_| {
            let tickets = Arc::clone(&tickets);
            spawn(move || {
                if *tickets.lock().expect("not cancelled") > 0 {
                    *tickets.lock().expect("not cancelled") -= 1;
                }
            })
        };
        let buyers: Vec<_> = (0..2).map(buy).collect();
        buyers
            .into_iter()
            .for_each(|buyer| buyer.join().expect("no panic"));
        assert_eq!(*tickets.lock().expect("not cancelled"), 0, "sold twice");
    }

    /// No fiber runs that could be asked anything.
    #[plainweave::test(workers = 1, timeout = "300ms")]
    #[ignore = "run by its test"]
    fn spins() {
        loop {
            std::hint::spin_loop();
        }
    }

    #[plainweave::test]
    #[ignore = "run by its test"]
    fn nobody_joins() {
        let fiber = Builder::new().name("alone");
        drop(fiber.spawn(|| panic!("unseen")).unwrap());
        sleep(Duration::from_millis(50)).expect("not cancelled");
    }

    #[plainweave::test(deny_leaks)]
    #[ignore = "run by its test"]
    fn leaves_a_fiber() {
        let fiber = Builder::new().name("left-alone");
        let sleeps = || sleep(Duration::from_secs(3600));
        drop(fiber.spawn(sleeps).unwrap());
    }

    #[plainweave::test]
    #[ignore = "run by its test"]
    fn returns_an_error() -> Result<(), String> {
        Err("no such thing".to_owned())
    }

    #[plainweave::test(stack_size = 65536)]
    #[ignore = "run by its test"]
    fn overflows() {
        fn deeper(n: u64) -> u64 {
            let frame = std::hint::black_box([n; 64]);
            match frame[0] {
                u64::MAX => 0,
                n => frame[1] + deeper(n + 1),
            }
        }
        println!("{}", deeper(0));
    }

    #[plainweave::test]
    #[ignore = "run by its test"]
    fn exits() {
        std::process::exit(0);
    }

    #[plainweave::test(io = "sim", seed = 41, seeds = 5)]
    #[ignore = "run by its test"]
    fn exits_by_its_first_seed() {
        std::process::exit(3);
    }

    #[plainweave::test(io = "sim", seeds = 1000000, timeout = "500ms")]
    #[ignore = "run by its test"]
    fn has_too_many_seeds() {
        std::thread::sleep(Duration::from_millis(1));
    }

    #[plainweave::test(io = "sim", seeds = 5)]
    #[ignore = "run by its test"]
    fn exits_by_a_seed() {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        if RUNS.fetch_add(1, Ordering::SeqCst) == 2 {
            std::process::exit(3);
        }
    }

    #[plainweave::test(policy = "no-such-policy")]
    #[ignore = "run by its test"]
    fn has_no_policy() {}

    #[plainweave::test]
    #[ignore = "run by its test"]
    fn prints() {
        println!("from the test");
        let print = || println!("from another fiber");
        spawn(print).join().unwrap();
    }
}

/// Runs one of them as a user would.
fn subject(name: &str, args: &[&str], inline: bool) -> (bool, String) {
    let mut command = command_of(name, args);
    command.envs(inline.then_some(("PLAINWEAVE_TEST", "inline")));
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = [stdout, stderr].concat();
    (
        status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

fn command_of(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        &format!("attributes::subjects::{name}"),
        "--exact",
        "--ignored",
    ]);
    command.args(args).env_remove("RUST_BACKTRACE");
    // This may be a child itself.
    command.env_remove("PLAINWEAVE_TEST_CHILD");
    command.env_remove("PLAINWEAVE_SEED");
    command
}

#[track_caller]
fn fails(name: &str, says: &[&str]) {
    let (passed, text) = subject(name, &[], false);
    assert!(!passed, "{text}");
    for part in says {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains("plainweave-test"), "{text}");
}

#[test]
fn failures_say_why() {
    let late = "the test has not ended within 300ms";
    fails("hangs", &["about to wait", late, "waits-for-ever"]);
    fails("spins", &[late]);
    let began = std::time::Instant::now();
    fails(
        "waits_for_ever",
        &["gets-nothing", "fibers wait", "to receive"],
    );
    assert!(began.elapsed() < Duration::from_secs(50), "at once");
    let unseen = "a fiber panicked that nobody has joined";
    fails(
        "nobody_joins",
        &["a panic on fiber \"alone\"", "unseen", unseen],
    );
    fails(
        "leaves_a_fiber",
        &["left-alone", "1 fibers are left behind the test"],
    );
    fails("returns_an_error", &["Error: \"no such thing\""]);
    fails("overflows", &["stack", "has ended the test"]);
    fails(
        "has_no_policy",
        &["the runtime cannot start", "no-such-policy"],
    );
}

/// What depends on the order fails by some seed, which is said, and by that one each time.
#[test]
fn a_seed_is_found_and_fails_again() {
    let (passed, text) = subject("checks_then_acts", &[], false);
    assert!(!passed && text.contains("sold twice"), "{text}");
    let at = text.find("PLAINWEAVE_SEED=").expect("a seed");
    let seed = text[at..].split(' ').next().expect("a word");
    let (name, value) = seed.split_once('=').expect("a value");

    let again = |value: &str| {
        let mut command = command_of("checks_then_acts", &[]);
        let output = command.env(name, value).output().unwrap();
        (
            output.status.success(),
            [output.stdout, output.stderr].concat(),
        )
    };
    for _ in 0..5 {
        let (passed, text) = again(value);
        let text = String::from_utf8_lossy(&text);
        assert!(!passed && text.contains("sold twice"), "{text}");
    }
    let passed = (0..20).filter(|seed| again(&seed.to_string()).0).count();
    assert!(passed > 0, "by some it is not found");
    let (passed, text) = again("nonsense");
    assert!(!passed && String::from_utf8_lossy(&text).contains("not a seed"));
}

/// All seeds are run, and one that ends the process is named.
#[test]
fn each_seed_is_run() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["attributes::seeds_are_taken", "--exact", "--nocapture"]);
    command.env_remove("PLAINWEAVE_TEST_CHILD");
    let output = command.env_remove("PLAINWEAVE_SEED").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let ran = text.contains("100 seeds") && !text.contains("101 seeds");
    assert!(output.status.success() && ran, "{text}");

    fails("exits_by_a_seed", &["status 3", "(by seed 2)"]);
    fails("exits_by_its_first_seed", &["status 3", "(by seed 41)"]);
    let late = "of 1000000 seeds have passed within 500ms";
    fails("has_too_many_seeds", &[late]);
    let (passed, text) = subject("has_too_many_seeds", &[], true);
    let says = text.contains(late) && !text.contains("plainweave-test");
    assert!(!passed && says, "{text}");
}

/// In one process, for a debugger, what can be judged is judged.
#[test]
fn one_process_judges_alike() {
    for (name, why) in [
        ("hangs", "the test has not ended within 300ms"),
        ("nobody_joins", "a fiber panicked that nobody has joined"),
        ("leaves_a_fiber", "1 fibers are left"),
    ] {
        let (passed, text) = subject(name, &[], true);
        assert!(!passed && text.contains(why), "{text}");
    }
}

/// libtest shows what a test prints if it fails, or if it is asked to.
#[test]
fn what_fibers_print_is_captured() {
    let (passed, text) = subject("prints", &[], false);
    assert!(passed && !text.contains("from"), "{text}");
    let (passed, text) = subject("prints", &["--nocapture"], false);
    assert!(passed, "{text}");
    for part in ["from the test", "from another fiber"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("plainweave-test"), "{text}");
}
