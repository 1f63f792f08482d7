//! The application: wakes, connects to a broker that it verifies, publishes
//! readings with QoS 1, takes commands, keeps a ticket for the next time, and
//! sleeps. Knows its board as a [`Board`] only.
//!
//! A reading that the broker has not acknowledged goes out again on the next
//! connection, so one may arrive twice, and none is lost. That is also what
//! makes it fit for early data.

use dunlin_mqtt_mini::{Event, Packets, Refused, Session, Settings as MqttSettings};
use dunlin_quic_mini::{Client, Config, Crypto, Error, Memory, Resume, State, StreamId, Verifier};

use crate::board::{Board, Note};
use crate::ip::{FRAME, HEADER, Input, Interface};
use crate::page::{open, seal};
use crate::settings::Settings;

/// Largest datagram that fits into a frame.
const DATAGRAM: u16 = 1472;
/// Silence after which a connection is given up.
const IDLE_MS: u32 = 15_000;
/// Questions for the next hop, and the time for an answer.
const ASKS: u32 = 10;
const ASK_MS: u32 = 200;
/// Seconds that the broker keeps the session of a device that is silent.
const SESSION_SECONDS: u32 = 7 * 86_400;
/// Bytes that a packet of the broker may have.
const PACKET_MAX: u32 = 256;
/// Room for the packets of one step: the first ones of a connection.
const OUT: usize = 192;
/// Failures that double the sleep.
const DOUBLINGS: u8 = 6;
/// Digits of the largest number.
const DIGITS: usize = 10;

/// Why a device went back to sleep before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The next hop does not answer.
    NoNeighbour,
    /// The QUIC connection ended.
    Quic(Error),
    /// The MQTT session is of no use.
    Mqtt(Refused),
    /// The broker ended the stream.
    Ended,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Quic(error)
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Mqtt(refused)
    }
}

impl Failure {
    /// A number: that of [`Error`], or 256 and the reason code of the broker,
    /// or from 512 on.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Quic(error) => error as u32,
            Self::Mqtt(Refused::Broker(reason)) => 0x100 | reason as u32,
            Self::Mqtt(Refused::Malformed) => 0x200,
            Self::Mqtt(_) => 0x201,
            Self::Ended => 0x202,
            Self::NoNeighbour => 0x203,
        }
    }
}

/// A device, with all that it keeps while it sleeps.
#[derive(Debug)]
pub struct Device<'a, B> {
    board: B,
    settings: Settings<'a>,
    net: Interface,
    session: Session,
    /// The reading in flight, or the last one.
    reading: u32,
    failures: u8,
    frame: [u8; FRAME],
}

/// A connection as the application sees it.
struct Link {
    stream: Option<StreamId>,
    began: u32,
    /// Whether the server was verified.
    connected: bool,
    /// Readings that still go out on this connection.
    left: u16,
    /// When the next one goes out, or the device goes to sleep.
    due: u32,
}

impl<'a, B: Board> Device<'a, B> {
    /// A device that has just booted.
    pub const fn new(board: B, settings: Settings<'a>) -> Self {
        Self {
            board,
            net: settings.interface(),
            settings,
            session: Session::new(),
            reading: 0,
            failures: 0,
            frame: [0; FRAME],
        }
    }

    /// The board.
    pub const fn board(&mut self) -> &mut B {
        &mut self.board
    }

    /// Sleeps until it is time to wake; longer after failures.
    pub fn sleep(&mut self) {
        let ms = self.settings.sleep_ms << self.failures.min(DOUBLINGS);
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

    /// Wakes, connects with a client that has not begun, reports, and takes
    /// commands.
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
        let result = match self.find_neighbour() {
            Ok(()) => self.talk(client),
            Err(failure) => Err(failure),
        };
        self.board.network(None);
        match result {
            Ok(()) => self.failures = 0,
            Err(failure) => {
                self.failures = self.failures.saturating_add(1);
                self.board.note(Note::Failed, failure.code());
            }
        }
        result
    }

    fn find_neighbour(&mut self) -> Result<(), Failure> {
        self.net.neighbour = None;
        for _ in 0..ASKS {
            let len = self.net.ask(&mut self.frame);
            self.board.send(self.frame.get(..len).unwrap_or_default());
            let from = self.board.now();
            loop {
                while let Some(len) = self.board.receive(&mut self.frame) {
                    self.handle_frame(len);
                }
                if self.net.neighbour.is_some() {
                    return Ok(());
                }
                let gone = self.board.now().wrapping_sub(from);
                let Some(rest @ 1..) = ASK_MS.checked_sub(gone) else {
                    break;
                };
                self.board.wait(rest);
            }
        }
        Err(Failure::NoNeighbour)
    }

    /// Answers to a frame, or gives the place of a datagram.
    fn handle_frame(&mut self, len: usize) -> Option<&mut [u8]> {
        let frame = self.frame.get_mut(..len)?;
        match self.net.handle(frame) {
            Input::Answer(len) => {
                self.board.send(self.frame.get(..len)?);
                None
            }
            Input::Datagram(range) => self.frame.get_mut(range),
            _ => None,
        }
    }

    fn talk<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
    ) -> Result<(), Failure> {
        let began = self.begin(client)?;
        let mut link = Link {
            stream: None,
            began,
            connected: false,
            left: self.settings.readings,
            due: 0,
        };
        let result = self.converse(client, &mut link);
        match result {
            Ok(()) => {
                self.keep_ticket(client);
                let now = self.board.now();
                client.close(now, 0);
                self.transmit(client);
            }
            // A ticket that the server stumbles over is not tried again. One
            // that nobody has looked at is.
            Err(Failure::Quic(Error::IdleTimeout)) => {}
            Err(_) if !link.connected => self.board.store(&[]),
            Err(_) => {}
        }
        result
    }

    /// Begins the handshake, with the stored ticket if there is one.
    fn begin<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
    ) -> Result<u32, Failure> {
        let now = self.board.now();
        let seconds = self.board.seconds();
        // Another port than the last time, among the dynamic ones.
        let [low, high, ..] = seconds.to_le_bytes();
        self.net.port = u16::from_be_bytes([high | 0xc0, low]);
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
        self.board
            .note(Note::Connect, u32::try_from(len).unwrap_or(0));
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
    ) -> Result<(), Failure> {
        loop {
            let done = self.step(client, link)?;
            self.transmit(client);
            if done {
                return Ok(());
            }
            if client.state() == State::Closed {
                return Err(Failure::Quic(client.error().unwrap_or(Error::State)));
            }
            let now = self.board.now();
            let mut wait = client.timeout(now).unwrap_or(ASK_MS);
            if link.stream.is_some() && self.session.is_settled() {
                wait = wait.min(until(now, link.due));
            }
            if wait > 0 {
                self.board.wait(wait);
            }
            while let Some(len) = self.board.receive(&mut self.frame) {
                let now = self.board.now();
                if let Some(datagram) = self.handle_frame(len) {
                    client.receive(now, datagram);
                }
            }
        }
    }

    fn transmit<C: Crypto, V: Verifier, M: Memory>(&mut self, client: &mut Client<C, V, M>) {
        loop {
            let now = self.board.now();
            let room = self.frame.get_mut(HEADER..).unwrap_or_default();
            let len @ 1.. = client.transmit(now, room) else {
                return;
            };
            let len = self.net.wrap(&mut self.frame, len);
            self.board.send(self.frame.get(..len).unwrap_or_default());
        }
    }

    /// Says and hears what there is on the stream. Whether all is done.
    fn step<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
        link: &mut Link,
    ) -> Result<bool, Failure> {
        let now = self.board.now();
        if !link.connected && client.state() == State::Connected {
            link.connected = true;
            let bits = u32::from(client.is_resumed()) << 31
                | u32::from(client.took_early_data()) << 30
                | now.wrapping_sub(link.began);
            self.board.note(Note::Connected, bits);
        }
        let Some(id) = link.stream else {
            if client.is_usable() {
                link.stream = Some(self.first_words(client, link)?);
            }
            return Ok(false);
        };
        while self.hear(client, link, id)? {}
        if !self.session.is_settled() || until(now, link.due) > 0 {
            return Ok(false);
        }
        if link.left > 0 {
            self.say(client, link, id, false)?;
            return Ok(false);
        }
        let mut out = [0; 2];
        let mut packets = Packets::new(&mut out);
        packets.disconnect();
        write(client, id, packets)?;
        Ok(true)
    }

    /// Opens the stream; its first words need no answer before they go out.
    fn first_words<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
        link: &mut Link,
    ) -> Result<StreamId, Failure> {
        let id = client.open()?;
        self.board.note(Note::Early, u32::from(!link.connected));
        self.say(client, link, id, true)?;
        Ok(id)
    }

    /// Writes a reading, behind the greeting if it is the first one.
    fn say<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
        link: &mut Link,
        id: StreamId,
        greet: bool,
    ) -> Result<(), Failure> {
        let mut out = [0; OUT];
        let mut packets = Packets::new(&mut out);
        if greet {
            self.session.connect(&mqtt(&self.settings), &mut packets);
        }
        if !self.session.is_in_flight() {
            self.reading = self.reading.wrapping_add(1);
        }
        link.left = link.left.saturating_sub(1);
        let mut digits = [0; DIGITS];
        let payload = decimal(self.reading, &mut digits);
        self.session
            .publish(self.settings.topic, payload, &mut packets);
        self.board.note(Note::Reading, self.reading);
        write(client, id, packets)
    }

    /// Takes the next packet of the broker. Whether there was one.
    fn hear<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
        link: &mut Link,
        id: StreamId,
    ) -> Result<bool, Failure> {
        let now = self.board.now();
        let mut out = [0; OUT];
        let mut packets = Packets::new(&mut out);
        let (bytes, end) = client.received(id)?;
        let handled = self
            .session
            .handle(bytes, &mqtt(&self.settings), &mut packets)?;
        let Some((len, event)) = handled else {
            return if end { Err(Failure::Ended) } else { Ok(false) };
        };
        let mut command = None;
        match event {
            Event::Published(_) => {
                self.board.note(Note::Published, self.reading);
                let wait = if link.left > 0 {
                    self.settings.gap_ms
                } else {
                    self.settings.listen_ms
                };
                link.due = now.wrapping_add(u32::from(wait));
            }
            Event::Subscribed(reason) => self.board.note(Note::Subscribed, u32::from(reason)),
            Event::Message { payload, .. } => {
                let value = payload.get(1).copied().unwrap_or(0);
                command = payload.first().map(|command| (*command, value));
            }
            _ => {}
        }
        client.consume(id, len);
        write(client, id, packets)?;
        if let Some((command, value)) = command {
            self.obey(client, link, command, value)?;
        }
        Ok(true)
    }

    /// Does what a command says; an unknown one is told, and nothing more.
    fn obey<C: Crypto, V: Verifier, M: Memory>(
        &mut self,
        client: &mut Client<C, V, M>,
        link: &mut Link,
        command: u8,
        value: u8,
    ) -> Result<(), Failure> {
        self.board.note(Note::Command, u32::from(command));
        match command {
            b'L' => self.board.switch(value),
            // Sleeps as soon as nothing is open.
            b'S' => {
                link.left = 0;
                link.due = self.board.now();
            }
            b'M' => {
                let other = *self.settings.other;
                let first = *self.settings.ip;
                self.net.ip = if self.net.ip == other { first } else { other };
                self.net.port ^= 1;
                self.board.note(Note::Moved, u32::from(self.net.ip[3]));
                // The device has moved already; a server that allows no
                // migration sees a rebinding.
                let _ = client.migrate();
            }
            _ => {}
        }
        Ok(())
    }
}

/// What the broker is told.
const fn mqtt<'a>(settings: &Settings<'a>) -> MqttSettings<'a> {
    MqttSettings {
        client_id: settings.client_id,
        // The idle timeout of QUIC tells sooner.
        keep_alive: 0,
        expiry: SESSION_SECONDS,
        maximum: PACKET_MAX,
        filter: settings.filter,
    }
}

/// Writes packets to the stream, all or none.
fn write<C: Crypto, V: Verifier, M: Memory>(
    client: &mut Client<C, V, M>,
    id: StreamId,
    packets: Packets<'_>,
) -> Result<(), Failure> {
    let bytes = packets.finish().ok_or(Refused::Full)?;
    if client.write(id, bytes)? < bytes.len() {
        return Err(Refused::Full.into());
    }
    Ok(())
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
    fn time_wraps_around() {
        assert_eq!(until(5, 9), 4);
        assert_eq!(until(9, 5), 0);
        assert_eq!(until(u32::MAX, 3), 4);
    }
}
