//! Links: one end of a route for messages, its credit, and the table of a
//! session's links. What they send and receive is in `session`, because
//! deliveries are numbered there.

mod partial;
mod receiver;
mod sender;
mod table;

pub(crate) use partial::Partial;
pub(crate) use receiver::{Receiver, Resumable};
pub(crate) use sender::{Sender, SentPart};
pub(crate) use table::Links;

use dunlin_amqp_codec::{
    AnyTarget, Attach, ReceiverSettleMode, Role, SenderSettleMode, SerialNumber,
};
use dunlin_base::Text;

use crate::ids::LinkId;

/// The delivery count and ids that this side begins with. In tests they wrap
/// soon.
pub(crate) const FIRST: SerialNumber = SerialNumber(if cfg!(test) { u32::MAX - 2 } else { 0 });

/// What was exchanged of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkPhase {
    /// Our `attach` was sent.
    AttachSent,
    /// The peer's `attach` came; the driver decides.
    AttachReceived,
    /// Both.
    Attached,
    /// Our `detach` was sent; the driver learns when the peer's comes.
    DetachSent,
    /// Our `detach` was sent with an error, and the driver knows: what comes is
    /// not looked at.
    Errant,
}

/// Which end it is.
#[derive(Debug)]
pub(crate) enum End {
    Sender(Sender),
    Receiver(Receiver),
}

/// One end of a link.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) name: Text,
    pub(crate) phase: LinkPhase,
    /// The peer's handle, once its `attach` came.
    pub(crate) remote_handle: Option<u32>,
    pub(crate) end: End,
    pub(crate) snd_settle_mode: SenderSettleMode,
    pub(crate) rcv_settle_mode: ReceiverSettleMode,
    /// Its flow state is to be sent.
    pub(crate) is_flow_due: bool,
    /// Its target is the coordinator of this side.
    pub(crate) is_coordinator: bool,
}

impl Link {
    /// A link that this side asks for.
    pub(crate) fn asked(id: LinkId, attach: &Attach<'_>) -> Self {
        let end = match attach.role {
            Role::Sender => {
                let mut sender = Sender::new(attach.initial_delivery_count);
                sender.is_incomplete = attach.incomplete_unsettled;
                End::Sender(sender)
            }
            Role::Receiver => {
                let mut receiver = Receiver::new(None, attach.max_message_size);
                receiver.resumable = Resumable::new(attach);
                End::Receiver(receiver)
            }
        };
        Self {
            id,
            name: Text::from(attach.name),
            phase: LinkPhase::AttachSent,
            remote_handle: None,
            end,
            snd_settle_mode: attach.snd_settle_mode,
            rcv_settle_mode: attach.rcv_settle_mode,
            is_flow_due: false,
            is_coordinator: false,
        }
    }

    /// A link that the peer asks for.
    pub(crate) fn offered(id: LinkId, attach: &Attach<'_>) -> Self {
        let end = match attach.role {
            Role::Sender => End::Receiver(Receiver::new(attach.initial_delivery_count, None)),
            Role::Receiver => {
                let mut sender = Sender::new(None);
                sender.message_bytes_max = attach.max_message_size.unwrap_or(0);
                sender.is_incomplete = attach.incomplete_unsettled;
                End::Sender(sender)
            }
        };
        Self {
            id,
            name: Text::from(attach.name),
            phase: LinkPhase::AttachReceived,
            remote_handle: Some(attach.handle),
            end,
            snd_settle_mode: attach.snd_settle_mode,
            rcv_settle_mode: attach.rcv_settle_mode,
            is_flow_due: false,
            is_coordinator: matches!(
                (attach.role, &attach.target),
                (Role::Sender, Some(AnyTarget::Coordinator(_)))
            ),
        }
    }

    /// This side's role.
    pub(crate) const fn role(&self) -> Role {
        match self.end {
            End::Sender(_) => Role::Sender,
            End::Receiver(_) => Role::Receiver,
        }
    }

    /// The peer's answer to our `attach`: what each end decides holds.
    pub(crate) fn handle_answer(&mut self, attach: &Attach<'_>) {
        self.remote_handle = Some(attach.handle);
        match &mut self.end {
            End::Sender(sender) => {
                sender.message_bytes_max = attach.max_message_size.unwrap_or(0);
                sender.is_incomplete |= attach.incomplete_unsettled;
                self.rcv_settle_mode = attach.rcv_settle_mode;
            }
            End::Receiver(receiver) => {
                receiver.delivery_count = attach.initial_delivery_count;
                self.snd_settle_mode = attach.snd_settle_mode;
            }
        }
        if self.phase == LinkPhase::AttachSent {
            self.phase = LinkPhase::Attached;
        }
    }

    /// Our answer to the peer's `attach`.
    pub(crate) fn accept(&mut self, answer: &Attach<'_>) {
        match &mut self.end {
            End::Sender(sender) => {
                sender.is_incomplete |= answer.incomplete_unsettled;
                self.snd_settle_mode = answer.snd_settle_mode;
            }
            End::Receiver(receiver) => {
                receiver.message_bytes_max = answer.max_message_size.unwrap_or(0);
                receiver.resumable = Resumable::new(answer);
                self.rcv_settle_mode = answer.rcv_settle_mode;
            }
        }
        self.phase = LinkPhase::Attached;
    }
}
