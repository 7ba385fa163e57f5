//! A fiber wakes one joiner, so a handle is in one branch of one select at a time.

fn main() {
    plainweave::run(|| {
        let mut fiber = plainweave::spawn(|| 1);
        plainweave::sync::select! {
            join(fiber) -> _ => (),
            join(fiber) -> _ => (),
        }
        .unwrap();
    });
}
