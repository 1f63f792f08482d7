//! Enhanced authentication (MQTT 5.0 section 4.12), the server's side: one
//! exchange of SCRAM-SHA-256 (RFC 7677), bound to its channel or not, or one token
//! (OAUTHBEARER, RFC 7628), and when their packets may come.

use alloc::boxed::Box;

use bytes::Bytes;
use dunlin_base::Text;
use dunlin_base::transport::BindingType;
use dunlin_mqtt_codec::{Auth, AuthProperties, Packet, ReasonCode};

use dunlin_sasl::oauth::Bearer;

use super::Fault;
use crate::scram::{Exchange, METHOD, METHOD_PLUS, StoredKeys};

/// The client is not who it says.
pub const NOT_AUTHORIZED: Fault = Fault::new(ReasonCode::NotAuthorized, "authentication failed");

/// The Authentication Method of tokens. The client says all in its first message.
pub const METHOD_BEARER: &str = "OAUTHBEARER";

/// The token in Authentication Data, and the user that the client claims to be, if it
/// names one.
///
/// # Errors
///
/// This is no message of [`METHOD_BEARER`].
pub fn bearer(data: Option<&[u8]>) -> Result<(Option<Text>, Text), Fault> {
    let bearer = Bearer::parse(data.unwrap_or_default()).map_err(|_| NOT_AUTHORIZED)?;
    let user = (!bearer.authzid.is_empty()).then(|| Text::from(bearer.authzid));
    Ok((user, Text::from(bearer.token)))
}

/// An exchange after the client's first message.
#[derive(Debug)]
pub struct AuthExchange {
    method: &'static str,
    scram: Exchange,
}

impl AuthExchange {
    /// Reads the client's first message; the keys of its user are still to be
    /// asked for, and the data of its channel if it wants that. `offered`: by
    /// what SCRAM-SHA-256-PLUS is offered, if it is.
    ///
    /// # Errors
    ///
    /// The method is not known, or this is no message of it.
    pub fn begin(
        method: &str,
        data: Option<&[u8]>,
        offered: Option<BindingType>,
    ) -> Result<Self, Fault> {
        let (method, binds) = match method {
            METHOD => (METHOD, false),
            METHOD_PLUS if offered.is_some() => (METHOD_PLUS, true),
            //= mqtt5#[MQTT-4.12.0-1]
            _ => {
                return Err(Fault::new(
                    ReasonCode::BadAuthenticationMethod,
                    "unknown authentication method",
                ));
            }
        };
        let scram = Exchange::begin(data.unwrap_or_default(), binds, offered);
        let scram = scram.map_err(|_| NOT_AUTHORIZED)?;
        Ok(Self { method, scram })
    }

    /// Its Authentication Method.
    #[must_use]
    pub const fn method(&self) -> &'static str {
        self.method
    }

    /// Whether it waits for the data of the channel.
    #[must_use]
    pub const fn wants_channel(&self) -> bool {
        self.scram.wants_channel()
    }

    /// The data of the channel, of the type that was offered.
    pub fn bind(&mut self, data: Bytes) {
        self.scram.bind(data);
    }

    /// The user whom the client claims to be.
    #[must_use]
    pub const fn user(&self) -> &Text {
        self.scram.user()
    }

    /// The server's first message, for AUTH.
    ///
    /// # Errors
    ///
    /// The client's first message cannot be answered.
    pub fn challenge(
        &mut self,
        nonce: &str,
        salt: &[u8],
        iterations: u32,
        keys: StoredKeys,
    ) -> Result<&[u8], Fault> {
        let challenge = self.scram.challenge(nonce, salt, iterations, keys);
        challenge.map_err(|_| NOT_AUTHORIZED)
    }

    /// AUTH between CONNECT and CONNACK: the server's last message, or `None`
    /// if the client has not proved itself.
    ///
    /// # Errors
    ///
    /// It does not continue the exchange.
    pub fn handle_auth(&self, auth: &Auth<'_>) -> Result<Option<Bytes>, Fault> {
        //= mqtt5#[MQTT-4.12.0-5]
        if auth.properties.authentication_method != Some(self.method)
            || auth.reason != ReasonCode::ContinueAuthentication
        {
            return Err(Fault::protocol("AUTH does not continue the exchange"));
        }
        Ok(self.finish(auth.properties.authentication_data).ok())
    }

    /// Checks the client's proof; returns the server's last message.
    fn finish(&self, client_final: Option<&[u8]>) -> Result<Bytes, Fault> {
        let last = self.scram.finish(client_final.unwrap_or_default());
        last.map_err(|_| NOT_AUTHORIZED)
    }
}

/// What follows from an AUTH of a connected client.
#[derive(Debug, PartialEq, Eq)]
pub enum Reauth {
    /// Get the keys of this user, for [`Reauthentication::exchange`].
    Ask(Text),
    /// Have this token verified, which the client says is this user's, for
    /// [`Reauthentication::take_token`].
    Verify(Option<Text>, Text),
    /// It has proved itself: send AUTH with this.
    Done(Bytes),
}

/// Authentication of a connected client, again (section 4.12.1).
#[derive(Debug, Default)]
pub struct Reauthentication(Option<Under>);

/// What is under way.
#[derive(Debug)]
enum Under {
    Scram(Box<AuthExchange>),
    /// A token is being verified.
    Token,
}

impl Reauthentication {
    /// AUTH of a client that connected with this method, as this user.
    /// `offered` as in [`AuthExchange::begin`].
    ///
    /// # Errors
    ///
    /// It is not in order, or the client has not proved itself: the connection
    /// ends.
    pub fn handle_auth(
        &mut self,
        auth: &Auth<'_>,
        of_connect: Option<&str>,
        known: Option<&Text>,
        offered: Option<BindingType>,
    ) -> Result<Reauth, Fault> {
        let (method, data) = (
            auth.properties.authentication_method,
            auth.properties.authentication_data,
        );
        //= mqtt5#[MQTT-4.12.1-1]
        let method = method.filter(|_| of_connect == method);
        let Some(method) = method else {
            return Err(Fault::protocol("not the method of CONNECT"));
        };
        match (auth.reason, self.0.take()) {
            (ReasonCode::ReAuthenticate, None) if method == METHOD_BEARER => {
                let (user, token) = bearer(data)?;
                self.0 = Some(Under::Token);
                Ok(Reauth::Verify(user, token))
            }
            (ReasonCode::ReAuthenticate, None) => {
                let exchange = AuthExchange::begin(method, data, offered)?;
                let user = exchange.user().clone();
                self.0 = Some(Under::Scram(Box::new(exchange)));
                Ok(Reauth::Ask(user))
            }
            (ReasonCode::ContinueAuthentication, Some(Under::Scram(exchange))) => {
                //= mqtt5#[MQTT-4.12.1-2]
                let last = exchange.finish(data)?;
                match known {
                    Some(known) if known != exchange.user() => Err(NOT_AUTHORIZED),
                    _ => Ok(Reauth::Done(last)),
                }
            }
            _ => Err(Fault::protocol("AUTH does not continue an exchange")),
        }
    }

    /// The exchange under way.
    pub fn exchange(&mut self) -> Option<&mut AuthExchange> {
        match &mut self.0 {
            Some(Under::Scram(exchange)) => Some(&mut **exchange),
            Some(Under::Token) | None => None,
        }
    }

    /// Ends the verification of a token; whether one was under way.
    pub fn take_token(&mut self) -> bool {
        let waits = matches!(self.0, Some(Under::Token));
        if waits {
            self.0 = None;
        }
        waits
    }
}

/// AUTH of the server.
#[must_use]
pub fn auth_packet<'a>(method: &'a str, reason: ReasonCode, data: &'a [u8]) -> Packet<'a> {
    Packet::Auth(Auth {
        reason,
        properties: AuthProperties {
            authentication_method: Some(method),
            authentication_data: Some(data),
            ..AuthProperties::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::scram::{Binding, ChannelBinding, Client};

    const CLIENT: Client<'_> = Client {
        user: "u",
        password: b"p",
        nonce: "abc",
        binding: Binding::Unsupported,
    };

    fn auth<'a>(reason: ReasonCode, data: &'a [u8]) -> Auth<'a> {
        auth_of(METHOD, reason, data)
    }

    fn auth_of<'a>(method: &'a str, reason: ReasonCode, data: &'a [u8]) -> Auth<'a> {
        match auth_packet(method, reason, data) {
            Packet::Auth(auth) => auth,
            _ => panic!("AUTH"),
        }
    }

    fn first(client: &Client<'_>) -> Vec<u8> {
        let mut first = Vec::new();
        client.first(&mut first).expect("room");
        first
    }

    /// Answers the challenge of an exchange as the client.
    fn prove(client: &Client<'_>, exchange: &mut AuthExchange) -> Vec<u8> {
        let keys = StoredKeys::derive(b"p", b"salt", 4096);
        let challenge = exchange.challenge("xyz", b"salt", 4096, keys);
        let challenge = challenge.expect("a challenge").to_vec();
        let mut last = Vec::new();
        client.respond(&challenge, &mut last).expect("an answer");
        last
    }

    #[test]
    fn only_auth_that_continues_ends_an_exchange() {
        //= mqtt5#[MQTT-4.12.0-1] type=test
        //= mqtt5#[MQTT-4.12.0-5] type=test
        let unknown = AuthExchange::begin("PLAIN", None, None).expect_err("unknown");
        assert_eq!(unknown.reason, ReasonCode::BadAuthenticationMethod);
        let exchange = AuthExchange::begin(METHOD, Some(&first(&CLIENT)), None);
        let mut exchange = exchange.expect("begun");
        assert_eq!(exchange.user(), "u");
        let early = auth(ReasonCode::ContinueAuthentication, b"c=biws");
        assert_eq!(exchange.handle_auth(&early), Ok(None));
        let proof = prove(&CLIENT, &mut exchange);
        let again = auth(ReasonCode::ReAuthenticate, &proof);
        assert!(exchange.handle_auth(&again).is_err());
        let last = auth(ReasonCode::ContinueAuthentication, &proof);
        assert!(matches!(exchange.handle_auth(&last), Ok(Some(_))));
    }

    #[test]
    fn a_client_authenticates_again_as_who_it_is() {
        //= mqtt5#[MQTT-4.12.1-1] type=test
        //= mqtt5#[MQTT-4.12.1-2] type=test
        let (again, goes_on) = (
            ReasonCode::ReAuthenticate,
            ReasonCode::ContinueAuthentication,
        );
        let first = first(&CLIENT);
        let mut state = Reauthentication::default();
        let method = Some(METHOD);
        let unnamed = state.handle_auth(&auth(again, &first), None, None, None);
        assert!(unnamed.is_err());
        let out_of_order = auth(goes_on, &first);
        assert!(
            state
                .handle_auth(&out_of_order, method, None, None)
                .is_err()
        );
        for (known, reason) in [("u", None), ("v", Some(ReasonCode::NotAuthorized))] {
            let known = Text::from_static(known);
            let asked = state.handle_auth(&auth(again, &first), method, Some(&known), None);
            assert_eq!(asked, Ok(Reauth::Ask(Text::from_static("u"))));
            let proof = prove(&CLIENT, state.exchange().expect("under way"));
            let done = state.handle_auth(&auth(goes_on, &proof), method, Some(&known), None);
            assert_eq!(done.err().map(|fault| fault.reason), reason);
        }
    }

    #[test]
    fn a_token_is_the_whole_exchange() {
        let data: &[u8] = b"n,a=u,\x01auth=Bearer t\x01\x01";
        let (user, token) = (Some(Text::from_static("u")), Text::from_static("t"));
        assert_eq!(bearer(Some(data)), Ok((user.clone(), token.clone())));
        for wrong in [None, Some(&b"t"[..])] {
            let fault = bearer(wrong).expect_err("no message");
            assert_eq!(fault.reason, ReasonCode::NotAuthorized);
        }
        let (again, goes_on) = (
            ReasonCode::ReAuthenticate,
            ReasonCode::ContinueAuthentication,
        );
        let mut state = Reauthentication::default();
        let method = Some(METHOD_BEARER);
        let handle = |state: &mut Reauthentication, reason| {
            let auth = auth_of(METHOD_BEARER, reason, data);
            state.handle_auth(&auth, method, None, None)
        };
        assert!(!state.take_token());
        for _ in 0..2 {
            let asked = handle(&mut state, again);
            assert_eq!(asked, Ok(Reauth::Verify(user.clone(), token.clone())));
            assert!(state.exchange().is_none() && state.take_token());
        }
        // Nothing follows the token, nor another one before the answer.
        assert!(handle(&mut state, goes_on).is_err());
        for reason in [goes_on, again] {
            assert!(handle(&mut state, again).is_ok());
            assert!(handle(&mut state, reason).is_err());
        }
    }

    #[test]
    fn an_exchange_is_bound_where_that_is_offered() {
        let kind = BindingType::TlsExporter;
        let client = |binding| Client { binding, ..CLIENT };
        let bound = |data| client(Binding::Bound(ChannelBinding { kind, data }));
        let begin = |method, client: &Client<'_>, offered| {
            AuthExchange::begin(method, Some(&first(client)), offered).map_err(|it| it.reason)
        };
        let ours = bound(&[1; 32]);
        for (method, client, offered, reason) in [
            (METHOD_PLUS, ours, None, ReasonCode::BadAuthenticationMethod),
            (METHOD_PLUS, CLIENT, Some(kind), ReasonCode::NotAuthorized),
            (METHOD, ours, Some(kind), ReasonCode::NotAuthorized),
            (
                METHOD,
                client(Binding::NotOffered),
                Some(kind),
                ReasonCode::NotAuthorized,
            ),
        ] {
            assert_eq!(begin(method, &client, offered).err(), Some(reason));
        }
        for (client, data, is_in) in [
            (ours, &[1; 32][..], true),
            (bound(&[2; 32]), &[1; 32], false),
            (ours, &[], false),
        ] {
            let mut exchange = begin(METHOD_PLUS, &client, Some(kind)).expect("begun");
            assert!(exchange.wants_channel());
            exchange.bind(Bytes::copy_from_slice(data));
            let proof = prove(&client, &mut exchange);
            let goes_on = ReasonCode::ContinueAuthentication;
            let plain = auth_of(METHOD, goes_on, &proof);
            assert!(exchange.handle_auth(&plain).is_err());
            let last = exchange.handle_auth(&auth_of(METHOD_PLUS, goes_on, &proof));
            assert_eq!(last.map(|last| last.is_some()), Ok(is_in));
        }
    }
}
