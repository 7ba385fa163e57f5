//! System calls that the kernel refuses. The crate's own tests use this file as well.

#![expect(
    unsafe_code,
    reason = "tests call what is unsafe, and say at each call why it is sound"
)]
#![allow(dead_code, reason = "each test file uses a part of this")]

/// From now on the system call `number` fails with `errno` on this thread and on those that it
/// starts.
pub(crate) fn forbid(number: libc::c_long, errno: i32) {
    install(number, errno, 0);
}

/// From now on the system call `number` fails with `errno` on every thread of the process.
pub(crate) fn forbid_everywhere(number: libc::c_long, errno: i32) {
    install(number, errno, libc::SECCOMP_FILTER_FLAG_TSYNC);
}

fn install(number: libc::c_long, errno: i32, flags: libc::c_ulong) {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };

    let mut filter = [
        // Load the number of the system call; if it is the one, answer with the error, else allow
        // it.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            number as u32,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | errno as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };

    // SAFETY: plain calls; the program lives across the second.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        assert_eq!(
            libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program),
            0
        );
    }
}
