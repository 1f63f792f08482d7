//! The codes of all functions, for C: those of the engine and of MQTT under
//! their numbers, and those of this border. A test holds them to the originals.

use core::ffi::CStr;

use dunlin_mqtt_mini as mqtt;
use dunlin_mqtt_mini::{Texts, weight};

/// Why a call was refused or a connection ended: dunlin_error_text has it in
/// words. From dunlin_run, all but those from `DUNLIN_CODE_BUSY` on say that the
/// connection is over. From other functions, they say that nothing was done and
/// all else goes on.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Done.
    Ok = 0,
    /// Nothing was heard for the idle timeout.
    IdleTimeout = 1,
    /// The server closed the connection, with a transport error or none.
    ClosedByPeer = 2,
    /// The server's application closed the connection.
    ClosedByApplication = 3,
    /// The application closed the connection.
    ClosedLocally = 4,
    /// The server has forgotten the connection (stateless reset).
    StatelessReset = 5,
    /// The server does not speak QUIC version 1.
    VersionNegotiation = 6,
    /// The entropy source failed.
    Entropy = 7,
    /// All packet numbers of a 32-bit counter are used up.
    PacketNumbers = 8,
    /// All bytes of a 32-bit counter are used up, in one of the directions: a
    /// connection carries 4 GB less 16 MB. Connect again.
    ByteNumbers = 9,
    /// A frame is cut off or has an impossible value.
    FrameEncoding = 16,
    /// A frame of a type that QUIC version 1 does not have.
    UnknownFrame = 17,
    /// A frame in a packet where it may not be.
    FrameForbidden = 18,
    /// A packet without a frame.
    EmptyPacket = 19,
    /// Reserved bits of the header are set.
    ReservedBits = 20,
    /// An acknowledgement of a packet that was never sent.
    AckUnsent = 21,
    /// An acknowledgement with a range below zero.
    AckRange = 22,
    /// More stream data than the window of the stream.
    StreamFlowControl = 23,
    /// More stream data than the window of the connection.
    ConnectionFlowControl = 24,
    /// Data beyond the end of a stream, or a second, different end.
    FinalSize = 25,
    /// A frame for a stream that does not exist or has no such side.
    StreamState = 26,
    /// The server opened a stream, which it may not.
    StreamLimit = 27,
    /// Handshake data beyond the buffer for it.
    CryptoBuffer = 28,
    /// More connection ids than allowed.
    ConnectionIdLimit = 29,
    /// A connection id of a wrong length, or one number with two ids.
    ConnectionId = 30,
    /// A transport parameter is malformed or out of its range.
    TransportParameter = 31,
    /// The ids in the transport parameters are not those of the packets.
    ParameterIds = 32,
    /// The server sent a limit below the one that early data relied on.
    ParameterShrunk = 33,
    /// A NEW_TOKEN frame with an empty token.
    EmptyToken = 36,
    /// The token of a Retry does not fit.
    RetryToken = 37,
    /// Too many gaps in what arrived; never ends a connection, the packet is
    /// left unacknowledged and comes again.
    Again = 38,
    /// A handshake message is malformed.
    Decode = 64,
    /// A handshake message at the wrong time.
    UnexpectedMessage = 65,
    /// The server asks for another hello (HelloRetryRequest) that would be the
    /// same, or this build has no other.
    HelloRetry = 66,
    /// The server did not choose TLS 1.3.
    Downgrade = 67,
    /// The server chose a cipher suite that was not offered.
    CipherSuite = 68,
    /// The server sent no key share, or one of another group.
    KeyShare = 69,
    /// The server's key share is no point of the curve.
    BadPoint = 70,
    /// The server chose a ticket that was not offered.
    PskIdentity = 71,
    /// An extension that was not offered.
    UnsupportedExtension = 72,
    /// The server chose no or another application protocol.
    Alpn = 73,
    /// The server sent no transport parameters.
    MissingParameters = 74,
    /// The handshake is signed with another algorithm than offered.
    SignatureScheme = 75,
    /// The signature of the handshake is wrong.
    CertificateVerify = 76,
    /// The server's Finished is wrong.
    Finished = 77,
    /// Handshake bytes that straddle a change of keys.
    Straddle = 78,
    /// The server accepted early data that was not offered.
    EarlyData = 79,
    /// The server echoed a session id that was not sent.
    SessionId = 80,
    /// A ticket allows an amount of early data that QUIC does not know.
    TicketEarlyData = 81,
    /// The cookie of a HelloRetryRequest does not fit.
    Cookie = 82,
    /// An extension that comes twice, or in a message that may not have it.
    IllegalExtension = 83,
    /// The own certificates are not in DER, one behind the other, or the key of the
    /// first is none of P-256.
    ClientKey = 84,
    /// The server sent no certificate.
    NoCertificate = 96,
    /// The certificate is not X.509.
    CertificateEncoding = 97,
    /// The certificate's key is not of P-256.
    CertificateKey = 98,
    /// The server's key is not among the pinned ones.
    WrongKey = 99,
    /// The certificate is not signed with ECDSA P-256 and SHA-256.
    CertificateAlgorithm = 100,
    /// The certificate was not signed by the authority.
    UnknownAuthority = 101,
    /// The certificate names another server.
    WrongName = 102,
    /// The certificate is not valid yet.
    NotYetValid = 103,
    /// The certificate has expired.
    Expired = 104,
    /// The certificate may not be used for servers.
    WrongUsage = 105,
    /// The certificate has a critical extension that is not understood.
    CriticalExtension = 106,
    /// The memory or buffers are too small for what the call needs, or the memory
    /// is not aligned.
    Memory = 128,
    /// The call makes no sense in this state.
    State = 129,
    /// There is no such stream.
    NoStream = 130,
    /// No stream can be opened now.
    NoStreamLeft = 131,
    /// The stored ticket is not one of this client.
    Ticket = 132,
    /// The server forbids migration, or no connection id is left for it.
    Migration = 133,
    /// The stream was ended by the other side.
    StreamReset = 134,
    /// A packet of the broker is malformed, or of a kind that a client does not
    /// get.
    Malformed = 160,
    /// A packet of the broker is longer than the receive buffer.
    TooLong = 161,
    /// The broker refused the connection; dunlin_reason says why.
    Refused = 162,
    /// The broker ended the connection; dunlin_reason says why.
    Disconnected = 163,
    /// The broker ended the stream without a word.
    Ended = 164,
    /// The send buffer has no room now: call again after the next dunlin_run.
    Full = 165,
    /// The packet is longer than the send buffer, or than the broker takes.
    TooLarge = 166,
    /// The call makes no sense now: not connected, or over.
    SessionState = 167,
    /// More messages under way than the broker allows, or than fit.
    Quota = 168,
    /// The broker or this build does not have this quality of service.
    Qos = 169,
    /// A call from inside of a callback.
    Busy = 192,
    /// A pointer or callback is null that must not be, or bytes that have a
    /// length are.
    NullPointer = 193,
    /// A key does not have 65 bytes, or the private one not 32.
    KeyLength = 194,
    /// Neither keys nor an authority were given, or this build knows none.
    NoKey = 195,
    /// An authority was given, but neither the name nor the address of the
    /// broker, or one that has neither 4 nor 16 bytes.
    NoName = 196,
    /// A topic or a topic filter is empty.
    NoTopic = 197,
    /// Certificates of the device were given, and this build shows none.
    NoIdentity = 198,
}

/// All codes; their order is that of the numbers.
const ALL: [Code; 87] = [
    Code::Ok,
    Code::IdleTimeout,
    Code::ClosedByPeer,
    Code::ClosedByApplication,
    Code::ClosedLocally,
    Code::StatelessReset,
    Code::VersionNegotiation,
    Code::Entropy,
    Code::PacketNumbers,
    Code::ByteNumbers,
    Code::FrameEncoding,
    Code::UnknownFrame,
    Code::FrameForbidden,
    Code::EmptyPacket,
    Code::ReservedBits,
    Code::AckUnsent,
    Code::AckRange,
    Code::StreamFlowControl,
    Code::ConnectionFlowControl,
    Code::FinalSize,
    Code::StreamState,
    Code::StreamLimit,
    Code::CryptoBuffer,
    Code::ConnectionIdLimit,
    Code::ConnectionId,
    Code::TransportParameter,
    Code::ParameterIds,
    Code::ParameterShrunk,
    Code::EmptyToken,
    Code::RetryToken,
    Code::Again,
    Code::Decode,
    Code::UnexpectedMessage,
    Code::HelloRetry,
    Code::Downgrade,
    Code::CipherSuite,
    Code::KeyShare,
    Code::BadPoint,
    Code::PskIdentity,
    Code::UnsupportedExtension,
    Code::Alpn,
    Code::MissingParameters,
    Code::SignatureScheme,
    Code::CertificateVerify,
    Code::Finished,
    Code::Straddle,
    Code::EarlyData,
    Code::SessionId,
    Code::TicketEarlyData,
    Code::Cookie,
    Code::IllegalExtension,
    Code::ClientKey,
    Code::NoCertificate,
    Code::CertificateEncoding,
    Code::CertificateKey,
    Code::WrongKey,
    Code::CertificateAlgorithm,
    Code::UnknownAuthority,
    Code::WrongName,
    Code::NotYetValid,
    Code::Expired,
    Code::WrongUsage,
    Code::CriticalExtension,
    Code::Memory,
    Code::State,
    Code::NoStream,
    Code::NoStreamLeft,
    Code::Ticket,
    Code::Migration,
    Code::StreamReset,
    Code::Malformed,
    Code::TooLong,
    Code::Refused,
    Code::Disconnected,
    Code::Ended,
    Code::Full,
    Code::TooLarge,
    Code::SessionState,
    Code::Quota,
    Code::Qos,
    Code::Busy,
    Code::NullPointer,
    Code::KeyLength,
    Code::NoKey,
    Code::NoName,
    Code::NoTopic,
    Code::NoIdentity,
];

/// What this border adds to the texts of MQTT and the engine.
const OWN: &[mqtt::Row] = &[
    (192, "a call from inside of a callback"),
    (193, "a pointer or callback is null"),
    (194, "a key does not have 65 bytes, or a private one 32"),
    (195, "neither keys nor an authority were given"),
    (
        196,
        "neither the name nor the address of the broker was given",
    ),
    (197, "a topic or a topic filter is empty"),
    (198, "this build shows no certificates of the device"),
    (DONE, "done"),
];
/// Stands for zero, which ends a text.
const DONE: u8 = 254;

static OWN_TEXTS: Texts<{ weight(OWN) }> = Texts::new(OWN);

/// What a code means, for people.
pub(crate) fn text(code: u8) -> &'static CStr {
    let own = OWN_TEXTS.get(if code == 0 { DONE } else { code });
    own.filter(|_| code != DONE)
        .unwrap_or_else(|| mqtt::error_text(code))
}

impl From<mqtt::Error> for Code {
    fn from(error: mqtt::Error) -> Self {
        let number = error.code();
        let found = ALL.iter().find(|code| **code as u8 == number);
        // The test finds what is missing above.
        found.copied().unwrap_or(Self::SessionState)
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    use super::*;

    /// Names and numbers of an enumeration in a source file.
    fn variants(source: &str) -> Vec<(String, String)> {
        let lines = source.lines().map(str::trim);
        let pairs = lines.filter_map(|line| line.strip_suffix(',')?.split_once(" = "));
        pairs
            .filter(|(_, number)| number.bytes().all(|digit| digit.is_ascii_digit()))
            .map(|(name, number)| (name.into(), number.into()))
            .collect()
    }

    #[test]
    fn every_error_has_its_code() {
        let own = variants(include_str!("codes.rs"));
        let engine = variants(include_str!("../../dunlin-quic-mini/src/error.rs"));
        assert!(engine.len() > 50, "{}", engine.len());
        for pair in &engine {
            assert!(own.contains(pair), "{pair:?} is missing");
        }
        assert_eq!(own.len(), ALL.len());
        for (code, (name, number)) in ALL.iter().zip(&own) {
            assert_eq!(
                format!("{code:?} {}", *code as u8),
                format!("{name} {number}")
            );
        }
        for error in [
            mqtt::Error::Malformed,
            mqtt::Error::TooLong,
            mqtt::Error::Refused,
            mqtt::Error::Disconnected,
            mqtt::Error::Ended,
            mqtt::Error::Full,
            mqtt::Error::TooLarge,
            mqtt::Error::Quota,
            mqtt::Error::Qos,
        ] {
            assert_eq!(format!("{:?}", Code::from(error)), format!("{error:?}"));
        }
        assert_eq!(Code::from(mqtt::Error::State), Code::SessionState);
    }

    #[test]
    fn every_code_has_a_text() {
        let unknown = text(255);
        for code in 0..=u8::MAX {
            let known = ALL.iter().any(|known| *known as u8 == code);
            assert_eq!(text(code) != unknown, known, "{code}");
        }
    }
}
