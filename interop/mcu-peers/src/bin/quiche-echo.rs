//! Echoes streams with quiche, one thread and one socket.

use std::collections::HashMap;
use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use mcu_peers::{ALPN, Arguments, tell};
use quiche::{Config, Connection, ConnectionId, Header, Type};

const ID_LEN: usize = 16;
/// A Retry token is this mark, the client's address and its first id.
const MARK: &[u8] = b"retry";

struct Client {
    connection: Connection,
    /// What is still to be written, and whether the stream ends behind it.
    streams: HashMap<u64, (Vec<u8>, bool)>,
}

fn config(arguments: &Arguments) -> Result<Config, Box<dyn Error>> {
    let mut config = Config::new(quiche::PROTOCOL_VERSION)?;
    let text = |path: &std::path::Path| path.to_str().unwrap_or_default().to_owned();
    config.load_cert_chain_from_pem_file(&text(&arguments.certificate))?;
    config.load_priv_key_from_pem_file(&text(&arguments.key))?;
    config.set_application_protos(&[ALPN])?;
    config.set_max_idle_timeout(30_000);
    config.set_max_recv_udp_payload_size(1350);
    config.set_initial_max_data(1 << 20);
    config.set_initial_max_stream_data_bidi_remote(1 << 16);
    config.set_initial_max_streams_bidi(100);
    config.set_active_connection_id_limit(4);
    config.enable_early_data();
    Ok(config)
}

fn token(from: &SocketAddr, original: &[u8]) -> Vec<u8> {
    [MARK, from.to_string().as_bytes(), b"|", original].concat()
}

/// The id that a client first wrote to, from a token of its address.
fn original<'a>(from: &SocketAddr, token: &'a [u8]) -> Option<ConnectionId<'a>> {
    let head = [MARK, from.to_string().as_bytes(), b"|"].concat();
    token.strip_prefix(head.as_slice()).map(ConnectionId::from_ref)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read();
    let mut config = config(&arguments)?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let local = socket.local_addr()?;
    tell(local);
    let mut clients: Vec<Client> = Vec::new();
    let mut count = 0_u64;
    let (mut buffer, mut out) = ([0; 65_535], [0; 1350]);
    loop {
        let wait = clients.iter().filter_map(|client| client.connection.timeout()).min();
        let wait = wait.unwrap_or(Duration::from_secs(60)).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(wait))?;
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                let datagram = &mut buffer[..len];
                let header = Header::from_slice(datagram, ID_LEN);
                let Ok(header) = header else { continue };
                let known = clients.iter_mut().find(|client| {
                    client.connection.source_ids().any(|id| *id == header.dcid)
                });
                let info = quiche::RecvInfo { from, to: local };
                if let Some(client) = known {
                    let _ = client.connection.recv(datagram, info);
                } else if header.ty == Type::Initial {
                    count += 1;
                    let mut id = [7; ID_LEN];
                    id[..8].copy_from_slice(&count.to_be_bytes());
                    let id = ConnectionId::from_ref(&id);
                    let sent = header.token.as_deref().unwrap_or_default();
                    if arguments.retry && sent.is_empty() {
                        let token = token(&from, &header.dcid);
                        let version = header.version;
                        let scid = &header.scid;
                        let len = quiche::retry(scid, &header.dcid, &id, &token, version, &mut out)?;
                        socket.send_to(&out[..len], from)?;
                        continue;
                    }
                    let first = original(&from, sent);
                    let own = if first.is_some() { &header.dcid } else { &id };
                    let connection = quiche::accept(own, first.as_ref(), local, from, &mut config)?;
                    let mut client = Client {
                        connection,
                        streams: HashMap::new(),
                    };
                    let _ = client.connection.recv(datagram, info);
                    clients.push(client);
                }
            }
            Err(_) => clients.iter_mut().for_each(|client| client.connection.on_timeout()),
        }
        for client in &mut clients {
            // Another id for the client, so that it can move.
            while client.connection.is_established() && client.connection.scids_left() > 0 {
                count += 1;
                let mut id = [8; ID_LEN];
                id[..8].copy_from_slice(&count.to_be_bytes());
                let id = ConnectionId::from_ref(&id);
                if client.connection.new_scid(&id, u128::from(count), false).is_err() {
                    break;
                }
            }
            echo(client);
            while let Ok((len, info)) = client.connection.send(&mut out) {
                let _ = socket.send_to(&out[..len], info.to);
            }
        }
        clients.retain(|client| !client.connection.is_closed());
    }
}

fn echo(client: &mut Client) {
    let connection = &mut client.connection;
    if !connection.is_established() && !connection.is_in_early_data() {
        return;
    }
    let mut buffer = [0; 4096];
    for id in connection.readable() {
        let (waiting, end) = client.streams.entry(id).or_default();
        while let Ok((len, fin)) = connection.stream_recv(id, &mut buffer) {
            waiting.extend_from_slice(&buffer[..len]);
            *end |= fin;
        }
    }
    client.streams.retain(|&id, (waiting, end)| {
        let written = connection.stream_send(id, waiting, *end).unwrap_or(0);
        waiting.drain(..written);
        !(waiting.is_empty() && *end)
    });
}
