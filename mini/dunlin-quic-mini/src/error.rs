//! Everything that this client refuses, one number each, and the code that
//! goes on the wire for it. Knows no text: a device sends the number home.

/// Why a connection ended or a call was refused.
///
/// The numbers are stable. Up to 15 they belong to the connection as such,
/// from 16 to the transport, from 64 to TLS, from 96 to the certificate, and
/// from 128 to calls of the application, which end nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Error {
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

    /// The buffers are too small for what the call needs.
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
}

impl Error {
    /// The error code for CONNECTION_CLOSE (RFC 9000 section 20.1, RFC 9001
    /// section 4.8).
    pub(crate) const fn wire(self) -> u16 {
        match self {
            Self::ClosedLocally => 0,
            Self::FrameEncoding | Self::UnknownFrame => 0x07,
            Self::FrameForbidden
            | Self::EmptyPacket
            | Self::ReservedBits
            | Self::AckUnsent
            | Self::AckRange
            | Self::ParameterShrunk
            | Self::TicketEarlyData
            | Self::ConnectionId => 0x0a,
            Self::StreamFlowControl | Self::ConnectionFlowControl => 0x03,
            Self::StreamLimit => 0x04,
            Self::StreamState => 0x05,
            Self::FinalSize => 0x06,
            Self::CryptoBuffer => 0x0d,
            Self::ConnectionIdLimit => 0x09,
            Self::TransportParameter | Self::ParameterIds => 0x08,
            Self::EmptyToken => 0x07,
            // unexpected_message
            Self::UnexpectedMessage | Self::Straddle => 0x10a,
            Self::Decode | Self::CertificateEncoding => 0x132,
            Self::Downgrade => 0x146,
            Self::HelloRetry
            | Self::CipherSuite
            | Self::KeyShare
            | Self::BadPoint
            | Self::PskIdentity
            | Self::SignatureScheme
            | Self::SessionId
            | Self::IllegalExtension
            | Self::EarlyData => 0x12f,
            Self::UnsupportedExtension => 0x16e,
            Self::Alpn => 0x178,
            Self::MissingParameters => 0x16d,
            Self::CertificateVerify | Self::Finished => 0x133,
            Self::UnknownAuthority | Self::WrongKey => 0x130,
            Self::Expired | Self::NotYetValid => 0x12d,
            Self::CertificateKey | Self::CertificateAlgorithm | Self::WrongUsage => 0x12b,
            Self::WrongName | Self::NoCertificate | Self::CriticalExtension => 0x12a,
            _ => 0x01,
        }
    }
}
