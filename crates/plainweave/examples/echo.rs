//! An echo server: a fiber per connection, plain blocking code.

use std::io::{self, Read, Write};

use plainweave::net::{TcpListener, TcpStream};

pub(crate) fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buf = [0; 4096];
    loop {
        match stream.read(&mut buf)? {
            0 => return Ok(()),
            n => stream.write_all(&buf[..n])?,
        }
    }
}

#[plainweave::main]
fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:7000")?;
    for stream in listener.incoming() {
        let stream = stream?;
        plainweave::spawn(move || echo(stream));
    }
    Ok(())
}
