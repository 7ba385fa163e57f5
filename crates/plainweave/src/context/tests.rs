//! Flows on stacks of their own: what a switch keeps, what it hands on, and where it may lead.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::*;

const SIZE: usize = 256 << 10;

/// A flow on a stack that is not its own, and the test's, which it answers.
#[derive(Debug)]
pub(crate) struct Flow {
    context: Context,
    test: Context,
}

impl Flow {
    /// Creates one on the stack from `bottom` up to `base`, which must stay until it has ended or
    /// is asked no more.
    pub(crate) fn new(bottom: usize, base: usize, entry: Entry) -> Box<Self> {
        let flow = Box::new(Self {
            context: Context::new(),
            test: Context::new(),
        });

        flow.test.adopt_thread();
        let argument = ptr::from_ref(&*flow).expose_provenance();
        // SAFETY: the tests keep stack and flow for as long.
        unsafe { flow.context.prepare(bottom, base, entry, argument) };
        flow
    }

    /// Has it go on until it answers.
    #[inline(never)]
    pub(crate) fn ask(&self, message: usize) -> usize {
        // SAFETY: it stands still, and this is the test's thread.
        unsafe { self.test.switch(&raw const self.context, 0, message) }
    }

    /// The flow's side: answers, and waits for the next question.
    #[inline(never)]
    pub(crate) fn answer(&self, message: usize) -> usize {
        // SAFETY: the test stands in `ask`.
        unsafe { self.context.switch(&raw const self.test, 0, message) }
    }

    /// Answers for the last time.
    pub(crate) fn end(&self, message: usize) -> ! {
        // SAFETY: as in `answer`; the stack is freed after this, by the test.
        unsafe { Context::leave(&raw const self.test, 0, message) }
    }
}

/// A stack that the allocator gives.
struct Memory(Box<[u128]>);

impl Memory {
    fn new() -> Self {
        Self(vec![0; SIZE / size_of::<u128>()].into())
    }

    fn flow(&self, entry: Entry) -> Box<Flow> {
        let bottom = self.0.as_ptr().expose_provenance();
        Flow::new(bottom, bottom + SIZE, entry)
    }
}

/// Returns the flow whose entry calls, with the argument that it got.
pub(crate) fn flow<'a>(argument: usize) -> &'a Flow {
    begun(0);
    let flow = ptr::with_exposed_provenance::<Flow>(argument);
    // SAFETY: the test keeps the flow until it has ended.
    unsafe { &*flow }
}

/// Computes with more values than there are registers, of both kinds, across a switch.
fn busy(flow: &Flow, seed: usize) -> usize {
    let whole: [usize; 20] = std::array::from_fn(|i| std::hint::black_box(seed * 31 + i));
    let float: [f64; 20] =
        std::array::from_fn(|i| std::hint::black_box(seed as f64 * 0.5 + i as f64));
    let got = flow.answer(seed);
    let whole: usize = whole.iter().sum();
    let float: f64 = float.iter().sum();
    got + whole + float as usize
}

/// What `busy` comes to.
fn busy_result(seed: usize, got: usize) -> usize {
    got + 20 * 31 * seed + 190 + 10 * seed + 190
}

extern "C" fn compute(argument: usize, message: usize) -> ! {
    let flow = flow(argument);
    let first = busy(flow, message);
    let second = busy(flow, first);
    flow.end(second)
}

#[test]
fn both_keep_their_registers() {
    let memory = Memory::new();
    let flow = memory.flow(compute);
    let mine: [usize; 20] = std::array::from_fn(|i| std::hint::black_box(i * i));
    let float: [f64; 20] = std::array::from_fn(|i| std::hint::black_box(i as f64 / 4.0));

    assert_eq!(flow.ask(3), 3);
    let first = flow.ask(5);
    assert_eq!(first, busy_result(3, 5));
    assert_eq!(flow.ask(7), busy_result(first, 7));
    assert_eq!(flow.context.pointer(), 0, "it was left for good");
    assert_eq!(mine.iter().sum::<usize>(), 2470);
    assert!((float.iter().sum::<f64>() - 47.5).abs() < f64::EPSILON);
}

extern "C" fn panics(argument: usize, _: usize) -> ! {
    let flow = flow(argument);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        assert!(trace.contains("panics") && trace.len() < 100_000, "{trace}");
        std::panic::resume_unwind(Box::new(flow.answer(1)));
    }));
    let payload = caught.expect_err("it panics").downcast::<usize>();
    // A block of its own: what is alive at the end is never dropped.
    let answer = {
        let payload = payload.expect("what was thrown");
        *payload + 1
    };
    flow.end(answer)
}

#[test]
fn a_panic_is_caught_on_its_stack_and_a_walk_ends_there() {
    let memory = Memory::new();
    let flow = memory.flow(panics);
    assert_eq!(flow.ask(0), 1);
    assert_eq!(flow.ask(41), 42);
}

extern "C" fn goes_on_with(argument: usize, message: usize) -> ! {
    let flow = flow(argument);
    let other = ptr::with_exposed_provenance::<Flow>(message);
    // SAFETY: the test keeps the other flow, which has begun and stands still.
    let other = unsafe { &*other };
    // SAFETY: as above; the test waits for `other`'s answer.
    unsafe {
        let back = flow.context.switch(&raw const other.context, 0, 5);
        Context::leave(&raw const other.context, 0, back * 2)
    }
}

extern "C" fn relays(argument: usize, message: usize) -> ! {
    let mine = flow(argument);
    let got = mine.answer(0);
    let other = ptr::with_exposed_provenance::<Flow>(message);
    // SAFETY: as in `goes_on_with`, which stands in its switch to this flow.
    let doubled = unsafe { mine.context.switch(&raw const (*other).context, 0, got + 1) };
    mine.end(doubled)
}

#[test]
fn a_flow_goes_on_with_any_other() {
    let stacks = [Memory::new(), Memory::new()];
    let (first, second) = (stacks[0].flow(goes_on_with), stacks[1].flow(relays));
    assert_eq!(second.ask(ptr::from_ref(&*first).expose_provenance()), 0);
    // The first goes on with the second, which goes back to the first, which ends; then the second
    // answers the test that asked it, in the first's place.
    let second_at = ptr::from_ref(&*second).expose_provenance();
    // SAFETY: both stand still.
    let answer = unsafe { second.test.switch(&raw const first.context, 0, second_at) };
    assert_eq!(answer, 12);
}

#[test]
fn this_machine_can_switch() {
    available().expect("no shadow stack");
}
