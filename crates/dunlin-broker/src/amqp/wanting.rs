//! Which node a client wants to be attached to: a queue by its address, one that is
//! made for it, a subscription by the names of container and link.

use alloc::boxed::Box;
use alloc::format;
use core::num::NonZeroU64;

use dunlin_amqp::codec::{
    Attach, DistributionMode, LifetimePolicy, Map, SenderSettleMode, Source, Symbol, Symbols,
    Target, TerminusDurability, TerminusExpiryPolicy, capability, condition,
};
use dunlin_base::Text;
use dunlin_base::topic::Filter;

use crate::access::Action;
use crate::amqp::attaching::{Refusal, refusal, topic_of};
use crate::amqp::filters;
use crate::amqp::resuming;
use crate::amqp::terminus::{Scope, Span};
use crate::ids::ConnIdx;
use crate::owners::Owners;
use crate::owners::common::Standing;
use crate::queues::calls::{Create, Use};
use crate::queues::options::{Kept, Life, QueueOptions};
use crate::queues::{addresses, making};
use crate::wants::Wants;

/// The node that a client wants.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) address: Text,
    /// What the rules are asked about, if anything.
    pub(super) right: Option<(Action, Text)>,
    pub(super) wants: Use,
    pub(super) create: Option<Create>,
    /// Its address comes from the broker.
    pub(super) generated: bool,
    /// How long it stays when the link is detached.
    pub(super) scope: Scope,
    /// How long what is not settled stays the client's own then, if at all.
    pub(super) span: Option<Span>,
    /// What a consumer takes or sees, if that is not everything.
    pub(super) search: Option<Wants>,
}

/// The node that a sender wants, if it is not a topic.
pub(super) fn by_sender(
    own: &mut Owners,
    attach: &Attach<'_>,
    target: &Target<'_>,
) -> Result<Option<Wanted>, Refusal> {
    let node = named(
        own,
        target.address,
        target.dynamic,
        target.dynamic_node_properties,
        target.capabilities,
    )?;
    let second = resuming::is_second(attach);
    let span = resuming::span_of(target.durable, target.expiry_policy, target.timeout, second);
    Ok(node.map(|(address, create, generated)| Wanted {
        right: (!generated).then(|| (Action::Publish, address.clone())),
        address,
        wants: Use::Send,
        create,
        generated,
        scope: Scope::Link,
        span: span.filter(|_| second && !generated),
        search: None,
    }))
}

/// The node that a receiver wants, if it is not a topic.
pub(super) fn by_receiver(
    own: &mut Owners,
    c: ConnIdx,
    attach: &Attach<'_>,
) -> Result<Option<Wanted>, Refusal> {
    let Some(source) = &attach.source else {
        return by_name(own, c, attach.name).map(Some);
    };
    let settled = attach.snd_settle_mode == SenderSettleMode::Settled;
    let node = named(
        own,
        source.address,
        source.dynamic,
        source.dynamic_node_properties,
        source.capabilities,
    )?;
    if let Some((address, create, generated)) = node {
        let wants = match source.distribution_mode {
            Some(DistributionMode::Copy) => Use::Browse,
            Some(DistributionMode::Move) | None => Use::Take { settled },
        };
        let number = number_of(own, c, source);
        let span = span_of(attach, source);
        let span = span.filter(|_| wants == Use::Take { settled: false } && !generated);
        return Ok(Some(Wanted {
            right: (!generated).then(|| (Action::Subscribe, address.clone())),
            address,
            wants,
            create,
            generated,
            scope: span.map_or(Scope::Link, |span| span.scope),
            span,
            search: Wants::parse(&filter_of(source, number.is_some())?, number),
        }));
    }
    subscription(own, c, attach, source, settled)
}

/// How long something stays of a link that receives.
fn span_of(attach: &Attach<'_>, source: &Source<'_>) -> Option<Span> {
    let (policy, second) = (source.expiry_policy, resuming::is_second(attach));
    resuming::span_of(source.durable, policy, source.timeout, second)
}

/// The subscription of a receiver, if it outlives its link or is shared.
fn subscription(
    own: &Owners,
    c: ConnIdx,
    attach: &Attach<'_>,
    source: &Source<'_>,
    settled: bool,
) -> Result<Option<Wanted>, Refusal> {
    let has = |symbol: Symbol<'_>| {
        let all = source.capabilities;
        all.is_some_and(|all| all.contains(symbol.as_str()))
    };
    let durable = source.durable != TerminusDurability::None;
    let never = source.expiry_policy == TerminusExpiryPolicy::Never;
    let shared = has(capability::SHARED) || has(capability::GLOBAL);
    let brief = match source.expiry_policy {
        TerminusExpiryPolicy::LinkDetach | TerminusExpiryPolicy::SessionEnd => source.timeout == 0,
        TerminusExpiryPolicy::ConnectionClose | TerminusExpiryPolicy::Never => false,
    };
    if brief && !durable && !shared {
        return Ok(None);
    }
    let topic = source.address.map(topic_of);
    let filter = topic.and_then(|topic| Filter::parse(topic).ok());
    let Some(filter) = filter.filter(|filter| filter.share.is_none()) else {
        let text = "the address is no topic filter";
        return Err(refusal(condition::INVALID_FIELD, text));
    };
    let who = own.conns.amqp(c).and_then(|conn| conn.who.as_ref());
    let container = who.map(|who| who.client_id.clone()).unwrap_or_default();
    let owner = (!has(capability::GLOBAL)).then_some(&*container);
    let address = address_of(owner, durable || !shared, attach.name)?;
    let kept = Kept {
        options: QueueOptions {
            durable,
            ..own.config.queues.options.clone()
        },
        life: Life::Detached(match never {
            true => u32::MAX,
            // There is no time so long but never.
            false => source.timeout.min(u32::MAX - 1),
        }),
        exclusive: !shared,
        client_id: container,
        filter: filter_of(source, number_of(own, c, source).is_some())?,
    };
    let filter = Text::from(filter.filter);
    let create = create(own, c, kept, filter.clone());
    let span = span_of(attach, source).filter(|_| !settled && !shared);
    Ok(Some(Wanted {
        address,
        right: Some((Action::Subscribe, filter)),
        wants: Use::Take { settled },
        create: Some(create),
        generated: false,
        scope: scope_of(source.expiry_policy),
        // Others may have what one of several has not settled. A subscription that ends
        // takes it along.
        span: span.map(|span| Span {
            secs: u32::MAX,
            ..span
        }),
        search: None,
    }))
}

/// A subscription to be made, with the rights of this client.
fn create(own: &Owners, c: ConnIdx, kept: Kept, filter: Text) -> Create {
    let identity = own.conns.amqp(c).map(|conn| &conn.identity);
    Create {
        kept,
        filter: Some(filter),
        standing: identity.map(|it| it.standing).unwrap_or_default(),
        rules: identity.and_then(|it| it.rules.clone()),
    }
}

/// What has to end before the time of a subscription runs.
const fn scope_of(policy: TerminusExpiryPolicy) -> Scope {
    match policy {
        TerminusExpiryPolicy::LinkDetach | TerminusExpiryPolicy::Never => Scope::Link,
        TerminusExpiryPolicy::SessionEnd => Scope::Session,
        TerminusExpiryPolicy::ConnectionClose => Scope::Connection,
    }
}

/// The address of a subscription by the name of its link. Clients that share one
/// add to the name what tells their links apart.
fn address_of(container: Option<&str>, kept: bool, name: &str) -> Result<Text, Refusal> {
    let (name, _) = name.split_once('|').unwrap_or((name, ""));
    let kind = match kept {
        true => "kept",
        false => "shared",
    };
    let container = container.filter(|container| !container.is_empty());
    let address = addresses::of_subscription(container, kind, name);
    let text = "the name of the link is too long";
    let address = address.ok_or_else(|| refusal(condition::INVALID_FIELD, text))?;
    Ok(Text::from(address))
}

/// The subscription that a receiver without a source means, to see it or to close
/// it.
fn by_name(own: &Owners, c: ConnIdx, name: &str) -> Result<Wanted, Refusal> {
    let who = own.conns.amqp(c).and_then(|conn| conn.who.as_ref());
    let container = who.map(|who| who.client_id.clone()).unwrap_or_default();
    let global = name
        .split_once('|')
        .is_some_and(|(_, rest)| rest.starts_with("global"));
    let container = (!global).then_some(&*container);
    Ok(Wanted {
        address: address_of(container, true, name)?,
        right: None,
        wants: Use::Take { settled: false },
        create: None,
        generated: false,
        scope: Scope::Link,
        span: None,
        search: None,
    })
}

/// By what the client knows its own messages again at this source, if it does: a
/// subscription that all containers share is no client's own.
pub(super) fn number_of(own: &Owners, c: ConnIdx, source: &Source<'_>) -> Option<NonZeroU64> {
    let all = source.capabilities;
    let is_global = all.is_some_and(|all| all.contains(capability::GLOBAL.as_str()));
    let sender = own.conns.amqp(c).and_then(|conn| conn.sender);
    sender.filter(|_| !is_global)
}

/// The filters of a source, as a node keeps them. `has_number`: the client knows its own
/// messages again.
fn filter_of(source: &Source<'_>, has_number: bool) -> Result<Box<[u8]>, Refusal> {
    let entries = filters::parse_for_node(source.filter, has_number);
    let bytes = entries.and_then(|entries| filters::encode(&entries));
    bytes.map_err(|text| refusal(condition::INVALID_FIELD, text))
}

type Named = (Text, Option<Create>, bool);

/// The address of a queue or dynamic node, and how it is made if it is not there.
fn named(
    own: &mut Owners,
    address: Option<&str>,
    dynamic: bool,
    properties: Option<Map<'_>>,
    capabilities: Option<Symbols<'_>>,
) -> Result<Option<Named>, Refusal> {
    if dynamic {
        return Ok(Some(dynamic_node(own, properties)));
    }
    let has = |symbol: Symbol<'_>| capabilities.is_some_and(|all| all.contains(symbol.as_str()));
    let is_queue = has(capability::QUEUE) || has(capability::TEMPORARY_QUEUE);
    let Some(address) = address.filter(|it| is_queue || it.starts_with(addresses::QUEUES)) else {
        return Ok(None);
    };
    let Some(address) = addresses::of_queue(address) else {
        let text = "the address is no name of a queue";
        return Err(refusal(condition::INVALID_FIELD, text));
    };
    let create = making::wanted(&own.config);
    Ok(Some((Text::from(address), create, false)))
}

/// A new node whose home is this shard or, on an edge, any home.
fn dynamic_node(own: &mut Owners, properties: Option<Map<'_>>) -> Named {
    let policy =
        properties.and_then(|properties| properties.get(capability::LIFETIME_POLICY.as_str()));
    let policy = policy.and_then(|value| LifetimePolicy::from_value(&value));
    let life = match policy {
        None | Some(LifetimePolicy::DeleteOnClose) => Life::Close,
        Some(LifetimePolicy::DeleteOnNoLinks) => Life::NoLinks,
        Some(LifetimePolicy::DeleteOnNoMessages) => Life::NoMessages,
        Some(LifetimePolicy::DeleteOnNoLinksOrMessages) => Life::NoLinksOrMessages,
    };
    let address = loop {
        let address = format!("{}{:032x}", addresses::DYNAMIC, own.random.next());
        if own.members.is_edge() || own.members.is_home_of(&address) {
            break Text::from(address);
        }
    };
    let create = Create {
        kept: Kept {
            options: QueueOptions {
                durable: false,
                ..own.config.queues.options.clone()
            },
            life,
            ..Kept::default()
        },
        filter: None,
        standing: Standing::Server,
        rules: None,
    };
    (address, Some(create), true)
}
