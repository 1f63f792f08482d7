//! `dunlin-tiny`: publishes one reading with QoS 1 over QUIC, the way a device
//! would: wake, connect or resume, publish, keep the ticket, sleep.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use core::net::SocketAddr;
use std::fs::File;
use std::io::{self, Write};
use std::net::ToSocketAddrs;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_mqtt_mini::{Error, Event, Message, Options, Qos, Session, Streams};
use dunlin_quic_mini::{Config, Pinned, Point, Resume};
use dunlin_tiny::udp::{Connection, DATAGRAM};

const USAGE: &str = "usage: dunlin-tiny HOST:PORT KEY TOPIC PAYLOAD [TICKET-FILE]
  KEY   the server's public key: 65 bytes of a P-256 point in hexadecimal
  With a file, the ticket of the last run is used for early data, and renewed.";

const OPTIONS: Options<'static> = Options {
    client_id: b"dunlin-tiny",
    keep_alive: 60,
    ..Options::NEW
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, key, topic, payload, ..] = arguments.as_slice() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let address = server.to_socket_addrs().ok().and_then(|mut all| all.next());
    let (Some(address), Some(key)) = (address, point(key)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let name = server.rsplit_once(':').map_or("", |(name, _)| name);
    match publish(address, name, key, topic, payload, arguments.get(4)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("dunlin-tiny: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// A point in hexadecimal.
fn point(text: &str) -> Option<Point> {
    let mut point = [0; 65];
    for (i, byte) in point.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    (text.len() == 130).then_some(point)
}

fn seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// A stored ticket, behind the time at which it was stored.
fn load(file: Option<&String>) -> Option<(Vec<u8>, u32)> {
    let stored = std::fs::read(file?).ok()?;
    let (time, ticket) = stored.split_first_chunk::<8>()?;
    let age = seconds().checked_sub(u64::from_be_bytes(*time))?;
    let age = u32::try_from(age.checked_mul(1000)?).ok()?;
    Some((ticket.to_vec(), age))
}

/// Stores a ticket for its owner only: whoever reads it can be the server.
fn keep(file: &str, stored: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)?.write_all(stored)
}

fn publish(
    address: SocketAddr,
    name: &str,
    key: Point,
    topic: &str,
    payload: &str,
    file: Option<&String>,
) -> Result<(), String> {
    let stored = load(file);
    let resume = stored.as_ref().map(|(ticket, age_ms)| Resume {
        ticket,
        age_ms: *age_ms,
        early: true,
    });
    let is_name = name.parse::<core::net::IpAddr>().is_err();
    let config = Config {
        name: if is_name { name.as_bytes() } else { &[] },
        alpn: b"mqtt",
        idle_ms: 10_000,
        max_datagram: DATAGRAM,
        token: &[],
        resume,
    };
    let keys = [key];
    let connection = Connection::begin(address, Pinned::new(&keys), &config);
    let mut connection = connection.map_err(|error| error.to_string())?;
    // The number only: names of all errors would weigh more than the reading.
    let told = |error: Error| format!("error {}", error.code());

    let mut session = Session::new();
    let mut reading = None;
    loop {
        if reading.is_none() && connection.client.is_usable() {
            let quic = &mut connection.client;
            session.begin(quic, &OPTIONS).map_err(told)?;
            let message = Message {
                topic: topic.as_bytes(),
                payload: payload.as_bytes(),
                qos: Qos::AtLeastOnce,
                retain: false,
            };
            reading = Some(session.publish(quic, &message).map_err(told)?);
        }
        let arrived = arrived(&mut session, &mut connection.client);
        let reason = session.reason();
        if arrived.map_err(|error| format!("{}, reason {reason:#x}", told(error)))? {
            break;
        }
        connection.step().map_err(|error| told(error.into()))?;
    }
    // The ticket comes behind the handshake, mostly before the answer.
    if let (Some(file), Some(ticket)) = (file, connection.client.ticket()) {
        let mut stored = seconds().to_be_bytes().to_vec();
        stored.extend_from_slice(ticket);
        keep(file, &stored).map_err(|error| error.to_string())?;
    }
    println!(
        "published; resumed: {}, early data: {}, round trip: {} ms",
        connection.client.is_resumed(),
        connection.client.took_early_data(),
        connection.client.rtt_ms()
    );
    let now = connection.now();
    connection.client.close(now, 0);
    let _ = connection.step();
    Ok(())
}

/// Takes what the broker sent. Whether the reading has arrived.
fn arrived<Q: Streams>(session: &mut Session, quic: &mut Q) -> Result<bool, Error> {
    while let Some(event) = session.poll(quic)? {
        match event {
            Event::Published { reason, .. } if reason >= 128 => return Err(Error::Refused),
            Event::Published { .. } => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}
