//! One exchange as a server sees it, of any mechanism.
//!
//! [`Exchange::begin`] and [`Exchange::respond`] take what the client sends and
//! say what comes next: an empty challenge, a [`Question`] to answer, or the end.
//! Who may act for whom is decided here: only users for themselves.

use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::Text;
use dunlin_base::transport::BindingType;

use crate::oauth::Bearer;
use crate::plain::Plain;
use crate::scram::{Exchange as Scram, StoredKeys};
use crate::{Mechanism, SaslError};

/// Longest message taken from a client; a token is the longest of them.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// What must be known of a user for the exchange to go on or to end.
#[derive(Clone, PartialEq, Eq)]
pub enum Question {
    /// Whether a client without credentials may enter.
    Anonymous,
    /// Whether this is the user's password.
    Password {
        /// User name.
        user: Text,
        /// Password.
        password: Bytes,
    },
    /// What the transport has proved, and whether it is this user, if one is
    /// named.
    External(Option<Text>),
    /// What is stored of a user: [`Exchange::challenge`] takes the answer.
    Keys {
        /// User name.
        user: Text,
    },
    /// Whether this token is valid, and whose it is.
    Token {
        /// User that the client claims to be, if it names one.
        user: Option<Text>,
        /// The token.
        token: Text,
    },
}

// Passwords and tokens must not reach a log.
impl core::fmt::Debug for Question {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Anonymous => f.write_str("Anonymous"),
            Self::Password { user, .. } => f.debug_tuple("Password").field(user).finish(),
            Self::External(user) => f.debug_tuple("External").field(user).finish(),
            Self::Keys { user } => f.debug_tuple("Keys").field(user).finish(),
            Self::Token { user, .. } => f.debug_tuple("Token").field(user).finish(),
        }
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send an empty challenge: the client has not sent its first message.
    Wait,
    /// Find out; for all but [`Question::Keys`] the answer ends the exchange.
    Ask(Question),
    /// The client is this user; the last message for it.
    Done {
        /// User name.
        user: Text,
        /// The server's proof.
        data: Bytes,
    },
}

/// An exchange under way.
#[derive(Debug)]
pub struct Exchange {
    mechanism: Mechanism,
    /// By what SCRAM-SHA-256-PLUS is offered, if it is.
    offered: Option<BindingType>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The client's first message is missing.
    First,
    /// The client's messages have been read.
    Asked,
    Scram(Scram),
}

impl Exchange {
    /// The client has chosen a mechanism, and perhaps sent its first message.
    /// `offered`: what the TLS connection can be bound by, if the server offers
    /// that.
    ///
    /// # Errors
    /// What is wrong with the message.
    pub fn begin(
        mechanism: Mechanism,
        initial: Option<&[u8]>,
        offered: Option<BindingType>,
    ) -> Result<(Self, Next), SaslError> {
        let mut exchange = Self {
            mechanism,
            offered,
            state: State::First,
        };
        let next = match initial {
            Some(message) => exchange.respond(message)?,
            None => Next::Wait,
        };
        Ok((exchange, next))
    }

    /// The mechanism.
    #[must_use]
    pub const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Whether it waits for the data of the channel.
    #[must_use]
    pub const fn wants_channel(&self) -> bool {
        matches!(&self.state, State::Scram(scram) if scram.wants_channel())
    }

    /// The data of the channel, of the type that was offered.
    pub fn bind(&mut self, data: Bytes) {
        if let State::Scram(scram) = &mut self.state {
            scram.bind(data);
        }
    }

    /// A message of the client.
    ///
    /// # Errors
    /// What is wrong with the message.
    pub fn respond(&mut self, message: &[u8]) -> Result<Next, SaslError> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(SaslError::Malformed);
        }
        match &self.state {
            State::First => self.first(message),
            State::Scram(scram) => Ok(Next::Done {
                data: scram.finish(message)?,
                user: scram.user().clone(),
            }),
            State::Asked => Err(SaslError::OutOfOrder),
        }
    }

    fn first(&mut self, message: &[u8]) -> Result<Next, SaslError> {
        self.state = State::Asked;
        let named = |name: &str| (!name.is_empty()).then(|| Text::from(name));
        let question = match self.mechanism {
            Mechanism::Anonymous | Mechanism::Cbs => Question::Anonymous,
            Mechanism::Plain => {
                let plain = Plain::parse(message)?;
                if !plain.authzid.is_empty() && plain.authzid != plain.user {
                    return Err(SaslError::AuthorizationIdentity);
                }
                Question::Password {
                    user: Text::from(plain.user),
                    password: Bytes::copy_from_slice(plain.password),
                }
            }
            Mechanism::External => {
                let name = core::str::from_utf8(message).map_err(|_| SaslError::Malformed)?;
                Question::External(named(name))
            }
            Mechanism::OAuthBearer => {
                let bearer = Bearer::parse(message)?;
                Question::Token {
                    user: named(bearer.authzid),
                    token: Text::from(bearer.token),
                }
            }
            Mechanism::ScramSha256 | Mechanism::ScramSha256Plus => {
                let binds = self.mechanism == Mechanism::ScramSha256Plus;
                let scram = Scram::begin(message, binds, self.offered)?;
                let user = scram.user().clone();
                self.state = State::Scram(scram);
                Question::Keys { user }
            }
        };
        Ok(Next::Ask(question))
    }

    /// The challenge of SCRAM, from what is stored of the user. `nonce` is fresh
    /// and printable.
    ///
    /// # Errors
    /// There is no such exchange, or its client's first message cannot be
    /// answered.
    pub fn challenge(
        &mut self,
        nonce: &str,
        salt: &[u8],
        iterations: u32,
        keys: StoredKeys,
    ) -> Result<Vec<u8>, SaslError> {
        let State::Scram(scram) = &mut self.state else {
            return Err(SaslError::OutOfOrder);
        };
        Ok(scram.challenge(nonce, salt, iterations, keys)?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scram::{Binding, ChannelBinding, Client, ScramError};

    fn ask(mechanism: Mechanism, message: &[u8]) -> Result<Next, SaslError> {
        Exchange::begin(mechanism, Some(message), None).map(|(_, next)| next)
    }

    #[test]
    fn mechanisms_of_one_message_ask_at_once() {
        let password = Question::Password {
            user: Text::from_static("u"),
            password: Bytes::from_static(b"p"),
        };
        let token = Question::Token {
            user: None,
            token: Text::from_static("t"),
        };
        let cases: [(Mechanism, &[u8], Question); 5] = [
            (Mechanism::Anonymous, b"trace", Question::Anonymous),
            (Mechanism::Plain, b"\0u\0p", password.clone()),
            (Mechanism::Plain, b"u\0u\0p", password),
            (Mechanism::External, b"", Question::External(None)),
            (
                Mechanism::OAuthBearer,
                b"n,,\x01auth=Bearer t\x01\x01",
                token,
            ),
        ];
        for (mechanism, message, question) in cases {
            assert_eq!(ask(mechanism, message), Ok(Next::Ask(question)));
        }
        let other = ask(Mechanism::Plain, b"root\0u\0p");
        assert_eq!(other, Err(SaslError::AuthorizationIdentity));
    }

    #[test]
    fn a_missing_first_message_is_asked_for() {
        let (mut exchange, next) =
            Exchange::begin(Mechanism::Plain, None, None).expect("nothing is wrong yet");
        assert_eq!(next, Next::Wait);
        assert!(matches!(
            exchange.respond(b"\0u\0p"),
            Ok(Next::Ask(Question::Password { .. }))
        ));
        assert_eq!(exchange.respond(b"\0u\0p"), Err(SaslError::OutOfOrder));
        let keys = StoredKeys::derive(b"p", b"salt", 4096);
        let challenge = exchange.challenge("n", b"salt", 4096, keys);
        assert_eq!(challenge, Err(SaslError::OutOfOrder));
    }

    #[test]
    fn messages_have_a_longest_length() {
        let long = [b'x'; MESSAGE_BYTES_MAX + 1];
        for mechanism in Mechanism::ALL {
            assert_eq!(ask(mechanism, &long), Err(SaslError::Malformed));
        }
    }

    /// SCRAM between our client and our server, whose end of the channel has
    /// `data`.
    fn scram(
        mechanism: Mechanism,
        binding: Binding<'_>,
        offered: Option<BindingType>,
        data: &'static [u8],
    ) -> Result<Next, SaslError> {
        let client = Client {
            user: "u",
            password: b"p",
            nonce: "abc",
            binding,
        };
        let mut first = Vec::new();
        client.first(&mut first).expect("room");
        let (mut exchange, next) = Exchange::begin(mechanism, Some(&first), offered)?;
        let user = Text::from_static("u");
        assert_eq!(next, Next::Ask(Question::Keys { user }));
        assert_eq!(
            exchange.wants_channel(),
            offered.is_some() && first[0] == b'p'
        );
        exchange.bind(Bytes::from_static(data));
        let keys = StoredKeys::derive(b"p", b"salt", 4096);
        let challenge = exchange.challenge("xyz", b"salt", 4096, keys)?;
        let mut last = Vec::new();
        let expect = client.respond(&challenge, &mut last).expect("an answer");
        let next = exchange.respond(&last)?;
        if let Next::Done { data, .. } = &next {
            assert_eq!(expect.verify(data), Ok(()));
        }
        Ok(next)
    }

    #[test]
    fn scram_is_bound_to_its_channel() {
        let exporter = Some(BindingType::TlsExporter);
        let bound = |kind, data| Binding::Bound(ChannelBinding { kind, data });
        let ours = bound(BindingType::TlsExporter, &[1; 32]);
        let theirs = bound(BindingType::TlsExporter, &[2; 32]);
        let other = bound(BindingType::TlsServerEndPoint, &[1; 32]);
        let (plus, bare) = (Mechanism::ScramSha256Plus, Mechanism::ScramSha256);
        let (none, unoffered) = (Binding::Unsupported, Binding::NotOffered);
        let done = |mechanism, binding, offered| {
            let next = scram(mechanism, binding, offered, &[1; 32]);
            matches!(next, Ok(Next::Done { .. }))
        };
        assert!(done(bare, none, None) && done(bare, none, exporter));
        assert!(done(bare, unoffered, None) && done(plus, ours, exporter));
        let refused = Err(SaslError::Scram(ScramError::ChannelBinding));
        // One in the middle has another channel to each side.
        assert_eq!(scram(plus, theirs, exporter, &[1; 32]), refused);
        // Or takes the offer away.
        assert_eq!(scram(bare, unoffered, exporter, &[1; 32]), refused);
        // The server does not know its own end.
        assert_eq!(scram(plus, ours, exporter, &[]), refused);
        // A mechanism that does not say what the message says, or by what.
        let unsupported = Err(SaslError::Scram(ScramError::Unsupported));
        for (mechanism, binding, offered) in [
            (bare, ours, exporter),
            (plus, none, exporter),
            (plus, unoffered, exporter),
            (plus, other, exporter),
            (plus, ours, None),
        ] {
            assert_eq!(scram(mechanism, binding, offered, &[1; 32]), unsupported);
        }
    }
}
