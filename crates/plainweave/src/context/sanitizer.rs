//! What AddressSanitizer has to know of a switch: nothing without the feature `sanitizer`.

#[cfg(feature = "sanitizer")]
pub(super) use known::{Shadow, after_switch, before_switch};
#[cfg(not(feature = "sanitizer"))]
pub(super) use nothing::{Shadow, after_switch, before_switch};

#[cfg(not(feature = "sanitizer"))]
mod nothing {
    /// Nothing.
    #[derive(Debug)]
    pub(in super::super) struct Shadow;

    impl Shadow {
        pub(in super::super) const fn new() -> Self {
            Self
        }

        pub(in super::super) fn adopt_thread(&self) {}

        #[inline(always)]
        pub(in super::super) fn prepare(&self, _bottom: usize, _base: usize) {}
    }

    #[inline(always)]
    pub(in super::super) fn before_switch(_from: Option<&Shadow>, _to: &Shadow, _base: usize) {}

    #[inline(always)]
    pub(in super::super) fn after_switch(_at: Option<&Shadow>, _base: usize) {}
}

#[cfg(feature = "sanitizer")]
mod known {
    use std::cell::Cell;
    use std::ffi::c_void;
    use std::ptr;

    unsafe extern "C" {
        fn __sanitizer_start_switch_fiber(
            fake_stack_save: *mut *mut c_void,
            bottom: *const c_void,
            size: usize,
        );
        fn __sanitizer_finish_switch_fiber(
            fake_stack_save: *mut c_void,
            bottom_old: *mut *const c_void,
            size_old: *mut usize,
        );
    }

    /// A stack's bounds, and its second stack, for variables whose addresses are taken.
    #[derive(Debug)]
    pub(in super::super) struct Shadow {
        fake: Cell<*mut c_void>,
        bottom: Cell<usize>,
        size: Cell<usize>,
    }

    impl Shadow {
        pub(in super::super) const fn new() -> Self {
            Self {
                fake: Cell::new(ptr::null_mut()),
                bottom: Cell::new(0),
                size: Cell::new(0),
            }
        }

        /// Notes the calling thread's stack.
        pub(in super::super) fn adopt_thread(&self) {
            let (mut bottom, mut size) = (ptr::null_mut(), 0);
            // SAFETY: the attributes are initialised by the first call, and freed.
            unsafe {
                let mut attributes = std::mem::zeroed();
                if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) == 0 {
                    libc::pthread_attr_getstack(
                        &raw const attributes,
                        &raw mut bottom,
                        &raw mut size,
                    );
                    libc::pthread_attr_destroy(&raw mut attributes);
                }
            }
            self.bottom.set(bottom.addr());
            self.size.set(size);
        }

        pub(in super::super) fn prepare(&self, bottom: usize, base: usize) {
            self.fake.set(ptr::null_mut());
            self.bottom.set(bottom);
            self.size.set(base - bottom);
        }
    }

    /// `from`: `None` for a stack that is left for good. `base`: 0 if the storage stays the same.
    #[inline(always)]
    pub(in super::super) fn before_switch(from: Option<&Shadow>, to: &Shadow, base: usize) {
        if base != 0 {
            return;
        }
        let save = from.map_or(ptr::null_mut(), |from| from.fake.as_ptr());
        let bottom = ptr::without_provenance(to.bottom.get());
        // SAFETY: the other stack's bounds; the next call of the two is on that stack.
        unsafe { __sanitizer_start_switch_fiber(save, bottom, to.size.get()) };
    }

    /// `at`: `None` on a new stack. `base`: as it was when the stack was left.
    #[inline(always)]
    pub(in super::super) fn after_switch(at: Option<&Shadow>, base: usize) {
        if base != 0 {
            return;
        }
        let fake = at.map_or(ptr::null_mut(), |at| at.fake.get());
        // SAFETY: what `before_switch` has saved for this stack.
        unsafe { __sanitizer_finish_switch_fiber(fake, ptr::null_mut(), ptr::null_mut()) };
    }
}
