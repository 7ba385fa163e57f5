//! What is special about packets of the binary protocol. A packet begins where a line would; the
//! value of one is awaited, stored and dropped as that of a line is.

use super::super::exec::{After, Exec};
use super::super::proto::{
    BinaryCommand, BinaryHead, BinaryRequest, HEAD, MECHANISM, PROOF, Status,
};
use super::{Pending, Session, Taken};

impl Session {
    /// Takes a packet, if all of it but its value has come.
    pub(super) fn packet(&mut self, input: &[u8], exec: &mut Exec<'_>) -> Taken {
        let Some((bytes, rest)) = input.split_first_chunk::<HEAD>() else {
            return Taken::all_of(0);
        };
        let Some(head) = BinaryHead::read(bytes) else {
            return Taken::then(input.len(), After::Close);
        };

        let refuse = |status, exec: &mut Exec<'_>| {
            exec.fail(&head, status);
            Taken::then(input.len(), After::Close)
        };
        if let Err(status) = head.check() {
            return refuse(status, exec);
        }

        let Some(before) = rest.get(..head.before_value()) else {
            return Taken::all_of(0);
        };
        let packet = match BinaryRequest::read(head, before) {
            Ok(packet) => packet,
            Err(status) => return refuse(status, exec),
        };

        if self.is_locked(exec) && !packet.is_for_all() {
            return refuse(Status::NotAuthenticated, exec);
        }

        let len = HEAD + before.len();
        let want = head.value();
        if !packet.has_value() {
            let after = exec.packet(&packet);
            self.swallow(want);
            return Taken::then(len, after);
        }
        if let Err(status) = admit(&packet, exec) {
            exec.fail(&head, status);
            self.swallow(want);
            return Taken::then(len, After::Next);
        }

        // The usual case, as for a line.
        match input.get(len..len + want) {
            Some(value) => Taken::then(len + want, self.packet_with(&packet, value, exec)),
            None => self
                .await_value(&input[..len], want, &input[len..], exec)
                .behind(len),
        }
    }

    /// Goes on once the value is there, or there is no memory for it.
    pub(super) fn packet_value(
        &mut self,
        pending: &Pending,
        took: Option<usize>,
        exec: &mut Exec<'_>,
    ) -> Taken {
        let packet = pending.line.split_first_chunk();
        let packet =
            packet.and_then(|(head, rest)| BinaryRequest::read(BinaryHead::read(head)?, rest).ok());

        let Some(packet) = packet else {
            return Taken::then(0, After::Close);
        };
        let Some(took) = took else {
            exec.binary_no_memory(&packet);
            self.swallow(pending.want - pending.value.len());
            return Taken::then(0, After::Next);
        };

        let after = self.packet_with(&packet, pending.value.bytes(), exec);
        Taken::then(took, after)
    }

    fn packet_with(
        &mut self,
        packet: &BinaryRequest<'_>,
        value: &[u8],
        exec: &mut Exec<'_>,
    ) -> After {
        match packet.command {
            BinaryCommand::Authenticate { mechanism, begins } => {
                self.login_packet(&packet.head, mechanism, begins, value, exec)
            }
            _ => {
                exec.binary_store(packet, value);
                After::Next
            }
        }
    }
}

/// Before the value has come, so that none that is refused is kept.
fn admit(packet: &BinaryRequest<'_>, exec: &mut Exec<'_>) -> Result<(), Status> {
    let BinaryCommand::Authenticate { mechanism, .. } = packet.command else {
        return exec.binary_admit(packet);
    };
    if exec.cache.users.is_none() {
        Err(Status::Unknown)
    } else if mechanism.len() > MECHANISM || packet.head.value() > PROOF {
        Err(Status::Invalid)
    } else {
        Ok(())
    }
}
