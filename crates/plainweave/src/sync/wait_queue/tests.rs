//! A list of waiters against a plain queue: whoever enters is taken off once, in order, with its
//! own tag or the one that is left for it, whether the list knows a waiter to be alone or not.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]

use std::collections::VecDeque;
use std::mem::offset_of;

use proptest::prelude::*;

use super::*;

const WAITERS: usize = 4;

/// A place with as much memory before it as a fiber's place has.
#[repr(C)]
struct Place {
    before: [u8; size_of::<Header>()],
    waiter: Waiter,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Of a fiber that is pinned to a worker, or of another.
    Enter {
        waiter: usize,
        place: QueueEnd,
        tag: u32,
        pinned: bool,
    },
    Leave(usize),
    TakeFirst,
    TakeAll(Option<u32>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = prop_oneof![Just(QueueEnd::Back), Just(QueueEnd::Front)];
    let enter = (0..WAITERS, place, 1..9u32, any::<bool>());
    let step = prop_oneof![
        4 => enter.prop_map(|(waiter, place, tag, pinned)| Step::Enter { waiter, place, tag, pinned }),
        2 => (0..WAITERS).prop_map(Step::Leave),
        2 => Just(Step::TakeFirst),
        1 => prop_oneof![Just(None), (10..19u32).prop_map(Some)].prop_map(Step::TakeAll),
    ];
    proptest::collection::vec(step, 1..40)
}

/// The list, its waiters' places, and who should be in it with which tag.
struct Model {
    list: WaitList,
    places: Vec<Place>,
    expected: VecDeque<(usize, u32)>,
    /// Whether the one in the list entered it when it was empty, pinned, and nobody has since.
    alone: bool,
}

impl Model {
    fn new() -> Self {
        let place = |_| Place {
            before: [0; size_of::<Header>()],
            waiter: Waiter::of_fiber(),
        };

        let places = (0..WAITERS).map(place).collect();
        Self {
            list: WaitList::new(),
            places,
            expected: VecDeque::new(),
            alone: false,
        }
    }

    fn place(&self, waiter: usize) -> *const Waiter {
        self.places
            .as_ptr()
            .wrapping_add(waiter)
            .wrapping_byte_add(offset_of!(Place, waiter))
            .cast()
    }

    fn enter(&mut self, waiter: usize, place: QueueEnd, tag: u32, pinned: bool) {
        if self.expected.iter().any(|(other, _)| *other == waiter) {
            return;
        }
        let home = if pinned {
            ptr::without_provenance(64)
        } else {
            ptr::null()
        };

        // SAFETY: in no list, and in place until the model ends.
        unsafe {
            self.list.enter(
                self.place(waiter),
                Entry {
                    list: 0,
                    place,
                    tag,
                },
                home,
            )
        };

        self.alone = self.expected.is_empty() && pinned;
        match place {
            QueueEnd::Back => self.expected.push_back((waiter, tag)),
            QueueEnd::Front => self.expected.push_front((waiter, tag)),
        }
    }

    fn leave(&mut self, waiter: usize) {
        // SAFETY: in place.
        let left = self.list.leave(unsafe { &*self.place(waiter) });
        let place = self.expected.iter().position(|(other, _)| *other == waiter);
        assert_eq!(left, place.is_some());
        place.map(|place| self.expected.remove(place));
    }

    /// Checks that the grant is that of the waiter which was first, by the way that the list knows
    /// for it.
    fn take_first(&mut self) {
        let grant = self.list.take_first();
        let Some((waiter, _)) = self.expected.pop_front() else {
            return assert!(grant.is_none());
        };
        let Some(Grant(Granted::Fiber(header, home))) = grant else {
            panic!("the grant of a fiber")
        };

        // SAFETY: only compared.
        assert_eq!(header, unsafe { Header::of_waiter(self.place(waiter)) });
        assert_eq!(!home.is_null(), self.alone);
    }

    fn take_all(&mut self, tag: Option<u32>) {
        let grants = self.list.take_all(tag);
        assert_eq!(grants.count, self.expected.len());
        assert_eq!(
            !grants.home.is_null(),
            self.alone && !self.expected.is_empty()
        );
        let mut next = grants.next;

        for (waiter, own) in self.expected.drain(..) {
            assert_eq!(
                next,
                self.places
                    .as_ptr()
                    .wrapping_add(waiter)
                    .wrapping_byte_add(offset_of!(Place, waiter))
                    .cast()
            );
            // SAFETY: in place.
            let waiter = unsafe { &*next };
            assert_eq!(waiter.tag.get(), tag.unwrap_or(own));
            next = if grants.home.is_null() {
                waiter.after.get()
            } else {
                ptr::null()
            };
        }

        assert!(next.is_null());
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Enter {
                waiter,
                place,
                tag,
                pinned,
            } => self.enter(waiter, place, tag, pinned),
            Step::Leave(waiter) => self.leave(waiter),
            Step::TakeFirst => self.take_first(),
            Step::TakeAll(tag) => self.take_all(tag),
        }

        let first = self.expected.front();
        assert_eq!(self.list.first.is_null(), first.is_none());
        if let Some((waiter, tag)) = first {
            assert_eq!(self.list.first, self.place(*waiter));
            // SAFETY: in place.
            let own = unsafe { &*self.list.first }.tag.get();
            assert_eq!(
                if self.list.home.is_null() {
                    own
                } else {
                    self.list.tag
                },
                *tag
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn a_list_takes_each_waiter_off_once_and_in_order(steps in steps()) {
        let mut model = Model::new();
        steps.into_iter().for_each(|step| model.run(step));
    }
}
