//! An idle connection outlives its fiber.

fn main() {
    plainweave::run(|| {
        let stream = plainweave::net::TcpStream::connect("127.0.0.1:1").unwrap();
        let local = String::from("gone soon");
        plainweave::net::on_readable(stream, None, |_, _| drop(local.len()));
    });
}
