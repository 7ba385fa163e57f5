// A policy has a task once: it can neither be copied nor made.
fn main() {}

fn copied(task: plainweave::FiberTask) -> [plainweave::FiberTask; 2] {
    [task.clone(), task]
}

fn used_twice(task: plainweave::FiberTask) -> [plainweave::FiberTask; 2] {
    [task, task]
}

fn made(pointer: std::ptr::NonNull<u8>) -> plainweave::FiberTask {
    plainweave::FiberTask(pointer)
}
