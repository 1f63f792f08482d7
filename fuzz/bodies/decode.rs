//! Any bytes as an MQTT packet, in both versions: decoding does not panic, and
//! what it accepts can be encoded, measured and decoded to an equal packet.

use dunlin_mqtt_codec::{Packet, Version, decode, peek};

/// One input.
pub(crate) fn run(data: &[u8]) {
    /// Limit that some inputs are beyond.
    const PACKET_BYTES_MAX: u32 = 1 << 20;
    let frame = peek(data, PACKET_BYTES_MAX);
    for version in [Version::V311, Version::V5] {
        let Ok(packet) = decode(data, version) else {
            continue;
        };
        if let Ok(frame) = frame {
            let frame = frame.expect("what decodes is complete");
            assert_eq!(frame.total_len, data.len(), "exactly one packet");
            assert_eq!(frame.packet_type, packet.packet_type());
        }
        check_round_trip(&packet, version);
        // Lists are read again, outside of the decoder, by their `Debug`.
        let _ = format!("{packet:?}");
    }
}

fn check_round_trip(packet: &Packet<'_>, version: Version) {
    // CONNECT brings its version with it.
    let version = match packet {
        Packet::Connect(connect) => connect.version,
        _ => version,
    };
    let mut bytes = Vec::new();
    let encoded = packet.encode(version, &mut bytes);
    assert_eq!(encoded, Ok(()), "{packet:?}");
    assert_eq!(packet.encoded_len(version), Ok(bytes.len()), "{packet:?}");
    assert_eq!(decode(&bytes, version).as_ref(), Ok(packet));
}
