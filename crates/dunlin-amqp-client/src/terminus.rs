//! What a link is to be, with its own memory, and `attach` that says so.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Coordinator, DeliveryState, Described, Descriptor, DistributionMode, Map,
    Outcome, ReceiverSettleMode, Role, SenderSettleMode, Source, Symbol, Symbols, Target,
    TerminusDurability, TerminusExpiryPolicy, Unsettled, Value, capability,
};
use dunlin_base::Text;

use crate::error::LinkError;

/// Where a link leads.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Address(Text),
    /// A node that the server makes.
    Dynamic,
    /// Each message says where it goes.
    Anonymous,
    Coordinator,
}

/// A filter of a receiver.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) name: Text,
    pub(crate) descriptor: u64,
    /// Encoded.
    pub(crate) value: Bytes,
}

/// What a link is to be.
#[derive(Clone, Debug)]
pub(crate) struct LinkSpec {
    pub(crate) name: Text,
    pub(crate) role: Role,
    pub(crate) node: Node,
    pub(crate) snd_settle_mode: SenderSettleMode,
    pub(crate) rcv_settle_mode: ReceiverSettleMode,
    pub(crate) durable: TerminusDurability,
    pub(crate) expiry: TerminusExpiryPolicy,
    /// Seconds from then.
    pub(crate) timeout: u32,
    pub(crate) distribution: Option<DistributionMode>,
    pub(crate) capabilities: Vec<Text>,
    pub(crate) filters: Vec<Filter>,
    /// As a receiver.
    pub(crate) message_bytes_max: Option<u64>,
}

/// Outcomes that a receiver may give.
const OUTCOMES: [Symbol<'static>; 4] = [
    capability::ACCEPTED,
    capability::REJECTED,
    capability::RELEASED,
    capability::MODIFIED,
];

impl LinkSpec {
    pub(crate) fn new(name: Text, role: Role, node: Node) -> Self {
        Self {
            name,
            role,
            node,
            snd_settle_mode: SenderSettleMode::Mixed,
            rcv_settle_mode: ReceiverSettleMode::First,
            durable: TerminusDurability::None,
            expiry: TerminusExpiryPolicy::SessionEnd,
            timeout: 0,
            distribution: None,
            capabilities: Vec::new(),
            filters: Vec::new(),
            message_bytes_max: None,
        }
    }

    /// Whether the far terminus outlives the link unless it is closed.
    pub(crate) fn is_lasting(&self) -> bool {
        self.durable != TerminusDurability::None || self.expiry == TerminusExpiryPolicy::Never
    }

    /// Gives `attach` to `f`; `unsettled` and whether that is not all are what
    /// this side has of the link.
    pub(crate) fn attach<R>(
        &self,
        unsettled: &[(&[u8], Option<DeliveryState<'_>>)],
        incomplete_unsettled: bool,
        f: impl FnOnce(&Attach<'_>) -> R,
    ) -> Result<R, LinkError> {
        let values: Result<Vec<_>, _> = self.filters.iter().map(Filter::decode).collect();
        let values = values?;
        let filters = self.filters.iter().zip(&values);
        let filters: Vec<_> = filters.map(|(f, value)| f.entry(value)).collect();
        let capabilities: Vec<_> = self
            .capabilities
            .iter()
            .filter_map(|c| Symbol::new(c))
            .collect();
        let capabilities = Symbols::new(&capabilities);
        let capabilities = (!capabilities.is_empty()).then_some(capabilities);
        let (source, target) = match self.role {
            Role::Sender => (Source::default(), self.target(capabilities)),
            Role::Receiver => {
                let source = self.source(Map::new(&filters), capabilities);
                (source, AnyTarget::Target(Target::default()))
            }
        };
        Ok(f(&Attach {
            name: &self.name,
            role: self.role,
            snd_settle_mode: self.snd_settle_mode,
            rcv_settle_mode: self.rcv_settle_mode,
            source: Some(source),
            target: Some(target),
            unsettled: (!unsettled.is_empty()).then(|| Unsettled::new(unsettled)),
            incomplete_unsettled,
            max_message_size: self.message_bytes_max,
            ..Attach::default()
        }))
    }

    fn address(&self) -> Option<&str> {
        match &self.node {
            Node::Address(address) => Some(address),
            Node::Dynamic | Node::Anonymous | Node::Coordinator => None,
        }
    }

    fn target<'a>(&'a self, capabilities: Option<Symbols<'a>>) -> AnyTarget<'a> {
        if matches!(self.node, Node::Coordinator) {
            return AnyTarget::Coordinator(Coordinator { capabilities });
        }
        AnyTarget::Target(Target {
            address: self.address(),
            durable: self.durable,
            expiry_policy: self.expiry,
            timeout: self.timeout,
            dynamic: matches!(self.node, Node::Dynamic),
            capabilities,
            ..Target::default()
        })
    }

    fn source<'a>(&'a self, filters: Map<'a>, capabilities: Option<Symbols<'a>>) -> Source<'a> {
        Source {
            address: self.address(),
            durable: self.durable,
            expiry_policy: self.expiry,
            timeout: self.timeout,
            dynamic: matches!(self.node, Node::Dynamic),
            distribution_mode: self.distribution,
            filter: (!filters.is_empty()).then_some(filters),
            default_outcome: Some(Outcome::Released),
            outcomes: Some(Symbols::new(&OUTCOMES)),
            capabilities,
            ..Source::default()
        }
    }
}

impl Filter {
    fn decode(&self) -> Result<Value<'_>, LinkError> {
        Value::decode(&self.value).map_err(|_| LinkError::Filter(Arc::from(&*self.name)))
    }

    fn entry<'a>(&'a self, value: &'a Value<'a>) -> (Value<'a>, Value<'a>) {
        let name = Symbol::new(&self.name).map_or(Value::String(&self.name), Value::Symbol);
        let descriptor = Descriptor::Code(self.descriptor);
        (name, Value::Described(Described::new(descriptor, value)))
    }
}

/// What the server granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attached {
    /// The address of the node; of a dynamic one, the server's choice.
    pub address: Option<String>,
    /// Largest message that the server takes, if it says.
    pub max_message_size: Option<u64>,
    /// How the sending end settles.
    pub snd_settle_mode: SenderSettleMode,
    /// How the receiving end settles.
    pub rcv_settle_mode: ReceiverSettleMode,
    /// The server says that the filters are in force, by their names.
    pub filters: Vec<String>,
}

impl Attached {
    /// What the server's `attach` says to a link of this role; `None` if it is
    /// about to refuse.
    pub(crate) fn of(role: Role, answer: &Attach<'_>) -> Option<Self> {
        let (address, filters) = match role {
            Role::Sender => match answer.target.as_ref()? {
                AnyTarget::Target(target) => (target.address, None),
                AnyTarget::Coordinator(_) => (None, None),
            },
            Role::Receiver => {
                let source = answer.source.as_ref()?;
                (source.address, source.filter)
            }
        };
        let names = filters
            .into_iter()
            .flat_map(|map| map.iter().collect::<Vec<_>>());
        Some(Self {
            address: address.map(str::to_owned),
            max_message_size: answer.max_message_size.filter(|max| *max > 0),
            snd_settle_mode: answer.snd_settle_mode,
            rcv_settle_mode: answer.rcv_settle_mode,
            filters: names
                .filter_map(|(name, _)| name.as_str().map(str::to_owned))
                .collect(),
        })
    }
}
