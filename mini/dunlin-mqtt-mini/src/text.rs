//! What the numbers of errors and the reasons of MQTT mean, for people. A
//! device sends numbers home; only a program that asks here has the texts.

use core::ffi::CStr;

/// A number and what it means.
pub type Row = (u8, &'static str);

/// The number of the text for numbers that have none.
pub const OTHERS: u8 = 255;

/// Texts by number, in one piece: a linker leaves out all of them or nothing.
#[derive(Debug)]
pub struct Texts<const BYTES: usize>([u8; BYTES]);

/// Bytes that [`Texts`] of these rows have.
#[must_use]
pub const fn weight(rows: &[Row]) -> usize {
    let mut bytes = 0;
    let mut rest = rows;
    while let [(_, text), more @ ..] = rest {
        // The number, and a zero behind the text.
        bytes += text.len() + 2;
        rest = more;
    }
    bytes
}

impl<const BYTES: usize> Texts<BYTES> {
    /// For a constant: it does not compile if a number or a text has a zero in
    /// it, or the size is not the rows' [`weight`].
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "before there is a program")]
    pub const fn new(rows: &[Row]) -> Self {
        let mut bytes = [0; BYTES];
        let mut at = 0;
        let mut rest = rows;
        while let [(number, text), more @ ..] = rest {
            assert!(*number > 0, "zero ends a text");
            bytes[at] = *number;
            at += 1;
            let mut text = text.as_bytes();
            while let [byte, behind @ ..] = text {
                assert!(*byte > 0, "zero ends a text");
                bytes[at] = *byte;
                at += 1;
                text = behind;
            }
            at += 1;
            rest = more;
        }
        assert!(at == BYTES, "the weight is another");
        Self(bytes)
    }

    /// The text of a number.
    pub fn get(&'static self, number: u8) -> Option<&'static CStr> {
        let mut entries = self.0.split_inclusive(|&byte| byte == 0);
        entries.find_map(|entry| match entry {
            [first, text @ ..] if *first == number => CStr::from_bytes_with_nul(text).ok(),
            _ => None,
        })
    }

    /// The text of a number, or that of [`OTHERS`].
    fn any(&'static self, number: u8) -> &'static CStr {
        let text = self.get(number).or_else(|| self.get(OTHERS));
        text.unwrap_or_default()
    }
}

/// Up to 63 of the connection as such and of the transport, from 64 on of TLS,
/// from 96 of the certificate, from 128 of calls, and from 160 of MQTT.
const ERRORS: &[Row] = &[
    (1, "nothing was heard for the idle timeout"),
    (
        2,
        "the server closed the connection, with a transport error or none",
    ),
    (3, "the server's application closed the connection"),
    (4, "the application closed the connection"),
    (
        5,
        "the server has forgotten the connection (stateless reset)",
    ),
    (6, "the server does not speak QUIC version 1"),
    (7, "the entropy source failed"),
    (8, "all packet numbers of a 32-bit counter are used up"),
    (
        9,
        "all bytes of a 32-bit counter are used up, in one of the directions",
    ),
    (16, "a frame is cut off or has an impossible value"),
    (17, "a frame of a type that QUIC version 1 does not have"),
    (18, "a frame in a packet where it may not be"),
    (19, "a packet without a frame"),
    (20, "reserved bits of the header are set"),
    (21, "an acknowledgement of a packet that was never sent"),
    (22, "an acknowledgement with a range below zero"),
    (23, "more stream data than the window of the stream"),
    (24, "more stream data than the window of the connection"),
    (
        25,
        "data beyond the end of a stream, or a second, different end",
    ),
    (
        26,
        "a frame for a stream that does not exist or has no such side",
    ),
    (27, "the server opened a stream, which it may not"),
    (28, "handshake data beyond the buffer for it"),
    (29, "more connection ids than allowed"),
    (
        30,
        "a connection id of a wrong length, or one number with two ids",
    ),
    (31, "a transport parameter is malformed or out of its range"),
    (
        32,
        "the ids in the transport parameters are not those of the packets",
    ),
    (
        33,
        "the server sent a limit below the one that early data relied on",
    ),
    (36, "a NEW_TOKEN frame with an empty token"),
    (37, "the token of a Retry does not fit"),
    (38, "too many gaps in what arrived"),
    (64, "a handshake message is malformed"),
    (65, "a handshake message at the wrong time"),
    (
        66,
        "the server asks for another hello, which this client does not have",
    ),
    (67, "the server did not choose TLS 1.3"),
    (68, "the server chose a cipher suite that was not offered"),
    (69, "the server sent no key share, or one of another group"),
    (70, "the server's key share is no point of the curve"),
    (71, "the server chose a ticket that was not offered"),
    (72, "an extension that was not offered"),
    (73, "the server chose no or another application protocol"),
    (74, "the server sent no transport parameters"),
    (
        75,
        "the handshake is signed with another algorithm than offered",
    ),
    (76, "the signature of the handshake is wrong"),
    (77, "the server's Finished is wrong"),
    (78, "handshake bytes that straddle a change of keys"),
    (79, "the server accepted early data that was not offered"),
    (80, "the server echoed a session id that was not sent"),
    (
        81,
        "a ticket allows an amount of early data that QUIC does not know",
    ),
    (82, "the cookie of a HelloRetryRequest does not fit"),
    (
        83,
        "an extension came twice, or in a message that may not have it",
    ),
    (
        84,
        "the own certificates are not in DER, or their key is not of P-256",
    ),
    (96, "the server sent no certificate"),
    (97, "the certificate is not X.509"),
    (98, "the certificate's key is not of P-256"),
    (99, "the server's key is not among the pinned ones"),
    (
        100,
        "the certificate is not signed with ECDSA P-256 and SHA-256",
    ),
    (101, "the certificate was not signed by the authority"),
    (102, "the certificate names another server"),
    (103, "the certificate is not valid yet"),
    (104, "the certificate has expired"),
    (105, "the certificate may not be used for servers"),
    (
        106,
        "the certificate has a critical extension that is not understood",
    ),
    (128, "the buffers are too small for what the call needs"),
    (129, "the call makes no sense in this state"),
    (130, "there is no such stream"),
    (131, "no stream can be opened now"),
    (132, "the stored ticket is not one of this client"),
    (
        133,
        "the server forbids migration, or no connection id is left for it",
    ),
    (134, "the stream was ended by the other side"),
    (
        160,
        "a packet of the broker is malformed, or of a kind that a client does not get",
    ),
    (
        161,
        "a packet of the broker is longer than the receive buffer",
    ),
    (162, "the broker refused the connection"),
    (163, "the broker ended the connection"),
    (164, "the broker ended the stream without a word"),
    (165, "the send buffer has no room now"),
    (
        166,
        "the packet is longer than the send buffer, or than the broker takes",
    ),
    (167, "the session is not in a state for this call"),
    (
        168,
        "more messages are under way than the broker allows, or than fit",
    ),
    (
        169,
        "the broker or this build does not have this quality of service",
    ),
    (OTHERS, "an unknown error"),
];

/// Section 2.4 of MQTT 5.0.
const REASONS: &[Row] = &[
    (0x80, "unspecified error"),
    (0x81, "malformed packet"),
    (0x82, "protocol error"),
    (0x83, "implementation specific error"),
    (0x84, "unsupported protocol version"),
    (0x85, "client identifier not valid"),
    (0x86, "bad user name or password"),
    (0x87, "not authorized"),
    (0x88, "server unavailable"),
    (0x89, "server busy"),
    (0x8a, "banned"),
    (0x8b, "server shutting down"),
    (0x8c, "bad authentication method"),
    (0x8d, "keep alive timeout"),
    (0x8e, "session taken over"),
    (0x8f, "topic filter invalid"),
    (0x90, "topic name invalid"),
    (0x91, "packet identifier in use"),
    (0x92, "packet identifier not found"),
    (0x93, "receive maximum exceeded"),
    (0x94, "topic alias invalid"),
    (0x95, "packet too large"),
    (0x96, "message rate too high"),
    (0x97, "quota exceeded"),
    (0x98, "administrative action"),
    (0x99, "payload format invalid"),
    (0x9a, "retain not supported"),
    (0x9b, "QoS not supported"),
    (0x9c, "use another server"),
    (0x9d, "server moved"),
    (0x9e, "shared subscriptions not supported"),
    (0x9f, "connection rate exceeded"),
    (0xa0, "maximum connect time"),
    (0xa1, "subscription identifiers not supported"),
    (0xa2, "wildcard subscriptions not supported"),
    (OTHERS, "a reason that MQTT 5.0 does not have"),
];

static ERROR_TEXTS: Texts<{ weight(ERRORS) }> = Texts::new(ERRORS);
static REASON_TEXTS: Texts<{ weight(REASONS) }> = Texts::new(REASONS);

/// What a number of [`Error::code`](crate::Error::code) means; it may be one of
/// the engine.
#[must_use]
pub fn error_text(code: u8) -> &'static CStr {
    ERROR_TEXTS.any(code)
}

/// What a reason code from 128 on means.
#[must_use]
pub fn reason_text(reason: u8) -> &'static CStr {
    REASON_TEXTS.any(reason)
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
            assert_eq!(text != error_text(0), known.contains(&code), "{code}");
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
