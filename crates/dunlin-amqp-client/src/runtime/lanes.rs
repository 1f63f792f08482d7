//! The AMQP connections of one client, and which link is on which.

use std::sync::Arc;

use dunlin_base::{ConnId, Instant, StreamId};
use dunlin_dial::{Channel, Context};
use dunlin_sasl::Mechanism;

use super::lane::Lane;
use super::links::Entry;
use crate::command::{LinkKey, NewReceiver, NewSender};
use crate::error::{DisconnectCause, LinkError};
use crate::limits::{LINKS_MAX, STREAM_WAIT, STREAMS_MAX};
use crate::options::{Options, STREAMS_REPEAT, StreamPolicy};

/// All of them. The first is on the stream that every transport has, and says
/// who the client is; there is always one.
pub(super) struct Lanes {
    first: Lane,
    others: Vec<Lane>,
    options: Arc<Options>,
    /// Those of the others: the server knows already who it is.
    inherited: Arc<Options>,
    /// This transport has streams for links of their own.
    are_wanted: bool,
    /// When links without a stream share those of others.
    share_at: Option<Instant>,
}

impl Lanes {
    pub(super) fn new(options: &Arc<Options>) -> Self {
        Self {
            first: Lane::default(),
            others: Vec::new(),
            options: Arc::clone(options),
            inherited: Arc::new(options.inherited()),
            are_wanted: false,
            share_at: None,
        }
    }

    /// The transport is open. `has_streams`: more than one.
    pub(super) fn begin(
        &mut self,
        context: &mut Context<'_>,
        conn: ConnId,
        has_streams: bool,
        ahead: bool,
    ) {
        self.are_wanted = has_streams && self.options.streams == StreamPolicy::PerLink;
        if self.are_wanted {
            // `open` asks the server for the same.
            let mut conn = context.net.conn(conn);
            conn.isolate_streams(true);
            conn.repeat_packets(STREAMS_REPEAT);
        }
        let all: Vec<_> = self.iter().flat_map(|lane| lane.links.take()).collect();
        self.others.clear();
        for (key, entry) in all {
            self.lane_for_another().links.insert(key, entry);
        }
        let channel = match self.options.mechanism() {
            Some(Mechanism::ScramSha256) => Channel::of(context.net, conn),
            _ => Channel::default(),
        };
        let stream = StreamId::CONTROL;
        self.first
            .begin(context.now, stream, &self.options, channel, ahead);
    }

    pub(super) fn iter(&mut self) -> impl Iterator<Item = &mut Lane> {
        core::iter::once(&mut self.first).chain(&mut self.others)
    }

    pub(super) fn first(&mut self) -> &mut Lane {
        &mut self.first
    }

    /// The one on this stream.
    pub(super) fn on(&mut self, stream: StreamId) -> Option<&mut Lane> {
        self.iter().find(|lane| lane.stream == Some(stream))
    }

    /// The one that this link is on; the first one if it is gone.
    pub(super) fn of(&mut self, key: LinkKey) -> &mut Lane {
        let others = &mut self.others;
        let other = others.iter_mut().find(|lane| lane.links.has(key));
        other.unwrap_or(&mut self.first)
    }

    /// Streams in use.
    pub(super) fn streams(&self) -> usize {
        let others = self.others.iter().filter(|lane| lane.stream.is_some());
        usize::from(self.first.stream.is_some()) + others.count()
    }

    pub(super) fn add_sender(&mut self, key: LinkKey, new: NewSender) {
        self.add(key, Entry::sender(new));
    }

    pub(super) fn add_receiver(&mut self, key: LinkKey, new: NewReceiver) {
        self.add(key, Entry::receiver(new));
    }

    fn add(&mut self, key: LinkKey, entry: Entry) {
        let links: usize = self.iter().map(|lane| lane.links.len()).sum();
        if links >= LINKS_MAX as usize {
            return entry.end_with(&LinkError::TooMany);
        }
        self.lane_for_another().links.insert(key, entry);
    }

    /// Where a new link goes: alone if it may, else where the fewest are.
    fn lane_for_another(&mut self) -> &mut Lane {
        if !self.are_wanted {
            return &mut self.first;
        }
        let fewest = self.iter().map(|lane| lane.links.len()).min().unwrap_or(0);
        if fewest > 0 && self.others.len() + 1 < STREAMS_MAX {
            self.others.push(Lane::default());
        }
        self.least()
    }

    /// The one with the fewest links.
    fn least(&mut self) -> &mut Lane {
        let mut least = &mut self.first;
        for lane in &mut self.others {
            if lane.links.len() < least.links.len() {
                least = lane;
            }
        }
        least
    }

    /// Opens streams for those that have none, when the server knows who the
    /// client is. Where it allows no further ones, links share those there are.
    pub(super) fn open_streams(&mut self, context: &mut Context<'_>, conn: ConnId) {
        if !self.first.is_open() {
            return;
        }
        let ahead = self.options.link.pipelined;
        let mut is_refused = false;
        for lane in self.others.iter_mut().filter(|it| it.stream.is_none()) {
            match context.net.conn(conn).open_stream(true) {
                Some(stream) => {
                    let channel = Channel::default();
                    lane.begin(context.now, stream, &self.inherited, channel, ahead);
                }
                None => is_refused = true,
            }
        }
        if !is_refused {
            self.share_at = None;
            return;
        }
        // A server may allow more as streams are used.
        let share_at = *self.share_at.get_or_insert(context.now + STREAM_WAIT);
        let has_some = self.others.iter().any(|lane| lane.stream.is_some());
        if !has_some || share_at <= context.now {
            self.share();
        }
    }

    /// Gives links without a stream to those that have one.
    fn share(&mut self) {
        self.share_at = None;
        self.are_wanted = false;
        let (kept, left): (Vec<_>, Vec<_>) = core::mem::take(&mut self.others)
            .into_iter()
            .partition(|lane| lane.stream.is_some());
        self.others = kept;
        for (key, entry) in left.into_iter().flat_map(|mut lane| lane.links.take()) {
            self.least().links.insert(key, entry);
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let others = self.others.iter().filter_map(Lane::deadline);
        let own = [self.first.deadline(), self.share_at];
        own.into_iter().flatten().chain(others).min()
    }

    /// Why this side ends the connection, if it does.
    pub(super) fn fault(&self) -> Option<&DisconnectCause> {
        let others = self.others.iter().find_map(|lane| lane.fault.as_ref());
        self.first.fault.as_ref().or(others)
    }

    /// Whether both sides have said the end of all.
    pub(super) fn have_parted(&mut self) -> bool {
        self.fault().is_none() && self.iter().all(|lane| lane.is_closed())
    }

    /// The transport is gone; why this side ended it, if it did.
    pub(super) fn forget_transport(&mut self) -> Option<DisconnectCause> {
        let fault = self.fault().cloned();
        self.share_at = None;
        for lane in self.iter() {
            lane.forget_transport();
        }
        fault
    }

    /// The client is over.
    pub(super) fn end(&mut self, cause: &DisconnectCause) {
        for lane in self.iter() {
            lane.end(&LinkError::Client(cause.clone()));
        }
    }
}
