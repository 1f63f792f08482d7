//! The server's connection ids: which one is used, which one waits, and which
//! ones must be given back (RFC 9000 section 5.1).

use dunlin_mini_crypto::{Crypto, equal};

use super::Client;
use crate::cid::{Cid, Issued};
use crate::error::Error;
use crate::held::Held;
use crate::memory::Memory;
use crate::recovery::what;
use crate::verify::Verifier;
use crate::wire::Reader;

impl<C: Crypto, V: Verifier, M: Memory> Client<C, V, M> {
    /// Tells the server that an id is not used any more.
    pub(super) fn retire(&mut self, sequence: u32) -> Result<(), Error> {
        if self.retiring.contains(&Some(sequence)) {
            return Ok(());
        }
        let free = self.retiring.iter_mut().find(|entry| entry.is_none());
        *free.ok_or(Error::ConnectionIdLimit)? = Some(sequence);
        self.pending |= what::RETIRE;
        Ok(())
    }

    /// NEW_CONNECTION_ID.
    pub(super) fn new_connection_id(&mut self, frame: &mut Reader<'_>) -> Result<(), Error> {
        let mut read = || {
            let sequence = frame.varint()?;
            let prior = frame.varint()?;
            let cid = frame.vector(1)?.0;
            let token = *frame.array()?;
            (prior <= sequence && !cid.is_empty()).then_some((sequence, prior, cid, token))
        };
        let (sequence, prior, cid, token) = read().ok_or(Error::FrameEncoding)?;
        let issued = Issued {
            sequence,
            cid: Cid::new(cid).ok_or(Error::FrameEncoding)?,
            token: Some(token),
        };
        if self.active.cid.bytes().is_empty() {
            return Err(Error::ConnectionId);
        }
        for known in [Some(&self.active), self.spare.as_ref()]
            .into_iter()
            .flatten()
        {
            if known.sequence == sequence {
                let same = known.cid == issued.cid;
                return if same {
                    Ok(())
                } else {
                    Err(Error::ConnectionId)
                };
            }
        }
        if sequence < self.active.sequence {
            // It came late: a newer one is in use, so this one is over.
            return self.retire(sequence);
        }
        if let Some(&spare) = self.spare.as_ref()
            && spare.sequence < prior
        {
            self.spare = Held::Nothing;
            self.retire(spare.sequence)?;
        }
        let mut fresh = Some(issued);
        if self.active.sequence < prior {
            self.retire(self.active.sequence)?;
            let next = self.spare.take().or_else(|| fresh.take());
            self.active = next.unwrap_or(self.active);
        }
        if let Some(fresh) = fresh {
            if self.spare.as_ref().is_some() {
                return Err(Error::ConnectionIdLimit);
            }
            self.spare = Held::Value(fresh);
        }
        Ok(())
    }

    /// Whether a datagram ends like a stateless reset of this connection. Only
    /// an id that was used has a token that counts (section 10.3.1).
    pub(super) fn is_reset(&self, tail: &[u8; 16]) -> bool {
        self.active.token.is_some_and(|token| equal(&token, tail))
    }
}
