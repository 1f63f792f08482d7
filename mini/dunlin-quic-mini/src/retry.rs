//! HelloRetryRequest and the second ClientHello, which is the first one with
//! what the server asked for (RFC 8446 sections 4.1.2 and 4.1.4). Knows no
//! secret and no transcript.

use dunlin_mini_crypto::{Group, Share, Suite};

use crate::error::Error;
use crate::extensions::{Extensions, bits};
use crate::wire::{Reader, Writer};

/// Bytes of the longest cookie that is sent back, with its length.
const COOKIE_MAX: usize = 256;

/// Where a ClientHello's extensions begin: behind its head, version, random
/// value, session id, suites, of which each has two bytes, compression and
/// their own length.
const EXTENSIONS: usize = 4 + 2 + 32 + 1 + 2 + 2 + 2;

/// Where things are in a hello. Early data, the key share and the ticket are
/// the last extensions, in this order.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    /// The body of the ALPN extension.
    pub(crate) alpn: (usize, usize),
    /// Where the early data, if there is any, and the key share begin.
    pub(crate) early: usize,
    pub(crate) share: usize,
    /// Where the ticket begins, if there is one, and where all ends.
    pub(crate) ticket: usize,
    pub(crate) end: usize,
}

/// What the server asks for.
pub(crate) struct Request<'a> {
    pub(crate) suite: Suite,
    /// A group to exchange keys in.
    pub(crate) group: Option<u16>,
    /// The body of the cookie extension, empty without one.
    pub(crate) cookie: &'a [u8],
}

impl<'a> Request<'a> {
    /// Reads the body of the message; its random value was looked at before.
    #[inline(never)]
    pub(crate) fn read(mut body: Reader<'a>, suites: &[Suite]) -> Result<Self, Error> {
        let mut read = || {
            let version = body.u16()?;
            body.array::<32>()?;
            let session = body.vector(1)?;
            let suite = body.u16()?;
            let compression = body.u8()?;
            let right = version == 0x0303 && compression == 0;
            Some((session, suite, body.vector(2).filter(|_| right)?))
        };
        let (session, suite, list) = read().ok_or(Error::Decode)?;
        if !session.is_empty() {
            return Err(Error::SessionId);
        }
        let mut tls13 = false;
        let mut request = Self {
            suite: offered(suites, suite)?,
            group: None,
            cookie: &[],
        };
        let mut extensions = Extensions::new(list, bits(&[43, 44, 51]));
        while let Some((number, mut value)) = extensions.next()? {
            match number {
                43 if value.u16() == Some(0x0304) => tls13 = true,
                43 => return Err(Error::Downgrade),
                51 => request.group = Some(value.u16().ok_or(Error::Decode)?),
                _ => {
                    request.cookie = value.0;
                    // It has a length of its own, and a byte at least.
                    let inner = value.vector(2).filter(|inner| !inner.is_empty());
                    inner.ok_or(Error::Decode)?;
                }
            }
            if !value.is_empty() {
                return Err(Error::Decode);
            }
        }
        if !body.is_empty() {
            return Err(Error::Decode);
        }
        if !tls13 {
            return Err(Error::Downgrade);
        }
        if request.cookie.len() > COOKIE_MAX {
            return Err(Error::Cookie);
        }
        // A server that asks for the same hello would ask for ever.
        let changes = request.group.is_some() || !request.cookie.is_empty();
        changes.then_some(request).ok_or(Error::HelloRetry)
    }
}

impl Places {
    /// Makes the second hello of the first one in its place, without the
    /// binder. Nothing if the buffer is too small.
    #[inline(never)]
    pub(crate) fn change(
        &mut self,
        hello: &mut [u8],
        suites: usize,
        share: Option<(Group, &Share)>,
        cookie: &[u8],
    ) -> Option<()> {
        let ticket = self.end.checked_sub(self.ticket)?;
        let kept = self.ticket.checked_sub(self.share)?;
        let share_len = share.map_or(kept, |(_, share)| 10 + share.bytes().len());
        let cookie_len = if cookie.is_empty() {
            0
        } else {
            4 + cookie.len()
        };
        // Early data is rejected by the request.
        let to = self.early + share_len + cookie_len;
        let end = to + ticket;
        if end > hello.len() {
            return None;
        }
        if share.is_none() {
            shift(hello, self.share, self.early, kept);
        }
        shift(hello, self.ticket, to, ticket);
        let mut writer = Writer::at(hello, self.early);
        match share {
            Some((group, share)) => key_share(group, share, &mut writer),
            None => writer = Writer::at(hello, self.early + kept),
        }
        if !cookie.is_empty() {
            writer.u16(44);
            let mark = writer.open();
            writer.put(cookie);
            writer.close(mark, 0);
        }
        let mut writer = Writer::at(hello, end);
        writer.close(EXTENSIONS + 2 * suites, 0);
        writer.close(4, 0);
        (self.share, self.ticket, self.end) = (self.early, to, end);
        Some(())
    }
}

/// The suite with a number, if the client has offered it.
pub(crate) fn offered(suites: &[Suite], number: u16) -> Result<Suite, Error> {
    let chosen = suites.iter().find(|suite| suite.number() == number);
    chosen.copied().ok_or(Error::CipherSuite)
}

/// Moves bytes to a place that may overlap with theirs.
fn shift(bytes: &mut [u8], from: usize, to: usize, len: usize) {
    for i in 0..len {
        // Begins at the end that is not written over before it is read.
        let i = if to < from { i } else { len - 1 - i };
        let byte = bytes.get(from + i).copied();
        if let (Some(place), Some(byte)) = (bytes.get_mut(to + i), byte) {
            *place = byte;
        }
    }
}

/// The extension key_share with one share.
pub(crate) fn key_share(group: Group, share: &Share, out: &mut Writer<'_>) {
    out.u16(51);
    let mark = out.open();
    let list = out.open();
    out.u16(group.number());
    let key = out.open();
    out.put(share.bytes());
    out.close(key, 0);
    out.close(list, 0);
    out.close(mark, 0);
}
