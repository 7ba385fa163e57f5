//! Reads by a raw ring: the limit where the disk has to be waited for.

#![expect(unsafe_code, reason = "pushes entries")]

use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;

use anyhow::{Context, ensure};
use io_uring::{IoUring, opcode, types::Fd};

use super::file::{BLOCK, Blocks, Buffer, Read, check, measure};

/// Keeps as many reads in flight as there are streams.
pub(super) fn in_flight(file: &Blocks, streams: usize) -> anyhow::Result<Read> {
    let entries = streams.next_power_of_two() as u32;
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries)
        .context("io_uring")?;
    // Leaked if an error ends the loop: the kernel may write there yet.
    let mut bufs = ManuallyDrop::new(vec![Buffer([0; BLOCK]); streams]);
    let mut reads = vec![0; streams];
    let read = measure(|| {
        let fd = Fd(file.file.as_raw_fd());
        let mut begun = 0;
        let mut free: Vec<usize> = (0..streams).collect();
        let mut done = 0;
        while done < file.count {
            while begun < file.count
                && let Some(slot) = free.pop()
            {
                let number = file.block(begun);
                reads[slot] = number;
                begun += 1;
                let buf = bufs[slot].0.as_mut_ptr();
                let entry = opcode::Read::new(fd, buf, BLOCK as u32)
                    .offset((number * BLOCK) as u64)
                    .build()
                    .user_data(slot as u64);
                // SAFETY: the buffer stays until the loop has seen its completion: it is dropped
                // behind a loop that has ended with none in flight.
                unsafe { ring.submission().push(&entry) }.context("room for each stream")?;
            }

            ring.submit_and_wait(1)?;
            let completions: Vec<_> = ring.completion().collect();
            for entry in completions {
                let slot = entry.user_data() as usize;
                ensure!(
                    entry.result() == BLOCK as i32,
                    "a read gave {}",
                    entry.result()
                );

                check(reads[slot], &bufs[slot].0)?;
                free.push(slot);
                done += 1;
            }
        }
        Ok(())
    })?;
    drop(ManuallyDrop::into_inner(bufs));
    Ok(read)
}
