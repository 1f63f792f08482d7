//! What a connection that this side began has besides: its link, attempts, and what
//! servers said on them before one was chosen.

use core::time::Duration;
use std::sync::Arc;

use dunlin_base::transport::{CloseCause, NetEventKind, Peer};
use dunlin_base::{ConnId, Instant, StreamId};
use dunlin_dial::{Context, DialError, Key, Link, Watch};

use super::facts;
use crate::limits::SAID_MAX;
use crate::shared::{ConnHandle, ConnShared, MadeTls, New, Opened, Place};
use crate::wait::{Answer, lock};

/// A connection that this side began.
pub(super) struct Dialled {
    pub(super) link: Link<Blind>,
    made: MadeTls,
    pub(super) with_stream: bool,
    pub(super) connect_timeout: Duration,
    /// When that is over.
    pub(super) connect_until: Option<Instant>,
    pub(super) connecting: Option<(Arc<ConnHandle>, Answer<Opened>)>,
    /// Attempts that are open.
    opened: Vec<(ConnId, Peer)>,
    /// What servers said on them before one was chosen.
    pub(super) said: Vec<(ConnId, Said)>,
    /// An attempt on which a server said too much.
    excess: Option<ConnId>,
    protocol: String,
    _place: Place,
}

/// What a server says.
pub(super) enum Said {
    /// Whether it takes early data.
    Verdict(bool),
    Bytes(StreamId, Vec<u8>),
    End(StreamId),
    Reset(StreamId, u64),
}

/// Every end of a connection is seen as a [`Step`] or as `Closed`.
pub(super) struct Blind;

impl Watch for Blind {
    type Cause = DialError;

    fn disconnected(&self, _: &DialError) {}

    fn reconnecting(&self, _: Duration) {}
}

impl Dialled {
    pub(super) fn new(
        key: Key,
        new: New,
        place: Place,
        connecting: (Arc<ConnHandle>, Answer<Opened>),
    ) -> Self {
        let made = new.made;
        let protocol = new.link.protocols.first().map(ToString::to_string);
        let connect_timeout = new.link.connect_timeout;
        let mut link = Link::new(Arc::new(Blind), key, Arc::new(new.link), &new.scope);
        link.tls_mut().clone_from(&lock(&made));
        Self {
            link,
            made,
            with_stream: new.with_stream,
            connect_timeout,
            connect_until: None,
            connecting: Some(connecting),
            opened: Vec::new(),
            said: Vec::new(),
            excess: None,
            protocol: protocol.unwrap_or_default(),
            _place: place,
        }
    }

    /// What the link must know.
    pub(super) fn on_event(&mut self, now: Instant, conn: ConnId, kind: &NetEventKind<&[u8]>) {
        match kind {
            NetEventKind::Opened { peer } => {
                self.opened.push((conn, peer.clone()));
                self.link.opened(now, conn, peer.early_data);
            }
            NetEventKind::EarlyData { .. } => {
                self.link.verdict(now, conn);
                self.link.connected(now);
            }
            NetEventKind::Closed { cause } => self.link.closed(now, conn, cause.clone()),
            _ => {}
        }
    }

    /// A server may send with the end of its part of the handshake, and while other
    /// attempts are under way.
    pub(super) fn hear(&mut self, conn: ConnId, kind: &NetEventKind<&[u8]>) {
        let said = match kind {
            NetEventKind::EarlyData { accepted } => Said::Verdict(*accepted),
            NetEventKind::Bytes { stream, data } => Said::Bytes(*stream, data.to_vec()),
            NetEventKind::StreamFinished { stream } => Said::End(*stream),
            NetEventKind::StreamReset { stream, code } => Said::Reset(*stream, *code),
            _ => return,
        };
        if let (Some((on, Said::Bytes(at, before))), Said::Bytes(stream, data)) =
            (self.said.last_mut(), &said)
            && (*on, *at) == (conn, *stream)
        {
            before.extend_from_slice(data);
        } else if self.said.iter().filter(|(on, _)| *on == conn).count() < SAID_MAX {
            self.said.push((conn, said));
        } else {
            self.excess = Some(conn);
        }
    }

    /// What is said from now on waits in the windows, until an attempt is chosen.
    pub(super) fn hold(&self, context: &mut Context<'_>) {
        for (conn, said) in &self.said {
            if let Said::Bytes(stream, _) = said {
                context.net.conn(*conn).pause_stream(*stream, true);
            }
        }
    }

    /// An attempt that is missing some of what its server said is none.
    pub(super) fn drop_excess(&mut self, context: &mut Context<'_>) {
        if let Some(conn) = self.excess.take() {
            self.said.retain(|(on, _)| *on != conn);
            context.conns.remove(&conn);
            context.net.conn(conn).abort();
            let cause = CloseCause::failed("the server said too much too early");
            self.link.closed(context.now, conn, cause);
        }
    }

    /// The connection is open; whether it is before its handshake.
    pub(super) fn begin(
        &mut self,
        context: &mut Context<'_>,
        conn: ConnId,
        shared: &ConnShared,
    ) -> bool {
        let mut opened = core::mem::take(&mut self.opened).into_iter();
        let peer = opened
            .find(|(other, _)| *other == conn)
            .map(|(_, peer)| peer);
        let early = peer.as_ref().is_some_and(|peer| peer.early_data);
        let local = context.net.local_addr(conn);
        shared.change(|state| {
            if let Some(peer) = &peer {
                state.facts = facts(peer, core::mem::take(&mut self.protocol));
            }
            if let Some(local) = local {
                state.facts.local = local;
            }
        });
        lock(&self.made).clone_from(self.link.tls_mut());
        if !early {
            self.link.connected(context.now);
        }
        early
    }
}
