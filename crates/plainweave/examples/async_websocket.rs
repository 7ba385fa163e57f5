//! A WebSocket echo by async-tungstenite, an async crate: a fiber per connection on the server's
//! side, and clients that send and receive at the same time. The crate reads and writes through the
//! traits of futures-io (the cargo feature `futures-io`).

use std::error::Error;

use async_tungstenite::tungstenite::{self, Message};
use async_tungstenite::{accept_async, client_async};
use futures_util::StreamExt;
use futures_util::future::try_join;
use plainweave::net::{AsyncTcpListener, AsyncTcpStream, TcpListener};
use plainweave::spawn_future;

type Failure = Box<dyn Error + Send + Sync>;

const CLIENTS: usize = 3;
const MESSAGES: usize = 100;

/// Sends back what comes, until the client closes the connection.
async fn echo(stream: AsyncTcpStream) -> Result<(), tungstenite::Error> {
    let (mut sender, mut receiver) = accept_async(stream).await?.split();
    while let Some(message) = receiver.next().await {
        match message? {
            message @ (Message::Text(_) | Message::Binary(_)) => sender.send(message).await?,
            Message::Close(_) => break,
            _ => {}
        }
    }
    Ok(())
}

/// Accepts connections, each for a fiber of its own, and waits until all have ended.
async fn serve(mut listener: AsyncTcpListener) -> Result<(), Failure> {
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        let (stream, _) = listener.accept().await?;
        connections.push(spawn_future(echo(stream)));
    }
    for connection in connections {
        connection.await???;
    }
    Ok(())
}

/// Sends messages and receives them again, at the same time.
async fn talk(address: std::net::SocketAddr) -> Result<usize, tungstenite::Error> {
    let stream = AsyncTcpStream::connect(address).await?;
    let (socket, _) = client_async(format!("ws://{address}/"), stream).await?;
    let (mut sender, mut receiver) = socket.split();
    let sending = async {
        for n in 0..MESSAGES {
            sender.send(Message::text(n.to_string())).await?;
        }
        Ok::<_, tungstenite::Error>(())
    };
    let receiving = async {
        let mut echoed = 0;
        while echoed < MESSAGES {
            let Some(message) = receiver.next().await else {
                break;
            };
            assert_eq!(message?.to_text()?, echoed.to_string());
            echoed += 1;
        }
        Ok(echoed)
    };
    let ((), echoed) = try_join(sending, receiving).await?;
    sender.close(None).await?;
    Ok(echoed)
}

/// Runs the server on one fiber and the clients on others.
pub(crate) fn run() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = spawn_future(serve(listener.into()));
    let clients: Vec<_> = (0..CLIENTS).map(|_| spawn_future(talk(address))).collect();
    for client in clients {
        assert_eq!(client.join()???, MESSAGES);
    }
    server.join()???;
    Ok(())
}

fn main() -> Result<(), Failure> {
    plainweave::run(run)
}
