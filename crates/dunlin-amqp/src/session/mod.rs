//! Sessions: windows, links, and the deliveries of all links, which are
//! numbered for the session.

mod attaching;
mod dispositions;
mod incoming;
mod outgoing;
mod settling;
mod table;
mod windows;

pub use outgoing::{Extent, Sending};
pub(crate) use settling::Range;
pub(crate) use table::{Sessions, Taken};

use alloc::vec::Vec;

use dunlin_amqp_codec::{
    Begin, Detach, End, Error, Flow, Performative, SerialNumber, Value, condition,
};
use dunlin_queue::Window;

use crate::error::{CallError, Failure, Fault, Reason};
use crate::event::Event;
use crate::ids::{LinkId, SessionId};
use crate::limits::STATES_MAX;
use crate::link::{self, Link, LinkPhase, Links};
use crate::tag::Tag;
use crate::wire::Wire;
use dispositions::Dispositions;
use outgoing::Outgoing;
use windows::Windows;

/// Property of a flow: deliveries that follow are acquired by this transaction.
const TXN_ID: &str = "txn-id";

/// What was exchanged of a session (section 2.5.5). `begin` of the peer is
/// answered at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionPhase {
    /// Our `begin` was sent.
    BeginSent,
    /// Both.
    Mapped,
    /// Our `end` was sent; the driver learns when the peer's comes.
    EndSent,
    /// Our `end` was sent with an error, and the driver knows: what comes is
    /// not looked at.
    Discarding,
}

/// A delivery that is not settled.
#[derive(Clone, Copy, Debug)]
struct Unsettled {
    /// Our handle of its link.
    handle: u32,
    tag: Tag,
    /// States that the driver may still hear of before it is settled.
    states_left: u8,
}

impl Unsettled {
    const fn new(handle: u32, tag: Tag) -> Self {
        Self {
            handle,
            tag,
            states_left: STATES_MAX,
        }
    }

    /// The peer says something and does not settle: whether that is news.
    const fn hears(&mut self, is_outcome: bool) -> bool {
        let Some(left) = self.states_left.checked_sub(1) else {
            return false;
        };
        self.states_left = if is_outcome { 0 } else { left };
        true
    }
}

/// Deliveries for which a session keeps memory, each way, when none is unsettled.
const KEPT_MAX: usize = 16;

/// One end of a session.
#[derive(Debug)]
pub(crate) struct Session {
    id: SessionId,
    phase: SessionPhase,
    /// The channel on which the peer sends, once its `begin` came.
    remote_channel: Option<u16>,
    remote_handle_max: u32,
    windows: Windows,
    links: Links,
    outgoing: Outgoing,
    /// Deliveries of the peer, by delivery-id.
    received: Window<u32, Unsettled>,
    last_received: Option<SerialNumber>,
    dispositions: Dispositions,
    /// Our handles of links whose flow state is to be sent.
    flows: Vec<u32>,
    is_flow_due: bool,
    /// The session is in the list of those that have something to write.
    is_dirty: bool,
}

impl Session {
    fn new(id: SessionId, phase: SessionPhase, incoming_window: u32) -> Self {
        Self {
            id,
            phase,
            remote_channel: None,
            remote_handle_max: u32::MAX,
            windows: Windows::new(incoming_window),
            links: Links::default(),
            outgoing: Outgoing::new(id),
            received: Window::keeping(KEPT_MAX),
            last_received: None,
            dispositions: Dispositions::default(),
            flows: Vec::new(),
            is_flow_due: false,
            is_dirty: false,
        }
    }

    /// Whether frames of links may be sent.
    fn is_usable(&self) -> bool {
        matches!(self.phase, SessionPhase::BeginSent | SessionPhase::Mapped)
    }

    /// Writes our `begin`.
    fn write_begin(&self, begin: &Begin<'_>, wire: &mut Wire) -> Result<(), CallError> {
        let windows = self.windows.begin();
        let begin = Begin {
            remote_channel: self.remote_channel,
            next_outgoing_id: windows.next_outgoing_id,
            incoming_window: windows.incoming_window,
            outgoing_window: windows.outgoing_window,
            handle_max: wire.limits.links_max.saturating_sub(1),
            ..*begin
        };
        wire.out.write(self.id.channel, &Performative::Begin(begin))
    }

    /// The peer's `begin`.
    fn handle_begin(&mut self, channel: u16, begin: &Begin<'_>) {
        self.remote_channel = Some(channel);
        self.remote_handle_max = begin.handle_max;
        self.windows.handle_begin(begin);
        if self.phase == SessionPhase::BeginSent {
            self.phase = SessionPhase::Mapped;
        }
    }

    /// `flow` of the peer.
    fn handle_flow(&mut self, flow: &Flow<'_>, wire: &mut Wire) -> Result<(), Failure> {
        self.windows.handle_flow(flow);
        self.outgoing.pump(&mut self.windows, wire);
        self.outgoing.report_window(&self.windows, wire);
        let Some(remote) = flow.handle else {
            self.is_flow_due |= flow.echo;
            return Ok(());
        };
        let handle = self.links.handle_of(remote).ok_or(UNATTACHED)?;
        let Some(link) = self.links.at(handle) else {
            return Ok(());
        };
        match link.phase {
            LinkPhase::DetachSent => return Ok(()),
            LinkPhase::Errant => return Err(ERRANT),
            LinkPhase::AttachSent | LinkPhase::AttachReceived | LinkPhase::Attached => {}
        }
        let (id, is_attached) = (link.id, link.phase == LinkPhase::Attached);
        let acquires = flow.properties.and_then(|map| map.get(TXN_ID));
        match &mut link.end {
            link::End::Sender(_) if acquires.is_some_and(|id| id != Value::Null) => {
                let text = "deliveries are not acquired by transactions";
                let fault = Fault::new(condition::NOT_IMPLEMENTED, text);
                return Err(Failure::Link(handle, fault));
            }
            link::End::Sender(sender) => {
                sender.handle_flow(flow);
                if is_attached {
                    wire.events.push_back(Event::Credit {
                        link: id,
                        credit: sender.credit,
                        drain: sender.drain,
                    });
                }
            }
            link::End::Receiver(receiver) => {
                let drained = receiver.handle_flow(flow);
                wire.events.push_back(Event::Flow {
                    link: id,
                    credit: receiver.credit,
                    available: flow.available,
                    drained,
                });
            }
        }
        if flow.echo && is_attached {
            self.mark_flow(handle);
        }
        Ok(())
    }

    /// The flow state of a link is to be sent.
    fn mark_flow(&mut self, handle: u32) {
        if let Some(link) = self.links.at(handle)
            && !core::mem::replace(&mut link.is_flow_due, true)
        {
            self.flows.push(handle);
        }
    }

    /// Writes what was gathered: dispositions, then flow states.
    fn flush(&mut self, wire: &mut Wire) {
        if !self.is_usable() {
            return;
        }
        self.dispositions.flush(self.id.channel, &mut wire.out);
        let mut later = Vec::new();
        for handle in core::mem::take(&mut self.flows) {
            // Its count would be ahead of the transfers that were sent.
            if self.outgoing.is_held(handle) {
                later.push(handle);
                continue;
            }
            let Some(link) = self.links.at(handle) else {
                continue;
            };
            link.is_flow_due = false;
            if let Some(flow) = link_flow(link, self.windows.flow()) {
                let _ = wire.out.write(self.id.channel, &Performative::Flow(flow));
                self.is_flow_due = false;
            }
        }
        self.flows = later;
        if core::mem::take(&mut self.is_flow_due) {
            let flow = self.windows.flow();
            let _ = wire.out.write(self.id.channel, &Performative::Flow(flow));
        }
    }

    /// What is known of a link's deliveries goes, and the link.
    fn remove_link(&mut self, handle: u32, wire: &mut Wire) {
        self.forget_deliveries(handle, wire);
        self.links.remove(handle);
    }

    /// The deliveries of a link are the driver's again.
    fn forget_deliveries(&mut self, handle: u32, wire: &mut Wire) {
        self.outgoing.drop_held(handle);
        self.flows.retain(|flow| *flow != handle);
        for table in [&mut self.outgoing.unsettled, &mut self.received] {
            let of_link = table.iter().filter(|(_, it)| it.handle == handle);
            let ids: Vec<u32> = of_link.map(|(id, _)| id).collect();
            for id in ids {
                table.remove(id);
            }
        }
        if let Some(link) = self.links.at(handle) {
            link.is_flow_due = false;
            if let link::End::Receiver(receiver) = &mut link.end {
                receiver.tags.clear();
                if let Some(partial) = receiver.partial.take() {
                    wire.partial_bytes -= partial.bytes.len();
                }
            }
        }
        self.outgoing.report_window(&self.windows, wire);
    }

    /// All links go, and the driver hears of those that it knows.
    fn detach_all(&mut self, wire: &mut Wire, error: Option<&Reason>) {
        let known = self
            .links
            .iter()
            .filter(|link| link.phase != LinkPhase::Errant);
        let known: Vec<LinkId> = known.map(|link| link.id).collect();
        for link in known {
            wire.events.push_back(Event::Detached {
                link,
                closed: false,
                error: error.cloned(),
            });
        }
        let all: Vec<u32> = self.links.iter().map(|link| link.id.handle).collect();
        self.outgoing.note_ended();
        for handle in all {
            self.remove_link(handle, wire);
        }
    }

    /// Writes our `end`; the links go.
    fn end(&mut self, error: Option<&Error<'_>>, wire: &mut Wire) -> Result<(), CallError> {
        self.dispositions.flush(self.id.channel, &mut wire.out);
        let error = error.copied();
        wire.out
            .write(self.id.channel, &Performative::End(End { error }))?;
        self.phase = SessionPhase::EndSent;
        self.detach_all(wire, error.map(Reason::from).as_ref());
        Ok(())
    }

    /// The peer broke a rule of the session.
    fn fail(&mut self, fault: Fault, wire: &mut Wire) {
        // An error of this crate fits into every frame.
        let _ = self.end(Some(&fault.as_error()), wire);
        self.phase = SessionPhase::Discarding;
        wire.events.push_back(Event::Ended {
            session: self.id,
            error: Some(fault.into()),
        });
    }

    /// The peer broke a rule of a link.
    fn fail_link(&mut self, handle: u32, fault: Fault, wire: &mut Wire) {
        let Some(link) = self.links.at(handle) else {
            return;
        };
        let id = link.id;
        if link.phase == LinkPhase::AttachReceived {
            let _ = self.write_attach_without_terminus(handle, wire);
        }
        let _ = self.write_detach(handle, true, Some(&fault.as_error()), wire);
        self.forget_deliveries(handle, wire);
        if let Some(link) = self.links.at(handle) {
            link.phase = LinkPhase::Errant;
        }
        wire.events.push_back(Event::Detached {
            link: id,
            closed: true,
            error: Some(fault.into()),
        });
    }

    /// Writes `detach` after what was gathered.
    fn write_detach(
        &mut self,
        handle: u32,
        closed: bool,
        error: Option<&Error<'_>>,
        wire: &mut Wire,
    ) -> Result<(), CallError> {
        self.dispositions.flush(self.id.channel, &mut wire.out);
        let detach = Detach {
            handle,
            closed,
            error: error.copied(),
        };
        wire.out
            .write(self.id.channel, &Performative::Detach(detach))
    }
}

/// A frame names a handle that has no link.
const UNATTACHED: Failure = Failure::Session(Fault::new(
    condition::UNATTACHED_HANDLE,
    "no link has this handle",
));

/// A frame for a link that broke a rule and was detached (section 2.6.6).
const ERRANT: Failure = Failure::Session(Fault::new(
    condition::ERRANT_LINK,
    "a frame for a link that was detached with an error",
));

/// The flow state of a link in a frame; `None` if it is not attached.
fn link_flow(link: &mut Link, session: Flow<'static>) -> Option<Flow<'static>> {
    let is_known = matches!(link.phase, LinkPhase::AttachSent | LinkPhase::Attached);
    let flow = Flow {
        handle: Some(link.id.handle),
        ..session
    };
    is_known.then(|| match &mut link.end {
        link::End::Sender(sender) => Flow {
            delivery_count: Some(sender.delivery_count),
            link_credit: Some(sender.credit),
            available: Some(sender.available),
            drain: sender.drain,
            ..flow
        },
        link::End::Receiver(receiver) => Flow {
            delivery_count: receiver.delivery_count,
            link_credit: Some(receiver.credit),
            drain: receiver.drain,
            echo: core::mem::take(&mut receiver.echo),
            ..flow
        },
    })
}
