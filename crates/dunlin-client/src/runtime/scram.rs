//! A SCRAM exchange of one connection, from the client's first message to the
//! server's proof.

use dunlin_dial::random_u64;
use dunlin_mqtt::scram::{Client, ExpectServerFinal, ScramError};

/// The exchange. The password stays with the options.
pub(super) struct Scram {
    nonce: String,
    /// The proof has been sent; the server's is awaited.
    expect: Option<ExpectServerFinal>,
}

impl Scram {
    pub(super) fn new() -> Self {
        Self {
            nonce: format!("{:016x}{:016x}", random_u64(), random_u64()),
            expect: None,
        }
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
            binding: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_skips_the_exchange_is_refused() {
        let scram = Scram::new();
        assert!(scram.first("user", b"password").is_ok());
        assert_eq!(scram.verify(b""), Err(ScramError::Proof));
    }
}
