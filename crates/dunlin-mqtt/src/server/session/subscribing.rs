//! SUBSCRIBE and UNSUBSCRIBE: what each filter gets, and the answer, which
//! waits until the subscriptions are in force.

use alloc::vec::Vec;

use dunlin_base::topic::Filter;
use dunlin_base::{StreamId, Text};
use dunlin_mqtt_codec::{
    Packet, PacketId, ReasonCode, ReasonCodes, ReasonProperties, SubAck, Subscribe,
    SubscribeFilter, UnsubAck, Unsubscribe,
};

use super::{Session, Subscription};
use crate::server::Link;

/// How many subscriptions a session may have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// All of them.
    pub subscriptions_max: usize,
    /// Those that one message can match.
    pub overlaps_max: usize,
    /// What all of them may take in memory, as [`Subscriptions::bytes`] counts it.
    ///
    /// [`Subscriptions::bytes`]: super::Subscriptions::bytes
    pub bytes_max: usize,
}

/// A subscription that a SUBSCRIBE made or changed.
#[derive(Debug)]
pub struct Made {
    /// Its filter.
    pub filter: Text,
    /// The subscription.
    pub subscription: Subscription,
    /// There was none with this filter.
    pub is_new: bool,
    /// Retained messages are due for it.
    pub retained: bool,
    /// It outlives the connection.
    pub outlives: bool,
}

/// Why a subscription is refused.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    Invalid,
    NotAllowed,
    /// The session has as many as it may have, or as take as much memory.
    TooMuch,
    /// One message could match too many of the session.
    Overlaps,
}

impl Refusal {
    const fn reason(self) -> ReasonCode {
        match self {
            Self::Invalid => ReasonCode::TopicFilterInvalid,
            Self::NotAllowed => ReasonCode::NotAuthorized,
            Self::TooMuch | Self::Overlaps => ReasonCode::QuotaExceeded,
        }
    }
}

/// A SUBSCRIBE or UNSUBSCRIBE that is not in force everywhere yet.
#[derive(Debug)]
pub struct Subscribing {
    packet_id: PacketId,
    /// Where the answer goes.
    pub stream: StreamId,
    reasons: Vec<ReasonCode>,
    /// Filters that were new, to be taken back if they cannot be kept.
    added: Vec<Text>,
    unsubscribes: bool,
    /// Filters that were refused because one message could match too many.
    pub overlapping: u64,
    /// Filters that were refused because there were too many, or they took too
    /// much memory.
    pub refused: u64,
}

impl Subscribing {
    /// SUBACK or UNSUBACK.
    #[must_use]
    pub fn answer(&self) -> Packet<'_> {
        let (packet_id, reasons) = (self.packet_id, ReasonCodes::new(&self.reasons));
        let properties = ReasonProperties::default();
        match self.unsubscribes {
            true => Packet::UnsubAck(UnsubAck {
                packet_id,
                properties,
                reasons,
            }),
            false => Packet::SubAck(SubAck {
                packet_id,
                properties,
                reasons,
            }),
        }
    }
}

impl Session {
    /// A SUBSCRIBE that came on a stream of this connection. `allowed` says of
    /// each filter, by its place, whether the client may subscribe to it.
    pub fn handle_subscribe(
        &mut self,
        link: &Link,
        stream: StreamId,
        subscribe: &Subscribe<'_>,
        limits: &Limits,
        allowed: impl Fn(usize) -> bool,
    ) -> (Subscribing, Vec<Made>) {
        let flow = link.streams.flow_of(stream);
        let durable = link.terms.durable_streams;
        let outlives = self.lifetime.is_persistent() && self.outlives(stream, flow, durable);
        let mut made = Vec::new();
        let mut reasons = Vec::new();
        let (mut overlapping, mut refused) = (0, 0);
        for (at, request) in subscribe.filters.iter().enumerate() {
            let mut options = request.options;
            if link.terms.bridge {
                // No Local is not allowed for a shared subscription.
                options.no_local = !request.filter.starts_with("$share/");
                options.retain_as_published = true;
            }
            let subscription = Subscription {
                options,
                identifier: subscribe.subscription_identifier.map(|id| id.get()),
                stream,
                flow,
            };
            let one = self.subscribe(&request, subscription, limits, allowed(at));
            overlapping += u64::from(matches!(one, Err(Refusal::Overlaps)));
            refused += u64::from(matches!(one, Err(Refusal::TooMuch)));
            reasons.push(match &one {
                Ok(_) => subscription.granted(),
                Err(refusal) => refusal.reason(),
            });
            made.extend(one.map(|made| Made { outlives, ..made }));
        }
        let new = made.iter().filter(|made| made.is_new);
        let subscribing = Subscribing {
            packet_id: subscribe.packet_id,
            stream,
            reasons,
            added: new.map(|made| made.filter.clone()).collect(),
            unsubscribes: false,
            overlapping,
            refused,
        };
        (subscribing, made)
    }

    fn subscribe(
        &mut self,
        request: &SubscribeFilter<'_>,
        subscription: Subscription,
        limits: &Limits,
        allowed: bool,
    ) -> Result<Made, Refusal> {
        let text = request.filter;
        let filter = Filter::parse(text).map_err(|_| Refusal::Invalid)?;
        if !allowed {
            return Err(Refusal::NotAllowed);
        }
        let subscriptions = &mut self.subscriptions;
        let is_new = !subscriptions.contains(text);
        let full = subscriptions.len() >= limits.subscriptions_max;
        if is_new && (full || subscriptions.bytes_with(text) > limits.bytes_max) {
            return Err(Refusal::TooMuch);
        }
        if is_new && subscriptions.overlaps(text, limits.overlaps_max) {
            return Err(Refusal::Overlaps);
        }
        //= mqtt5#[MQTT-3.8.4-3]
        subscriptions.insert(Text::from(text), subscription);
        Ok(Made {
            filter: Text::from(text),
            subscription,
            is_new,
            retained: subscription.wants_retained(is_new) && filter.share.is_none(),
            outlives: false,
        })
    }

    /// An UNSUBSCRIBE that came on a stream: the subscriptions that have ended.
    pub fn handle_unsubscribe(
        &mut self,
        stream: StreamId,
        unsubscribe: &Unsubscribe<'_>,
    ) -> (Subscribing, Vec<Text>) {
        let mut ended = Vec::new();
        let mut reasons = Vec::new();
        for filter in unsubscribe.filters.iter() {
            //= mqtt5#[MQTT-3.10.4-1]
            reasons.push(match self.subscriptions.remove(filter) {
                true => ReasonCode::Success,
                false => ReasonCode::NoSubscriptionExisted,
            });
            if reasons.last() == Some(&ReasonCode::Success) {
                ended.push(Text::from(filter));
            }
        }
        let subscribing = Subscribing {
            packet_id: unsubscribe.packet_id,
            stream,
            reasons,
            added: Vec::new(),
            unsubscribes: true,
            overlapping: 0,
            refused: 0,
        };
        (subscribing, ended)
    }

    /// A SUBSCRIBE or UNSUBSCRIBE cannot be kept: the answer says so, and new
    /// subscriptions end, which come out. What UNSUBSCRIBE removed stays
    /// removed, though a restart may bring it back.
    pub fn handle_not_kept(&mut self, subscribing: &mut Subscribing) -> Vec<Text> {
        let reason = match subscribing.unsubscribes {
            true => ReasonCode::UnspecifiedError,
            false => ReasonCode::QuotaExceeded,
        };
        let granted = subscribing.reasons.iter_mut();
        for granted in granted.filter(|reason| !reason.is_error()) {
            *granted = reason;
        }
        let added = core::mem::take(&mut subscribing.added).into_iter();
        added
            .filter(|text| self.subscriptions.remove(text))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use core::num::NonZeroU16;

    use dunlin_base::Instant;
    use dunlin_mqtt_codec::{
        SubscribeFilters, SubscribeOptions, UnsubscribeFilters, UserProperties,
    };

    const LIMITS: Limits = Limits {
        subscriptions_max: 4,
        overlaps_max: 2,
        bytes_max: 8192,
    };

    fn subscribe(
        session: &mut Session,
        filters: &[&str],
        allowed: impl Fn(usize) -> bool,
    ) -> (Subscribing, Vec<Made>) {
        let options = SubscribeOptions::default();
        let filters: Vec<_> = filters
            .iter()
            .map(|filter| SubscribeFilter { filter, options })
            .collect();
        let subscribe = Subscribe {
            packet_id: NonZeroU16::MIN,
            subscription_identifier: None,
            user_properties: UserProperties::default(),
            filters: SubscribeFilters::new(&filters),
        };
        let link = Link::new(Instant::ZERO, core::time::Duration::ZERO);
        session.handle_subscribe(&link, StreamId::CONTROL, &subscribe, &LIMITS, allowed)
    }

    fn unsubscribe(session: &mut Session, filters: &[&str]) -> (Subscribing, Vec<Text>) {
        let unsubscribe = Unsubscribe {
            packet_id: NonZeroU16::MIN,
            user_properties: UserProperties::default(),
            filters: UnsubscribeFilters::new(filters),
        };
        session.handle_unsubscribe(StreamId::CONTROL, &unsubscribe)
    }

    fn made(made: &[Made]) -> String {
        let all = made.iter();
        all.map(|made| alloc::format!("{}:{}:{} ", made.filter, made.is_new, made.retained))
            .collect()
    }

    #[test]
    fn each_filter_gets_its_own_answer() {
        //= mqtt5#[MQTT-3.8.4-3] type=test
        use ReasonCode as R;
        let mut session = Session::default();
        let (answer, all) = subscribe(&mut session, &["a", "b", "a"], |at| at != 1);
        assert_eq!(answer.reasons, [R::Success, R::NotAuthorized, R::Success]);
        assert_eq!(made(&all), "a:true:true a:false:true ");
        let shares = ["$share/g/a", "$share/h/a", "c", "d", "e"];
        let (answer, all) = subscribe(&mut session, &shares, |_| true);
        let full = R::QuotaExceeded;
        let granted = R::Success;
        assert_eq!(answer.reasons, [granted, full, granted, granted, full]);
        assert_eq!((answer.overlapping, answer.refused), (1, 1));
        let want = "$share/g/a:true:false c:true:true d:true:true ";
        assert_eq!(made(&all), want);
        assert!(matches!(answer.answer(), Packet::SubAck(_)));
        let (answer, ended) = unsubscribe(&mut session, &["$share/g/a", "x"]);
        assert_eq!(answer.reasons, [R::Success, R::NoSubscriptionExisted]);
        assert_eq!((ended.len(), session.subscriptions.len()), (1, 3));
        assert!(matches!(answer.answer(), Packet::UnsubAck(_)));
    }

    #[test]
    fn long_filters_are_counted_in_bytes() {
        use ReasonCode as R;
        let mut session = Session::default();
        let long = "x".repeat(1000);
        let longer = "y".repeat(2000);
        let (answer, _) = subscribe(&mut session, &[&long, &longer, &long], |_| true);
        assert_eq!(answer.reasons, [R::Success, R::QuotaExceeded, R::Success]);
        assert_eq!(answer.refused, 1);
        let bytes = session.subscriptions.bytes();
        assert!((3000..8192).contains(&bytes), "{bytes}");
        unsubscribe(&mut session, &[&long]);
        assert_eq!(session.subscriptions.bytes(), 0);
    }

    #[test]
    fn what_cannot_be_kept_is_taken_back() {
        use ReasonCode as R;
        let mut session = Session::default();
        subscribe(&mut session, &["a"], |_| true);
        let (mut answer, _) = subscribe(&mut session, &["a", "b", "c"], |at| at != 2);
        let ended = session.handle_not_kept(&mut answer);
        assert_eq!(ended, [Text::from_static("b")]);
        let quota = R::QuotaExceeded;
        assert_eq!(answer.reasons, [quota, quota, R::NotAuthorized]);
        assert!(session.subscriptions.contains("a"));
        let (mut answer, _) = unsubscribe(&mut session, &["a"]);
        assert!(session.handle_not_kept(&mut answer).is_empty());
        assert_eq!(answer.reasons, [R::UnspecifiedError]);
    }
}
