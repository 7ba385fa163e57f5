//! The commands of the binary protocol: the same as those of the text, in other words.

use super::exec::{After, Exec, mode};
use super::proto::{BinaryCommand, BinaryHead, BinaryRequest, Parts, Status, Verb};
use super::reply::Replies;
use super::store::{Count, Counted, Expiry, Found, Mode, Removal, Removed, Short, Stored, Write};
use super::tally::{Count as Stat, Kind};
use super::version::VERSION;

/// Bytes of a client's flags, which come before a value.
const FLAGS: usize = 4;

impl Exec<'_> {
    /// Carries out a command without a value.
    pub(crate) fn packet(&mut self, packet: &BinaryRequest<'_>) -> After {
        let BinaryRequest { head, command, .. } = packet;
        match command {
            BinaryCommand::Get { key, touch, parts } => {
                let touch = touch.map(|exptime| self.expiry(exptime));
                self.binary_get(packet, key, touch, *parts);
            }
            BinaryCommand::Delete { key } => self.binary_delete(packet, key),
            BinaryCommand::Count {
                key,
                up,
                delta,
                create,
            } => {
                let count = if *up {
                    Count::up(*delta)
                } else {
                    Count::down(*delta)
                };
                let create = create.map(|(value, exptime)| (value, self.expiry(exptime)));
                let compare = (head.cas != 0).then_some(head.cas);
                let count = Count {
                    create,
                    compare,
                    ..count
                };
                self.binary_count(packet, key, &count);
            }
            BinaryCommand::Flush { delay } => self.binary_flush(packet, *delay),
            BinaryCommand::Noop => self.done(packet, 0),
            BinaryCommand::Version => {
                self.note_other();
                self.answer(head, Status::Success, 0, &[VERSION.as_bytes()]);
            }
            BinaryCommand::Quit => {
                self.done(packet, 0);
                return After::Close;
            }
            BinaryCommand::Stats { words } => self.binary_stats(head, words),
            BinaryCommand::Mechanisms if self.cache.users.is_some() => {
                self.answer(head, Status::Success, 0, &[b"PLAIN"]);
            }
            // Those with a value come by `packet_with`.
            _ => self.fail(head, Status::Unknown),
        }
        After::Next
    }

    /// Carries out a storage command.
    pub(crate) fn binary_store(&mut self, packet: &BinaryRequest<'_>, value: &[u8]) {
        let BinaryCommand::Store {
            verb,
            key,
            flags,
            exptime,
        } = packet.command
        else {
            return;
        };
        self.tally.count(Stat::CmdSet);
        self.note(Kind::Set, key);
        let cas = packet.head.cas;

        let joins = matches!(mode(verb), Mode::Append | Mode::Prepend);
        // A number makes all but joins a command that compares.
        let verb = if cas != 0 && !joins { Verb::Cas } else { verb };
        let write = Write {
            flags,
            expiry: self.expiry(exptime),
            mode: mode(verb),
            compare: (cas != 0).then_some(cas),
            ..Write::new(key, value)
        };

        let status = match self.write(&write, verb) {
            Stored::Stored { cas, .. } => return self.done(packet, cas),
            Stored::Exists => Status::Exists,
            Stored::NotFound if joins => Status::NotStored,
            Stored::NotFound => Status::NotFound,
            Stored::TooLarge => Status::TooLarge,
            Stored::OutOfMemory => return self.no_room(&packet.head),
            Stored::NotStored => match verb {
                Verb::Add => Status::Exists,
                Verb::Replace => Status::NotFound,
                _ => Status::NotStored,
            },
        };
        self.fail(&packet.head, status);
    }

    /// Before a value is received: refuses one that can never be stored.
    pub(crate) fn binary_admit(&mut self, packet: &BinaryRequest<'_>) -> Result<(), Status> {
        if packet.head.value() <= self.cache.store.config().item_max {
            return Ok(());
        }
        self.tally.count(Stat::StoreTooLarge);
        self.not_replaced(packet);
        Err(Status::TooLarge)
    }

    /// While a value is received: there is no memory for the rest of it.
    pub(crate) fn binary_no_memory(&mut self, packet: &BinaryRequest<'_>) {
        self.tally.count(Stat::StoreNoMemory);
        self.not_replaced(packet);
        self.no_room(&packet.head);
    }

    fn no_room(&mut self, head: &BinaryHead) {
        let text = b"Out of memory allocating item";
        self.answer(head, Status::NoMemory, 0, &[text]);
    }

    /// An old value must not outlive the attempt to replace it.
    fn not_replaced(&self, packet: &BinaryRequest<'_>) {
        if let BinaryCommand::Store {
            verb: Verb::Set,
            key,
            ..
        } = packet.command
        {
            self.cache.store.remove(key, &Removal::default(), self.now);
        }
    }

    fn binary_get(
        &mut self,
        packet: &BinaryRequest<'_>,
        key: &[u8],
        touch: Option<Expiry>,
        parts: Parts,
    ) {
        self.note(if parts.value { Kind::Get } else { Kind::Touch }, key);
        let head = &packet.head;
        let shown = if parts.key { key } else { b"" };
        let begin = |out: &mut Replies, flags: u32, cas, len| {
            let lens = [FLAGS, shown.len(), if parts.value { len } else { 0 }];
            out.push(&head.reply(Status::Success, lens, cas));
            out.push(&flags.to_be_bytes());
            out.push(shown);
        };

        let out = &mut *self.out;
        let lent = |Short { flags, cas, value }: Short<'_>| {
            begin(out, flags, cas, value.len());
            if parts.value {
                out.push(value);
            }
        };

        let found = self.cache.store.read(key, touch, self.now, lent);
        let lengths = match found {
            None if packet.quiet => None,
            // With its key if that was asked for, in place of words.
            None if parts.key => {
                let lens = [0, key.len(), 0];
                self.out.push(&head.reply(Status::NotFound, lens, 0));
                self.out.push(key);
                None
            }
            None => {
                self.fail(head, Status::NotFound);
                None
            }
            Some(Found::Short { len, size }) => Some((len, size)),
            Some(Found::Long(item)) => {
                let lengths = (item.len(), item.size());
                begin(self.out, item.flags(), item.cas(), item.len());
                if parts.value {
                    self.out.item(item);
                }
                Some(lengths)
            }
        };
        self.count_get(key, touch.is_some(), lengths);
    }

    fn binary_delete(&mut self, packet: &BinaryRequest<'_>, key: &[u8]) {
        self.note(Kind::Delete, key);
        let cas = packet.head.cas;
        let removal = Removal {
            compare: (cas != 0).then_some(cas),
            ..Removal::default()
        };

        match self.remove(key, &removal) {
            Removed::Removed => self.done(packet, 0),
            Removed::NotFound => self.fail(&packet.head, Status::NotFound),
            Removed::Exists => self.fail(&packet.head, Status::Exists),
        }
    }

    fn binary_count(&mut self, packet: &BinaryRequest<'_>, key: &[u8], count: &Count) {
        self.note(Kind::Count, key);

        let status = match self.counted(key, count) {
            Counted::Value { .. } if packet.quiet => return,
            Counted::Value { value, cas, .. } => {
                let value = &value.to_be_bytes();
                return self.answer(&packet.head, Status::Success, cas, &[value]);
            }
            Counted::NotANumber => Status::NotANumber,
            Counted::NotFound => Status::NotFound,
            Counted::Exists => Status::Exists,
            Counted::OutOfMemory => Status::NoMemory,
        };
        self.fail(&packet.head, status);
    }

    fn binary_flush(&mut self, packet: &BinaryRequest<'_>, delay: u32) {
        self.note_other();
        match self.flush(delay) {
            true => self.done(packet, 0),
            false => self.fail(&packet.head, Status::NotAuthenticated),
        }
    }

    /// Answers a packet for each line of the text's answer, and an empty one behind them.
    fn binary_stats(&mut self, head: &BinaryHead, words: &[u8]) {
        self.note_other();
        let mut text = Replies::default();
        super::stats::answer(self.cache, words, self.now, &mut text);

        let text = text.one_piece().unwrap_or_default();
        let from = self.out.bytes_mut().len();
        match text {
            b"RESET\r\n" | b"OK\r\n" => {}
            // As there: items are listed to readers of text alone.
            _ if words.starts_with(b"cachedump") => return self.fail(head, Status::NotFound),
            _ if words == b"detail dump" => {
                self.figure(head, b"detailed", text);
            }
            _ if text.ends_with(b"END\r\n") => {
                for line in text.split(|byte| *byte == b'\n') {
                    let line = line.trim_ascii_end().strip_prefix(b"STAT ");
                    if let Some(line) = line {
                        let (name, value) = name_and_value(line);
                        self.figure(head, name, value);
                    }
                }
            }
            _ => return self.fail(head, Status::NotFound),
        }

        self.figure(head, b"", b"");
        if !self.out.account(from, &self.cache.memory_budget) {
            self.fail(head, Status::NoMemory);
        }
    }

    fn figure(&mut self, head: &BinaryHead, name: &[u8], value: &[u8]) {
        let lens = [0, name.len(), value.len()];
        self.out.push(&head.reply(Status::Success, lens, 0));
        self.out.push(name);
        self.out.push(value);
    }

    /// Answers that a command has been carried out, unless the client wants no such answer.
    fn done(&mut self, packet: &BinaryRequest<'_>, cas: u64) {
        if !packet.quiet {
            self.answer(&packet.head, Status::Success, cas, &[]);
        }
    }

    /// Answers that it has not, which every client wants to know.
    pub(crate) fn fail(&mut self, head: &BinaryHead, status: Status) {
        self.answer(head, status, 0, &[status.text().as_bytes()]);
    }

    /// Answers with a value.
    pub(crate) fn answer(&mut self, head: &BinaryHead, status: Status, cas: u64, value: &[&[u8]]) {
        let len = value.iter().map(|piece| piece.len()).sum();
        self.out.push(&head.reply(status, [0, 0, len], cas));
        value.iter().for_each(|piece| self.out.push(piece));
    }
}

fn name_and_value(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', line) {
        Some(blank) => (&line[..blank], &line[blank + 1..]),
        None => (line, b""),
    }
}
