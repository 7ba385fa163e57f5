//! Mail.

use lettre::{Message, SmtpTransport, Transport};

use super::{Opened, Outcome, Row, Waits, session};
use crate::servers::Servers;

pub const ROWS: &[Row] = &[Row {
    name: "lettre",
    by: "",
    waits: Waits::Worker,
    has_deadline: false,
    open: mail,
}];

fn mail(servers: &Servers) -> Opened {
    let transport = SmtpTransport::builder_dangerous("127.0.0.1")
        .port(servers.smtp)
        .build();
    let send = |transport: &SmtpTransport, to: &str| -> Outcome {
        let message = Message::builder()
            .from("fiber@localhost".parse()?)
            .to(to.parse()?);
        transport.send(&message.body("hello".to_owned())?)?;
        Ok(())
    };
    session(
        transport,
        move |transport| send(transport, "quick@localhost"),
        move |transport| send(transport, "slow@localhost"),
    )
}
