//! Databases.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use mysql::prelude::Queryable;
use plainweave::net::{AsyncTcpStream, TcpStream};
use plainweave::{block_on, blocking, spawn_future};
use r2d2::ManageConnection;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use super::{Answer, Opened, Row, Waits, expect, session};
use crate::servers::{DELAY, Servers};

pub const ROWS: &[Row] = &[
    Row {
        name: "postgres",
        by: "",
        waits: Waits::Worker,
        has_deadline: false,
        open: postgres,
    },
    Row {
        name: "tokio-postgres",
        by: "`connect_raw` over `AsyncTcpStream`, `block_on`",
        waits: Waits::Fiber,
        has_deadline: true,
        open: tokio_postgres,
    },
    Row {
        name: "redis",
        by: "",
        waits: Waits::Worker,
        has_deadline: false,
        open: redis,
    },
    Row {
        name: "redis, `aio`",
        by: "`MultiplexedConnection` over `AsyncTcpStream`, `block_on`",
        waits: Waits::Fiber,
        has_deadline: true,
        open: redis_async,
    },
    Row {
        name: "mysql",
        by: "",
        waits: Waits::Worker,
        has_deadline: false,
        open: mysql,
    },
    Row {
        name: "rusqlite",
        by: "",
        waits: Waits::Worker,
        has_deadline: false,
        open: |servers| sqlite(servers, |job| Ok(job()?)),
    },
    Row {
        name: "rusqlite",
        by: "in `blocking`",
        waits: Waits::Fiber,
        has_deadline: true,
        open: |servers| sqlite(servers, |job| Ok(blocking(job)??)),
    },
    Row {
        name: "r2d2",
        by: "",
        waits: Waits::Worker,
        has_deadline: false,
        open: pool,
    },
];

fn postgres(servers: &Servers) -> Opened {
    let url = format!("postgres://postgres@127.0.0.1:{}", servers.postgres);
    let client = postgres::Client::connect(&url, postgres::NoTls)?;
    session(
        client,
        |client| {
            let row = client.query_one("SELECT $1::text || '!'", &[&"hello"])?;
            expect(row.get(0), "hello!")
        },
        |client| Ok(client.batch_execute(&format!("SELECT pg_sleep({})", DELAY.as_secs_f64()))?),
    )
}

fn tokio_postgres(servers: &Servers) -> Opened {
    let stream = TcpStream::connect(("127.0.0.1", servers.postgres))?;
    let mut config = tokio_postgres::Config::new();
    config.user("postgres");
    let stream = AsyncTcpStream::from(stream);
    let (client, connection) = block_on(config.connect_raw(stream, tokio_postgres::NoTls))??;
    spawn_future(connection);
    session(
        client,
        |client| {
            let row = block_on(client.query_one("SELECT $1::text || '!'", &[&"hello"]))??;
            expect(row.get(0), "hello!")
        },
        |client| {
            let sleep = format!("SELECT pg_sleep({})", DELAY.as_secs_f64());
            Ok(block_on(client.batch_execute(&sleep))??)
        },
    )
}

/// Waits for a list that nobody pushes to.
fn long_command() -> redis::Cmd {
    let mut command = redis::cmd("BLPOP");
    command.arg("nobody pushes").arg(DELAY.as_secs_f64());
    command
}

fn redis(servers: &Servers) -> Opened {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", servers.redis))?;
    session(
        client.get_connection()?,
        |connection| {
            let answer: String = redis::cmd("ECHO").arg("hello").query(connection)?;
            expect(answer.as_str(), "hello")
        },
        |connection| Ok(long_command().query::<()>(connection)?),
    )
}

fn redis_async(servers: &Servers) -> Opened {
    let stream = TcpStream::connect(("127.0.0.1", servers.redis))?;
    let info = redis::RedisConnectionInfo::default();
    // The crate's own limits of time need Tokio's clock; `with_timeout` does as much.
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None);
    let stream = AsyncTcpStream::from(stream);
    let opening = MultiplexedConnection::new_with_config(&info, stream, config);
    let (connection, driver) = block_on(opening)??;
    spawn_future(driver);
    session(
        connection,
        |connection| {
            let mut command = redis::cmd("ECHO");
            let answer = block_on(command.arg("hello").query_async::<String>(connection))??;
            expect(answer.as_str(), "hello")
        },
        |connection| Ok(block_on(long_command().query_async::<()>(connection))??),
    )
}

fn mysql(servers: &Servers) -> Opened {
    let options = mysql::OptsBuilder::new()
        .ip_or_hostname(Some("127.0.0.1"))
        .tcp_port(servers.mariadb)
        .prefer_socket(false)
        .user(Some("root"));
    session(
        mysql::Conn::new(options)?,
        |connection| {
            let answer: Option<String> =
                connection.exec_first("SELECT CONCAT(?, '!')", ("hello",))?;
            expect(answer.as_deref(), Some("hello!"))
        },
        |connection| Ok(connection.query_drop(format!("SELECT SLEEP({})", DELAY.as_secs_f64()))?),
    )
}

/// What touches a database.
type Job = Box<dyn FnOnce() -> rusqlite::Result<String> + Send>;

/// A database in a file of its own. `run` runs what touches it.
fn sqlite(servers: &Servers, run: fn(Job) -> Answer) -> Opened {
    let file = tempfile::NamedTempFile::new_in(servers.folder.path())?;
    let connection = Connection::open(file.path())?;
    // For a query that takes long.
    connection.create_scalar_function("pause", 0, FunctionFlags::SQLITE_UTF8, |_| {
        thread::sleep(DELAY);
        Ok("paused")
    })?;
    let connection = Arc::new(Mutex::new(connection));
    let query = move |connection: &Arc<Mutex<Connection>>, sql: &'static str| {
        let connection = Arc::clone(connection);
        run(Box::new(move || {
            let connection = connection.lock().expect("no panic");
            connection.query_row(sql, [], |row| row.get(0))
        }))
    };
    session(
        (connection, file),
        move |(connection, _)| {
            expect(
                query(connection, "SELECT 'hel' || 'lo'")?,
                "hello".to_owned(),
            )
        },
        move |(connection, _)| expect(query(connection, "SELECT pause()")?, "paused".to_owned()),
    )
}

/// Hands out numbers for connections.
#[derive(Debug)]
struct Numbers;

impl ManageConnection for Numbers {
    type Connection = u32;
    type Error = std::convert::Infallible;

    fn connect(&self) -> Result<u32, Self::Error> {
        Ok(7)
    }

    fn is_valid(&self, _: &mut u32) -> Result<(), Self::Error> {
        Ok(())
    }

    fn has_broken(&self, _: &mut u32) -> bool {
        false
    }
}

/// A pool of one connection, which somebody else has for a while where it is to be waited for.
fn pool(_: &Servers) -> Opened {
    let pool = r2d2::Pool::builder()
        .max_size(1)
        .connection_timeout(Duration::from_secs(30));
    session(
        pool.build(Numbers)?,
        |pool| expect(*pool.get()?, 7),
        |pool| {
            let (taken, is_taken) = mpsc::channel();
            let connection = pool.get()?;
            thread::spawn(move || {
                let _ = taken.send(());
                thread::sleep(DELAY);
                drop(connection);
            });
            is_taken.recv()?;
            expect(*pool.get()?, 7)
        },
    )
}
