//! The client's side of a SASL exchange of one connection.

use bytes::Bytes;
use dunlin_amqp::Connection;
use dunlin_amqp::codec::{SaslCode, SaslInit, SaslMechanisms, Symbol};
use dunlin_dial::{Channel, random_u64};
use dunlin_sasl::Mechanism;
use dunlin_sasl::oauth::Bearer;
use dunlin_sasl::plain::Plain;
use dunlin_sasl::scram::{Binding, ChannelBinding, Client, ExpectServerFinal, ScramError};

use crate::error::DisconnectCause;
use crate::options::Options;

/// An exchange.
pub(super) struct Exchange {
    mechanism: Mechanism,
    nonce: String,
    channel: Channel,
    step: Step,
}

enum Step {
    /// The mechanism is not chosen yet.
    First,
    /// `sasl-init` was sent.
    Chosen,
    /// The proof has been sent; the server's is awaited.
    Proved(ExpectServerFinal),
    /// The server's proof is right.
    Verified,
}

impl Exchange {
    pub(super) fn new(mechanism: Mechanism, channel: Channel) -> Self {
        Self {
            mechanism,
            nonce: format!("{:016x}{:016x}", random_u64(), random_u64()),
            channel,
            step: Step::First,
        }
    }

    /// Whether it is done with one message of the client, so that `open` may
    /// follow that at once.
    pub(super) fn is_short(&self) -> bool {
        !self.is_scram()
    }

    const fn is_scram(&self) -> bool {
        matches!(
            self.mechanism,
            Mechanism::ScramSha256 | Mechanism::ScramSha256Plus
        )
    }

    /// Whether it can begin before the server says what it offers. SCRAM says in
    /// its first message whether that is bound to the channel.
    pub(super) fn may_run_ahead(&self) -> bool {
        self.is_short() || self.channel.kind().is_none()
    }

    /// The transport says what it is bound by.
    pub(super) fn bind(&mut self, data: Bytes) {
        self.channel.set_data(data);
    }

    pub(super) fn is_begun(&self) -> bool {
        !matches!(self.step, Step::First)
    }

    /// Chooses the mechanism, once.
    pub(super) fn begin(
        &mut self,
        options: &Options,
        engine: &mut Connection,
    ) -> Result<(), DisconnectCause> {
        if self.is_begun() {
            return Ok(());
        }
        self.step = Step::Chosen;
        let mut first = Vec::new();
        let user = options.user.as_deref().unwrap_or_default();
        let password = options.password.as_deref().unwrap_or_default();
        match self.mechanism {
            Mechanism::Plain => Plain {
                authzid: "",
                user,
                password: password.as_bytes(),
            }
            .encode(&mut first),
            Mechanism::ScramSha256 | Mechanism::ScramSha256Plus => {
                let written = self.client(user, password).first(&mut first);
                written.map_err(DisconnectCause::Scram)?;
            }
            Mechanism::OAuthBearer => Bearer {
                authzid: user,
                token: &options.bearer(),
            }
            .encode(&mut first),
            // Empty, which acts for who was proved or for anyone.
            _ => {}
        }
        let init = SaslInit {
            mechanism: Symbol::from_static(self.mechanism.name()),
            initial_response: Some(&first),
            hostname: Some(host(options)),
        };
        // The layer is there: the engine was made with it.
        let _ = engine.sasl_init(&init);
        Ok(())
    }

    /// The server says what it offers.
    pub(super) fn check(&mut self, offered: &SaslMechanisms<'_>) -> Result<(), DisconnectCause> {
        let offered = offered.sasl_server_mechanisms;
        let plus = Mechanism::ScramSha256Plus;
        let binds = self.channel.kind().is_some() && offered.contains(plus.name());
        if binds && self.is_scram() && !self.is_begun() {
            self.mechanism = plus;
        }
        if offered.contains(self.mechanism.name()) {
            return Ok(());
        }
        let names: Vec<_> = offered.iter().map(Symbol::as_str).collect();
        Err(DisconnectCause::Mechanism {
            wanted: self.mechanism.name(),
            offered: match names.is_empty() {
                true => "nothing".into(),
                false => names.join(", ").into(),
            },
        })
    }

    /// Answers a challenge.
    pub(super) fn respond(
        &mut self,
        options: &Options,
        engine: &mut Connection,
        challenge: &[u8],
    ) -> Result<(), DisconnectCause> {
        let mut answer = Vec::new();
        match (&self.step, self.mechanism) {
            (Step::Chosen, Mechanism::ScramSha256 | Mechanism::ScramSha256Plus) => {
                let user = options.user.as_deref().unwrap_or_default();
                let password = options.password.as_deref().unwrap_or_default();
                let expect = self.client(user, password).respond(challenge, &mut answer);
                self.step = Step::Proved(expect.map_err(DisconnectCause::Scram)?);
            }
            (Step::Proved(expect), _) => {
                expect.verify(challenge).map_err(DisconnectCause::Scram)?;
                self.step = Step::Verified;
            }
            // Such as the reason of OAUTHBEARER's refusal (RFC 7628 section 3.2.3).
            _ => {}
        }
        let _ = engine.sasl_response(&answer);
        Ok(())
    }

    /// The server has decided.
    pub(super) fn finish(
        &self,
        code: SaslCode,
        data: Option<&[u8]>,
    ) -> Result<(), DisconnectCause> {
        match code {
            SaslCode::Ok => {}
            SaslCode::Auth => return Err(DisconnectCause::Credentials),
            other => return Err(DisconnectCause::Authentication(other)),
        }
        if !self.is_scram() {
            return Ok(());
        }
        let proof = match (&self.step, data) {
            (Step::Verified, _) => Ok(()),
            (Step::Proved(expect), Some(data)) => expect.verify(data),
            // The server skipped the exchange and so proved nothing.
            _ => Err(ScramError::Proof),
        };
        proof.map_err(DisconnectCause::Scram)
    }

    fn client<'a>(&'a self, user: &'a str, password: &'a str) -> Client<'a> {
        Client {
            user,
            password: password.as_bytes(),
            nonce: &self.nonce,
            binding: self.binding(),
        }
    }

    fn binding(&self) -> Binding<'_> {
        match (self.mechanism, self.channel.kind()) {
            (_, None) => Binding::Unsupported,
            (Mechanism::ScramSha256Plus, Some(kind)) => Binding::Bound(ChannelBinding {
                kind,
                data: self.channel.data(),
            }),
            (_, Some(_)) => Binding::NotOffered,
        }
    }
}

/// The host that is meant.
pub(super) fn host(options: &Options) -> &str {
    match &options.hostname {
        Some(host) => host,
        None => options.link.url.host(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_skips_the_proof_is_refused() {
        let exchange = Exchange::new(Mechanism::ScramSha256, Channel::default());
        let finished = exchange.finish(SaslCode::Ok, None);
        assert!(matches!(finished, Err(DisconnectCause::Scram(_))));
        let exchange = Exchange::new(Mechanism::Plain, Channel::default());
        assert!(exchange.finish(SaslCode::Ok, None).is_ok());
        let refused = exchange.finish(SaslCode::Auth, None);
        assert!(matches!(refused, Err(DisconnectCause::Credentials)));
    }
}
