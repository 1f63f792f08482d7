//! What the numbers of errors and the reasons of MQTT mean, for people. A
//! device sends numbers home; only a program that asks here has the texts.

use core::ffi::CStr;

const UNKNOWN: &CStr = c"an unknown error";

/// What a number of [`Error::code`](crate::Error::code) means; it may be one of
/// the engine.
#[must_use]
pub const fn error_text(code: u8) -> &'static CStr {
    match code {
        0..64 => connection(code),
        64..96 => handshake(code),
        96..128 => certificate(code),
        128.. => call(code),
    }
}

/// The connection as such, and the transport.
const fn connection(code: u8) -> &'static CStr {
    match code {
        1 => c"nothing was heard for the idle timeout",
        2 => c"the server closed the connection, with a transport error or none",
        3 => c"the server's application closed the connection",
        4 => c"the application closed the connection",
        5 => c"the server has forgotten the connection (stateless reset)",
        6 => c"the server does not speak QUIC version 1",
        7 => c"the entropy source failed",
        8 => c"all packet numbers of a 32-bit counter are used up",
        9 => c"all bytes of a 32-bit counter are used up, in one of the directions",
        16 => c"a frame is cut off or has an impossible value",
        17 => c"a frame of a type that QUIC version 1 does not have",
        18 => c"a frame in a packet where it may not be",
        19 => c"a packet without a frame",
        20 => c"reserved bits of the header are set",
        21 => c"an acknowledgement of a packet that was never sent",
        22 => c"an acknowledgement with a range below zero",
        23 => c"more stream data than the window of the stream",
        24 => c"more stream data than the window of the connection",
        25 => c"data beyond the end of a stream, or a second, different end",
        26 => c"a frame for a stream that does not exist or has no such side",
        27 => c"the server opened a stream, which it may not",
        28 => c"handshake data beyond the buffer for it",
        29 => c"more connection ids than allowed",
        30 => c"a connection id of a wrong length, or one number with two ids",
        31 => c"a transport parameter is malformed or out of its range",
        32 => c"the ids in the transport parameters are not those of the packets",
        33 => c"the server sent a limit below the one that early data relied on",
        36 => c"a NEW_TOKEN frame with an empty token",
        37 => c"the token of a Retry does not fit",
        38 => c"too many gaps in what arrived",
        _ => UNKNOWN,
    }
}

/// TLS.
const fn handshake(code: u8) -> &'static CStr {
    match code {
        64 => c"a handshake message is malformed",
        65 => c"a handshake message at the wrong time",
        66 => c"the server asks for another hello, which this client does not have",
        67 => c"the server did not choose TLS 1.3",
        68 => c"the server chose a cipher suite that was not offered",
        69 => c"the server sent no key share, or one of another group",
        70 => c"the server's key share is no point of the curve",
        71 => c"the server chose a ticket that was not offered",
        72 => c"an extension that was not offered",
        73 => c"the server chose no or another application protocol",
        74 => c"the server sent no transport parameters",
        75 => c"the handshake is signed with another algorithm than offered",
        76 => c"the signature of the handshake is wrong",
        77 => c"the server's Finished is wrong",
        78 => c"handshake bytes that straddle a change of keys",
        79 => c"the server accepted early data that was not offered",
        80 => c"the server echoed a session id that was not sent",
        81 => c"a ticket allows an amount of early data that QUIC does not know",
        82 => c"the cookie of a HelloRetryRequest does not fit",
        _ => UNKNOWN,
    }
}

/// The certificate.
const fn certificate(code: u8) -> &'static CStr {
    match code {
        96 => c"the server sent no certificate",
        97 => c"the certificate is not X.509",
        98 => c"the certificate's key is not of P-256",
        99 => c"the server's key is not among the pinned ones",
        100 => c"the certificate is not signed with ECDSA P-256 and SHA-256",
        101 => c"the certificate was not signed by the authority",
        102 => c"the certificate names another server",
        103 => c"the certificate is not valid yet",
        104 => c"the certificate has expired",
        105 => c"the certificate may not be used for servers",
        106 => c"the certificate has a critical extension that is not understood",
        _ => UNKNOWN,
    }
}

/// Calls of the application, and MQTT.
const fn call(code: u8) -> &'static CStr {
    match code {
        128 => c"the buffers are too small for what the call needs",
        129 => c"the call makes no sense in this state",
        130 => c"there is no such stream",
        131 => c"no stream can be opened now",
        132 => c"the stored ticket is not one of this client",
        133 => c"the server forbids migration, or no connection id is left for it",
        134 => c"the stream was ended by the other side",
        160 => c"a packet of the broker is malformed, or of a kind that a client does not get",
        161 => c"a packet of the broker is longer than the receive buffer",
        162 => c"the broker refused the connection",
        163 => c"the broker ended the connection",
        164 => c"the broker ended the stream without a word",
        165 => c"the send buffer has no room now",
        166 => c"the packet is longer than the send buffer, or than the broker takes",
        167 => c"the session is not in a state for this call",
        168 => c"more messages are under way than the broker allows, or than fit",
        169 => c"the broker or this build does not have this quality of service",
        _ => UNKNOWN,
    }
}

/// What a reason code from 128 on means (section 2.4 of MQTT 5.0).
#[must_use]
pub const fn reason_text(reason: u8) -> &'static CStr {
    match reason {
        0x80 => c"unspecified error",
        0x81 => c"malformed packet",
        0x82 => c"protocol error",
        0x83 => c"implementation specific error",
        0x84 => c"unsupported protocol version",
        0x85 => c"client identifier not valid",
        0x86 => c"bad user name or password",
        0x87 => c"not authorized",
        0x88 => c"server unavailable",
        0x89 => c"server busy",
        0x8a => c"banned",
        0x8b => c"server shutting down",
        0x8c => c"bad authentication method",
        0x8d => c"keep alive timeout",
        0x8e => c"session taken over",
        0x8f => c"topic filter invalid",
        0x90 => c"topic name invalid",
        0x91 => c"packet identifier in use",
        0x92 => c"packet identifier not found",
        0x93 => c"receive maximum exceeded",
        0x94 => c"topic alias invalid",
        0x95 => c"packet too large",
        0x96 => c"message rate too high",
        0x97 => c"quota exceeded",
        0x98 => c"administrative action",
        0x99 => c"payload format invalid",
        0x9a => c"retain not supported",
        0x9b => c"QoS not supported",
        0x9c => c"use another server",
        0x9d => c"server moved",
        0x9e => c"shared subscriptions not supported",
        0x9f => c"connection rate exceeded",
        0xa0 => c"maximum connect time",
        0xa1 => c"subscription identifiers not supported",
        0xa2 => c"wildcard subscriptions not supported",
        _ => c"a reason that MQTT 5.0 does not have",
    }
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use super::*;

    /// The numbers behind `" = "` or `" => "` in a source file.
    fn numbers(source: &str, sign: &str) -> Vec<u8> {
        let lines = source.lines().map(str::trim);
        let ends = lines.filter_map(|line| line.strip_suffix(',')?.split_once(sign));
        ends.filter_map(|(_, number)| number.parse().ok()).collect()
    }

    #[test]
    fn every_error_has_a_text_of_its_own() {
        let engine = include_str!("../../dunlin-quic-mini/src/error.rs");
        let mut known = numbers(engine, " = ");
        known.extend(numbers(include_str!("error.rs"), " => "));
        assert!(known.len() > 70, "{}", known.len());
        let mut texts = Vec::new();
        for code in 0..=u8::MAX {
            let text = error_text(code);
            assert_eq!(text != UNKNOWN, known.contains(&code), "{code}");
            if known.contains(&code) {
                texts.push(String::from(text.to_str().unwrap()));
            }
        }
        let all = texts.len();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), all);
    }

    #[test]
    fn every_refusal_of_mqtt_has_a_text() {
        let unknown = reason_text(0);
        for reason in 0..=u8::MAX {
            let has = (0x80..=0xa2).contains(&reason);
            assert_eq!(reason_text(reason) != unknown, has, "{reason:#x}");
        }
    }
}
