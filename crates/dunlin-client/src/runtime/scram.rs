//! A SCRAM exchange of one connection, from the client's first message to the
//! server's proof.

use bytes::Bytes;
use dunlin_dial::{Channel, random_u64};
use dunlin_mqtt::scram::{
    Binding, ChannelBinding, Client, ExpectServerFinal, METHOD, METHOD_PLUS, ScramError,
};

/// The exchange. The password stays with the options.
pub(super) struct Scram {
    nonce: String,
    channel: Channel,
    /// The server does not offer to bind it.
    without_plus: bool,
    /// The proof has been sent; the server's is awaited.
    expect: Option<ExpectServerFinal>,
}

impl Scram {
    pub(super) fn new(channel: Channel, without_plus: bool) -> Self {
        Self {
            nonce: format!("{:016x}{:016x}", random_u64(), random_u64()),
            channel,
            without_plus,
            expect: None,
        }
    }

    /// Its Authentication Method.
    pub(super) fn method(&self) -> &'static str {
        match self.binding() {
            Binding::Bound(_) => METHOD_PLUS,
            Binding::NotOffered | Binding::Unsupported => METHOD,
        }
    }

    /// What it says of channel binding. MQTT has no list of methods: a server
    /// that refuses one does not offer it.
    pub(super) fn binding(&self) -> Binding<'_> {
        match self.channel.kind() {
            None => Binding::Unsupported,
            Some(_) if self.without_plus => Binding::NotOffered,
            Some(kind) => Binding::Bound(ChannelBinding {
                kind,
                data: self.channel.data(),
            }),
        }
    }

    /// The transport says what it is bound by.
    pub(super) fn bind(&mut self, data: Bytes) {
        self.channel.set_data(data);
    }

    /// The client's first message, for CONNECT.
    pub(super) fn first(&self, user: &str, password: &[u8]) -> Result<Vec<u8>, ScramError> {
        let mut first = Vec::new();
        self.client(user, password).first(&mut first)?;
        Ok(first)
    }

    /// The answer to the server's first message.
    pub(super) fn respond(
        &mut self,
        user: &str,
        password: &[u8],
        server_first: &[u8],
    ) -> Result<Vec<u8>, ScramError> {
        let mut answer = Vec::new();
        let expect = self
            .client(user, password)
            .respond(server_first, &mut answer)?;
        self.expect = Some(expect);
        Ok(answer)
    }

    /// Checks the server's proof.
    pub(super) fn verify(&self, server_final: &[u8]) -> Result<(), ScramError> {
        match &self.expect {
            Some(expect) => expect.verify(server_final),
            // The server skipped the exchange and so proved nothing.
            None => Err(ScramError::Proof),
        }
    }

    fn client<'a>(&'a self, user: &'a str, password: &'a [u8]) -> Client<'a> {
        Client {
            user,
            password,
            nonce: &self.nonce,
            binding: self.binding(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_skips_the_exchange_is_refused() {
        let scram = Scram::new(Channel::default(), false);
        assert!(scram.first("user", b"password").is_ok());
        assert_eq!(scram.method(), METHOD);
        assert_eq!(scram.verify(b""), Err(ScramError::Proof));
    }
}
