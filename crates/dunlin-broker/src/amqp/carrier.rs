//! What a shard keeps of a QUIC connection that speaks AMQP: each stream that the
//! client opens is a connection of its own.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use core::ops::{Deref, DerefMut};

use dunlin_base::transport::Peer;
use dunlin_base::{ConnId, Instant, StreamId, Text};

use crate::access::OwnRules;
use crate::amqp::tokens::Pace;
use crate::ids::ConnIdx;
use crate::owners::common::{ConnCore, Identity, Standing};
use crate::owners::kind::{ConnKind, Proof};

/// Streams that a client has skipped and may still use, at most.
const SKIPPED_MAX: u64 = 256;

/// Distance of two streams of one kind (RFC 9000 section 2.1).
const STREAM_STEP: u64 = 4;

/// A QUIC connection whose streams are connections.
#[derive(Debug)]
pub(crate) struct Carrier {
    core: ConnCore,
    /// Its connections, by stream.
    pub(crate) streams: BTreeMap<StreamId, ConnIdx>,
    /// Who the client has first proved to be; later streams inherit it.
    pub(crate) proved: Option<Proved>,
    /// Exchanges of SASL about which the authenticator was asked without that.
    pub(crate) exchanges: u32,
    /// How often tokens are set on all streams together.
    pub(crate) tokens: Option<Pace>,
    /// Closing: what still arrives is ignored.
    pub(crate) closing: bool,
    /// Without a stream it is closed then.
    pub(crate) idle_until: Instant,
    begun: Begun,
}

/// An identity that streams inherit.
#[derive(Clone, Debug)]
pub(crate) struct Proved {
    pub(crate) user: Option<Text>,
    pub(crate) standing: Standing,
    /// When the token expires that proves it.
    pub(crate) expires: Option<Instant>,
    /// What it may do besides what the access list says.
    pub(crate) rules: Option<Arc<OwnRules>>,
}

impl Proved {
    /// Whether its token has expired.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

impl From<&Identity> for Proved {
    fn from(identity: &Identity) -> Self {
        Self {
            user: identity.user.clone(),
            standing: identity.standing,
            expires: identity.expires,
            rules: identity.rules.clone(),
        }
    }
}

impl From<Proved> for Identity {
    fn from(proved: Proved) -> Self {
        Self {
            user: proved.user,
            standing: proved.standing,
            expires: proved.expires,
            rules: proved.rules,
            ..Self::default()
        }
    }
}

/// Which connection a stream carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    /// Place of the QUIC connection.
    pub(crate) by: ConnIdx,
    /// Its id.
    pub(crate) conn: ConnId,
    pub(crate) stream: StreamId,
}

/// Streams that have begun: all before `next` that were not skipped.
#[derive(Debug, Default)]
struct Begun {
    next: u64,
    skipped: BTreeSet<u64>,
}

impl Carrier {
    pub(crate) fn new(id: ConnId, peer: Peer) -> Self {
        Self {
            core: ConnCore::new(id, peer),
            streams: BTreeMap::new(),
            proved: None,
            exchanges: 0,
            tokens: None,
            closing: false,
            idle_until: Instant::ZERO,
            begun: Begun::default(),
        }
    }

    /// Notes that a stream begins; `false` if it has before, is no
    /// bidirectional one of the client, or skips too many.
    pub(crate) fn begin(&mut self, stream: StreamId) -> bool {
        let is_ours = stream.is_unidirectional() || stream.is_server_initiated();
        !is_ours && self.begun.begin(stream.0 / STREAM_STEP)
    }

    /// Whether no stream has begun before this one.
    pub(crate) fn is_first(&self, stream: StreamId) -> bool {
        self.streams.range(..stream).next().is_none() && self.proved.is_none()
    }
}

impl ConnKind for Carrier {
    fn proof(&self) -> Proof<'_> {
        let proved = self.proved.as_ref();
        let listed = proved.filter(|it| it.standing == Standing::Listed);
        let user = listed.and_then(|it| it.user.as_ref());
        user.map_or(Proof::Other, Proof::Password)
    }
}

impl Begun {
    fn begin(&mut self, number: u64) -> bool {
        if number < self.next {
            return self.skipped.remove(&number);
        }
        let room = SKIPPED_MAX - self.skipped.len() as u64;
        if number - self.next > room {
            return false;
        }
        self.skipped.extend(self.next..number);
        self.next = number + 1;
        true
    }
}

impl Deref for Carrier {
    type Target = ConnCore;

    fn deref(&self) -> &ConnCore {
        &self.core
    }
}

impl DerefMut for Carrier {
    fn deref_mut(&mut self) -> &mut ConnCore {
        &mut self.core
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_begins_once_in_any_order() {
        let mut begun = Begun::default();
        for (number, is_new) in [
            (2, true),
            (0, true),
            (0, false),
            (2, false),
            (3, true),
            (1, true),
            (1, false),
            (3 + SKIPPED_MAX + 2, false),
            (3 + SKIPPED_MAX + 1, true),
            (3 + SKIPPED_MAX + 3, false),
            (4, true),
        ] {
            assert_eq!(begun.begin(number), is_new, "{number}");
        }
        assert_eq!(begun.skipped.len() as u64, SKIPPED_MAX - 1);
    }
}
