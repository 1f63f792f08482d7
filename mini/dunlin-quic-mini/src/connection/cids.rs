//! The server's connection ids: which one is used, which ones wait, and which
//! ones must be given back (RFC 9000 section 5.1).

use dunlin_mini_crypto::equal;

use crate::cid::{Cid, Issued};
use crate::error::Error;
use crate::held::Held;
use crate::params::Params;
use crate::wire::{Reader, Writer};

/// Connection ids of the server that wait. With one, a server that does not
/// replace the id of the handshake would have none left after one migration.
const SPARES: usize = 2;
/// Retired connection ids that the server does not know of yet.
const RETIRING: usize = 4;

/// The server's connection ids.
pub(super) struct Cids {
    pub(super) active: Issued,
    spares: [Held<Issued>; SPARES],
    /// What this side chose for the server's first packet.
    pub(super) original: Cid,
    /// The id of the server's Retry.
    pub(super) retried: Option<Cid>,
    /// Sequence numbers and one, or zero.
    retiring: [u32; RETIRING],
}

impl Cids {
    /// Before the handshake.
    pub(super) const NEW: Self = Self {
        active: Issued::NEW,
        spares: [const { Held::Nothing }; SPARES],
        original: Cid::EMPTY,
        retried: None,
        retiring: [0; RETIRING],
    };

    /// Begins with an id of this side's choice.
    pub(super) fn begin(&mut self, id: &[u8]) {
        self.original = Cid::new(id).unwrap_or_default();
        self.active.cid = self.original;
    }

    /// Checks the ids in the server's parameters (RFC 9000 section 7.3).
    pub(super) fn check(&mut self, peer: &Params) -> Result<(), Error> {
        if peer.original != self.original
            || peer.source != self.active.cid
            || peer.retry != self.retried
        {
            return Err(Error::ParameterIds);
        }
        self.active.token = peer.token;
        Ok(())
    }

    /// Tells the server that an id is not used any more. The list has zeros, or
    /// numbers above their sequence number by one; telling twice does no harm.
    pub(super) fn retire(&mut self, sequence: u32) -> Result<(), Error> {
        let mark = sequence.wrapping_add(1);
        let mut list = self.retiring.iter_mut();
        let free = list.find(|entry| **entry == 0 || **entry == mark);
        *free.ok_or(Error::ConnectionIdLimit)? = mark;
        Ok(())
    }

    /// Writes RETIRE_CONNECTION_ID. Gives the sequence number, if there is one.
    pub(super) fn write(&mut self, writer: &mut Writer<'_>) -> Option<u32> {
        let entry = self.retiring.iter_mut().find(|entry| **entry != 0)?;
        let sequence = core::mem::take(entry).wrapping_sub(1);
        writer.u8(0x19);
        writer.varint(sequence);
        Some(sequence)
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
        let [first, second] = &self.spares;
        let known = [Some(&self.active), first.as_ref(), second.as_ref()];
        for known in known.into_iter().flatten() {
            if known.sequence == sequence {
                let same = known.cid == issued.cid;
                return if same {
                    Ok(())
                } else {
                    Err(Error::ConnectionId)
                };
            }
        }
        for index in 0..SPARES {
            let spare = self.spares.get_mut(index);
            if let Some(spare) = spare
                && let Some(&old) = spare.as_ref()
                && old.sequence < prior
            {
                *spare = Held::Nothing;
                self.retire(old.sequence)?;
            }
        }
        if self.active.sequence < prior && !self.advance()? {
            let old = core::mem::replace(&mut self.active, issued);
            return self.retire(old.sequence);
        }
        if sequence < self.active.sequence {
            // It came late: a newer one is in use, so this one is over.
            return self.retire(sequence);
        }
        let mut free = self.spares.iter_mut();
        let free = free.find(|spare| spare.as_ref().is_none());
        *free.ok_or(Error::ConnectionIdLimit)? = Held::Value(issued);
        Ok(())
    }

    /// Goes on with the oldest id that waits, if there is one: what is below the
    /// one in use was given back, and is not taken again.
    #[inline(never)]
    pub(super) fn advance(&mut self) -> Result<bool, Error> {
        let age = |spare: &&mut Held<Issued>| spare.as_ref().map_or(u32::MAX, |id| id.sequence);
        let Some(next) = self.spares.iter_mut().min_by_key(age).and_then(Held::take) else {
            return Ok(false);
        };
        let old = core::mem::replace(&mut self.active, next);
        self.retire(old.sequence)?;
        Ok(true)
    }

    /// Whether a datagram ends like a stateless reset of this connection. Only
    /// an id that was used has a token that counts (section 10.3.1).
    pub(super) fn is_reset(&self, tail: &[u8; 16]) -> bool {
        self.active.token.is_some_and(|token| equal(&token, tail))
    }
}
