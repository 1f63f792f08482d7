//! The application: wakes, connects to a broker that it verifies, publishes
//! readings with QoS 1, takes commands, keeps a ticket for the next time, and
//! sleeps. Knows its board as a [`Board`] only.
//!
//! A reading that the broker has not acknowledged goes out again on the next
//! connection, so one may arrive twice, and none is lost. That is also what
//! makes it fit for early data.

use dunlin_mqtt_mini::{Error, Event, Message, Options, Qos, Session};
use dunlin_quic_mini::{
    Client, Config, Crypto, Error as QuicError, Memory, Resume, State, Verifier,
};

use crate::board::{Board, Note};
use crate::ip::{DATAGRAM, Frame, HEADER, Network};
use crate::page::{open, seal};
use crate::settings::Settings;

/// Silence after which a connection is given up.
const IDLE_MS: u32 = 15_000;
/// Longest that a connection lasts beyond the time that the settings ask for, also
/// if the server goes on to send.
pub const OVERTIME_MS: u32 = 15_000;
/// Frames that are taken in one go, so that a flood does not keep the device from
/// its clock.
const BURST: usize = 16;
/// Time for an answer to a question for the way to the server, and the longest
/// sleep without a timer.
const ASK_MS: u32 = 200;
/// Seconds that the broker keeps the session of a device that is silent.
const SESSION_SECONDS: u32 = 7 * 86_400;
/// Quality of service of commands.
#[cfg(feature = "qos2")]
const COMMANDS: Qos = Qos::ExactlyOnce;
#[cfg(not(feature = "qos2"))]
const COMMANDS: Qos = Qos::AtLeastOnce;
/// Failures that double the sleep.
const DOUBLINGS: u8 = 6;
/// Digits of the largest number.
const DIGITS: usize = 10;

/// Why a device went back to sleep before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The next hop does not answer, or the device is given no address.
    NoNeighbour,
    /// The connection or the session ended, or the broker refused the reading;
    /// what the broker gave as reason.
    Ended(Error, u8),
}

impl Failure {
    /// A number: that of [`Error::code`], with the broker's reason above it.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::NoNeighbour => 0xffff,
            Self::Ended(error, reason) => (reason as u32) << 8 | error.code() as u32,
        }
    }
}

/// A device, with all that it keeps while it sleeps.
#[derive(Debug)]
pub struct Device<'a, B, N> {
    board: B,
    settings: Settings<'a>,
    net: N,
    session: Session,
    /// The last reading, and its identifier until the broker has it.
    reading: u32,
    in_flight: Option<u16>,
    failures: u8,
    frame: &'a mut Frame,
}

/// A connection as the application sees it.
struct Link {
    began: u32,
    /// Whether the session was begun.
    greeted: bool,
    /// Whether the server was verified.
    connected: bool,
    subscribing: bool,
    /// Readings that still go out on this connection.
    left: u16,
    /// When the next one goes out, or the device goes to sleep.
    due: u32,
    /// When the connection ends in any case.
    end: u32,
    /// Whether the broker did not take a reading.
    rejected: bool,
}

impl<'a, B: Board, N: Network> Device<'a, B, N> {
    /// A device that has just booted.
    pub const fn new(board: B, settings: Settings<'a>, net: N, frame: &'a mut Frame) -> Self {
        Self {
            board,
            net,
            settings,
            session: Session::new(),
            reading: 0,
            in_flight: None,
            failures: 0,
            frame,
        }
    }

    /// The board.
    pub const fn board(&mut self) -> &mut B {
        &mut self.board
    }

    /// Sleeps until it is time to wake; longer after failures.
    pub fn sleep(&mut self) {
        let ms = pause(self.settings.sleep_ms, self.failures);
        self.board.note(Note::Sleep, ms);
        let from = self.board.now();
        loop {
            let gone = self.board.now().wrapping_sub(from);
            let Some(rest @ 1..) = ms.checked_sub(gone) else {
                return;
            };
            self.board.wait(rest);
        }
    }

    /// Wakes, connects with a client that has no connection, reports, takes
    /// commands, and leaves the client without one.
    ///
    /// # Errors
    ///
    /// Why the broker may not have the reading; it goes out the next time.
    pub fn wake<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
    ) -> Result<(), Failure> {
        let now = self.board.now();
        self.board.note(Note::Wake, now);
        self.board.network(Some(self.settings.mac));
        let result = if self.find() {
            let talked = self.talk(client);
            talked.map_err(|error| match self.is_lost() {
                true => Failure::NoNeighbour,
                false => Failure::Ended(error, self.session.reason()),
            })
        } else {
            Err(Failure::NoNeighbour)
        };
        // Nothing that could be read in memory outlives the wake.
        client.clear();
        self.board.network(None);
        // The next wake has its first datagram sooner.
        let _ = client.prepare();
        match result {
            Ok(()) => self.failures = 0,
            Err(failure) => {
                self.failures = self.failures.saturating_add(1);
                self.board.note(Note::Failed, failure.code());
            }
        }
        result
    }

    /// Finds the way to the server.
    fn find(&mut self) -> bool {
        self.net.begin(&mut self.board, self.failures > 0);
        for _ in 0..N::ASKS {
            self.net.ask(&mut self.board, self.frame);
            let from = self.board.now();
            loop {
                if let Some(len) = self.board.receive(self.frame) {
                    self.handle_frame(len);
                }
                self.net.poll(&mut self.board, self.frame);
                if self.net.is_found() {
                    return true;
                }
                let gone = self.board.now().wrapping_sub(from);
                let Some(rest @ 1..) = ASK_MS.checked_sub(gone) else {
                    break;
                };
                self.board.wait(rest);
            }
        }
        false
    }

    /// Whether the device has no address any more.
    fn is_lost(&self) -> bool {
        N::LEASES && !self.net.is_found()
    }

    /// Answers to a frame, or gives the datagram that is in it.
    fn handle_frame(&mut self, len: usize) -> Option<&mut [u8]> {
        self.net.receive(&mut self.board, self.frame, len)
    }

    fn talk<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
    ) -> Result<(), Error> {
        let began = self.begin(client)?;
        let settings = &self.settings;
        let asked = u32::from(settings.readings) * u32::from(settings.gap_ms)
            + u32::from(settings.listen_ms);
        let mut link = Link {
            began,
            greeted: false,
            connected: false,
            subscribing: false,
            left: settings.readings,
            due: 0,
            end: began.wrapping_add(asked.saturating_add(OVERTIME_MS)),
            rejected: false,
        };
        let result = self.converse(client, &mut link);
        let now = self.board.now();
        client.close(now, 0);
        self.transmit(client);
        match result {
            Ok(()) => {
                self.keep_ticket(client);
                if link.rejected {
                    return Err(Error::Refused);
                }
            }
            // A ticket that the server stumbles over is not tried again. One
            // that was not looked at is.
            Err(Error::Quic(QuicError::IdleTimeout)) => {}
            Err(_) if !link.connected => self.board.store(&[]),
            Err(_) => {}
        }
        result
    }

    /// Begins the handshake, with the stored ticket if there is one. Not
    /// inlined: its stack is free again before the deepest calls.
    #[inline(never)]
    fn begin<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
    ) -> Result<u32, Error> {
        let now = self.board.now();
        let seconds = self.board.seconds();
        // Another port than the last time, among the dynamic ones.
        let [low, high, ..] = seconds.to_le_bytes();
        self.net.bind(u16::from_be_bytes([high | 0xc0, low]));
        let stored = open(self.board.stored()).and_then(<[u8]>::split_first_chunk);
        let resume = stored.and_then(|(time, ticket)| {
            let age = seconds.checked_sub(u32::from_be_bytes(*time))?;
            Some(Resume {
                ticket,
                age_ms: age.saturating_mul(1000),
                early: true,
            })
        });
        let len = resume.map_or(0, |resume| resume.ticket.len());
        client.connect(
            now,
            &Config {
                name: self.settings.name,
                alpn: b"mqtt",
                idle_ms: IDLE_MS,
                max_datagram: DATAGRAM,
                token: &[],
                resume,
            },
        )?;
        let len = u32::try_from(len).unwrap_or(0);
        self.board.note(Note::Connect, len);
        Ok(now)
    }

    /// Stores the newest ticket with the time.
    fn keep_ticket<C: Crypto, V: Verifier, M: Memory>(&mut self, client: &mut Client<C, V, M>) {
        let Some(ticket) = client.ticket() else {
            return;
        };
        let time = self.board.seconds().to_be_bytes();
        if let Some(front) = seal(&[&time, ticket]) {
            self.board.store(&[&front, &time, ticket]);
            let len = u32::try_from(ticket.len()).unwrap_or(0);
            self.board.note(Note::Ticket, len);
        }
    }

    /// Moves datagrams and time until the application has done its work.
    fn converse<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
        link: &mut Link,
    ) -> Result<(), Error> {
        loop {
            let done = self.step(client, link);
            // Also after a failure: the server learns why.
            self.transmit(client);
            if done? {
                return Ok(());
            }
            // A handshake does not move to another address; the next wake has one.
            if self.is_lost() {
                return Err(QuicError::IdleTimeout.into());
            }
            if client.state() == State::Closed {
                return Err(client.error().unwrap_or(QuicError::State).into());
            }
            let now = self.board.now();
            let rest = until(now, link.end);
            if rest == 0 {
                return Err(QuicError::ClosedLocally.into());
            }
            let mut wait = client.timeout(now).unwrap_or(ASK_MS).min(rest);
            if self.is_settled(link) {
                wait = wait.min(until(now, link.due));
            }
            wait = wait.min(self.net.delay(now));
            if wait > 0 {
                self.board.wait(wait);
            }
            for _ in 0..BURST {
                let Some(len) = self.board.receive(self.frame) else {
                    break;
                };
                let now = self.board.now();
                if let Some(datagram) = self.handle_frame(len) {
                    client.receive(now, datagram);
                }
            }
            self.net.poll(&mut self.board, self.frame);
        }
    }

    fn transmit<C: Crypto, V: Verifier, M: Memory>(&mut self, client: &mut Client<C, V, M>) {
        loop {
            let now = self.board.now();
            let room = self.frame.get_mut(HEADER..).unwrap_or_default();
            let len @ 1.. = client.transmit(now, room) else {
                return;
            };
            self.net.send(&mut self.board, self.frame, len);
        }
    }

    /// Whether the broker owes no answer.
    fn is_settled(&self, link: &Link) -> bool {
        self.session.is_up() && self.in_flight.is_none() && !link.subscribing
    }

    /// Says and hears what there is to. Whether all is done.
    #[inline(never)]
    fn step<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
        link: &mut Link,
    ) -> Result<bool, Error> {
        let now = self.board.now();
        if !link.connected && client.state() == State::Connected {
            link.connected = true;
            let bits = u32::from(client.is_resumed()) << 31
                | u32::from(client.took_early_data()) << 30
                | now.wrapping_sub(link.began);
            self.board.note(Note::Connected, bits);
        }
        if !link.greeted {
            if !client.is_usable() {
                return Ok(false);
            }
            self.board.note(Note::Early, u32::from(!link.connected));
            let options = Options {
                client_id: self.settings.client_id,
                expiry: SESSION_SECONDS,
                user: self.settings.user,
                password: self.settings.password,
                ..Options::NEW
            };
            match self.session.begin(client, &options) {
                // The server grants one later.
                Err(Error::Quic(QuicError::NoStreamLeft)) => return Ok(false),
                begun => begun?,
            }
            // The first reading needs no answer before it goes out.
            link.greeted = true;
            self.say(client, link)?;
            return Ok(false);
        }
        while self.hear(client, link)? {}
        if !self.is_settled(link) || until(now, link.due) > 0 {
            return Ok(false);
        }
        if link.left > 0 {
            self.say(client, link)?;
            return Ok(false);
        }
        self.session.disconnect(client)?;
        Ok(true)
    }

    /// Writes a reading, or again the one that the broker may not have.
    fn say<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
        link: &mut Link,
    ) -> Result<(), Error> {
        link.left = link.left.saturating_sub(1);
        if self.in_flight.is_none() {
            self.reading = self.reading.wrapping_add(1);
        }
        let mut digits = [0; DIGITS];
        let message = Message {
            topic: self.settings.topic,
            payload: decimal(self.reading, &mut digits),
            qos: Qos::AtLeastOnce,
            retain: false,
        };
        match self.in_flight {
            Some(id) => self.session.publish_again(client, id, &message)?,
            None => self.in_flight = Some(self.session.publish(client, &message)?),
        }
        self.board.note(Note::Reading, self.reading);
        Ok(())
    }

    /// Takes the next packet of the broker. Whether there was one.
    #[inline(never)]
    fn hear<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
        link: &mut Link,
    ) -> Result<bool, Error> {
        let event = match self.session.poll(client) {
            Ok(Some(event)) => event,
            // An answer that does not fit now goes out after the next datagram.
            Ok(None) | Err(Error::Full) => return Ok(false),
            Err(error) => return Err(error),
        };
        match event {
            Event::Connected { session: false } if !self.settings.filter.is_empty() => {
                link.subscribing = true;
                let filter = self.settings.filter;
                self.session.subscribe(client, COMMANDS, filter)?;
            }
            Event::Published { .. } => {
                self.board.note(Note::Published, self.reading);
                let wait = if link.left > 0 {
                    self.settings.gap_ms
                } else {
                    self.settings.listen_ms
                };
                self.settle(link, wait);
            }
            Event::Rejected { .. } => {
                // It is the next one again, on the next connection.
                self.reading = self.reading.wrapping_sub(1);
                link.rejected = true;
                link.left = 0;
                self.settle(link, 0);
            }
            Event::Subscribed { reason, .. } => {
                link.subscribing = false;
                self.board.note(Note::Subscribed, u32::from(reason));
            }
            Event::Message(message) => {
                let command = message.payload.first().copied().unwrap_or(0);
                let value = message.payload.get(1).copied().unwrap_or(0);
                self.obey(client, link, command, value);
            }
            _ => {}
        }
        Ok(true)
    }

    /// The broker has answered to the reading; what is next comes after `wait`.
    fn settle(&mut self, link: &mut Link, wait: u16) {
        self.in_flight = None;
        link.due = self.board.now().wrapping_add(u32::from(wait));
    }

    /// Does what a command says; an unknown one is only reported.
    #[cfg_attr(
        not(any(feature = "key-update", feature = "migration")),
        expect(unused_variables, reason = "the other commands are not for the client")
    )]
    fn obey<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
        link: &mut Link,
        command: u8,
        value: u8,
    ) {
        self.board.note(Note::Command, u32::from(command));
        match command {
            b'L' => self.board.switch(value),
            // Sleeps as soon as nothing is open.
            b'S' => {
                link.left = 0;
                link.due = self.board.now();
            }
            // Refused while the last update is young; there is a next time.
            #[cfg(feature = "key-update")]
            b'U' => {
                let _ = client.update_keys();
            }
            #[cfg(feature = "migration")]
            b'M' => self.leave(client),
            _ => {}
        }
    }

    /// Goes on from the other address.
    #[cfg(feature = "migration")]
    fn leave<C: Crypto, V: Verifier, M: Memory>(&mut self, client: &mut Client<C, V, M>) {
        let there = self.net.address() == *self.settings.other;
        let to = if there {
            self.settings.ip
        } else {
            self.settings.other
        };
        self.net.migrate(to);
        // The device has moved already. Where the server forbids migration, it
        // looks like a rebinding.
        let moved = client.migrate().is_ok();
        self.board.note(Note::Moved, u32::from(moved));
    }
}

/// Milliseconds of sleep after some failures in a row.
fn pause(ms: u32, failures: u8) -> u32 {
    ms.saturating_mul(1 << failures.min(DOUBLINGS))
}

/// Milliseconds until `at`, which may be past.
fn until(now: u32, at: u32) -> u32 {
    let rest = at.wrapping_sub(now);
    u32::try_from(rest.cast_signed()).unwrap_or(0)
}

/// The digits of a number.
fn decimal(mut number: u32, out: &mut [u8; DIGITS]) -> &[u8] {
    let mut start = DIGITS;
    for (at, digit) in out.iter_mut().enumerate().rev() {
        let [low, ..] = (number % 10).to_le_bytes();
        *digit = b'0' + low;
        number /= 10;
        start = at;
        if number == 0 {
            break;
        }
    }
    out.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_digits() {
        for number in [0, 7, 10, 1999, u32::MAX] {
            let text = std::format!("{number}");
            assert_eq!(decimal(number, &mut [0; DIGITS]), text.as_bytes());
        }
    }

    #[test]
    fn failures_never_shorten_the_sleep() {
        for (ms, failures, want) in [
            (60_000, 0, 60_000),
            (60_000, 3, 480_000),
            (60_000, u8::MAX, 3_840_000),
            // A day, and what would be nothing without the bits on top.
            (86_400_000, 6, u32::MAX),
            (1 << 28, 4, u32::MAX),
        ] {
            assert_eq!(pause(ms, failures), want);
        }
    }

    #[test]
    fn time_wraps_around() {
        assert_eq!(until(5, 9), 4);
        assert_eq!(until(9, 5), 0);
        assert_eq!(until(u32::MAX, 3), 4);
    }
}
