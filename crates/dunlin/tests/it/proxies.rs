//! A broker behind a proxy: the client's address decides who is let in and is what is
//! shown, and not the proxy's.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use dunlin_base::transport::Transport;

use crate::metrics::get;
use crate::support::{Broker, PATIENCE};

/// CONNECT of MQTT 3.1.1, clean, with the identifier `a`.
const CONNECT: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01a";

/// Connects behind this line; the connection and the return code.
fn connect(broker: &Broker, line: &str) -> (TcpStream, u8) {
    let mut stream = TcpStream::connect(broker.addr(Transport::Tcp)).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(line.as_bytes()).expect("written");
    stream.write_all(CONNECT).expect("written");
    let mut connack = [0; 4];
    stream.read_exact(&mut connack).expect("CONNACK");
    assert_eq!(connack[..3], [0x20, 2, 0]);
    (stream, connack[3])
}

#[test]
fn the_clients_address_decides_and_is_shown() {
    let listener = "listener=[{transport=\"tcp\",address=\"127.0.0.1:0\",proxy_protocol=\"v1\",\
                    trusted=[\"127.0.0.0/8\"]}]";
    for shards in [1, 2] {
        let broker = Broker::start_with(shards, &[listener, "metrics.address=127.0.0.1:0"]);
        // Without credentials only this machine is let in, and the proxy is on it.
        let far = "PROXY TCP4 203.0.113.5 192.0.2.1 4711 1883\r\n";
        assert_eq!(connect(&broker, far).1, 5);
        let near = "PROXY TCP4 127.8.8.8 192.0.2.1 4711 1883\r\n";
        let (_client, code) = connect(&broker, near);
        assert_eq!(code, 0);
        let (_, body) = get(&broker, "/connections/a");
        assert!(body.contains("\"127.8.8.8:4711\""), "{body}");
    }
}
