//! SUBSCRIBEs and UNSUBSCRIBEs of one client: those that wait, those that are
//! not answered, and the subscriptions that the server has made.

use core::num::NonZeroU32;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use dunlin_base::{Instant, SendBuf, Text};
use dunlin_mqtt::client::{CommandError, Session};
use dunlin_mqtt::codec::{
    PacketId, ReasonCode, Subscribe, SubscribeFilter, SubscribeFilters, SubscribeOptions,
    Unsubscribe, UnsubscribeFilters,
};

use crate::error::{DisconnectCause, SubscribeError};
use crate::work::{Request, RequestKind};

/// Subscriptions and bytes of filters in one SUBSCRIBE of the client's own.
const RESUBSCRIBE_FILTERS_MAX: usize = 64;
const RESUBSCRIBE_BYTES_MAX: usize = 16 * 1024;

/// The requests of one client. Bounded by its permits.
#[derive(Default)]
pub(super) struct Requests {
    waiting: VecDeque<Request>,
    /// Sent and not answered.
    sent: HashMap<PacketId, Request>,
    /// Subscriptions that the server has made.
    made: BTreeMap<Text, (SubscribeOptions, Option<NonZeroU32>)>,
}

impl Requests {
    pub(super) fn push(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    /// Whether none waits to be sent.
    pub(super) fn is_written(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends what the server's limits allow.
    pub(super) fn write(&mut self, now: Instant, session: &mut Session, out: &mut SendBuf) {
        while let Some(request) = self.waiting.pop_front() {
            match write_request(session, now, &request.kind, out) {
                Ok(id) => {
                    self.sent.insert(id, request);
                }
                Err(CommandError::InFlightFull | CommandError::NotConnected) => {
                    self.waiting.push_front(request);
                    return;
                }
                Err(error) => request.finish(Err(SubscribeError::NotSupported(error))),
            }
        }
    }

    /// The last connection took these with it, oldest first: they come before
    /// all others.
    pub(super) fn take_back(&mut self, ids: &[PacketId]) {
        for id in ids.iter().rev() {
            if let Some(request) = self.sent.remove(id) {
                self.waiting.push_front(request);
            }
        }
    }

    /// A SUBACK or UNSUBACK came.
    pub(super) fn answered(&mut self, id: PacketId, reasons: Vec<ReasonCode>) {
        let Some(request) = self.sent.remove(&id) else {
            tracing::error!("an answer to a request that was not sent");
            return;
        };
        match &request.kind {
            RequestKind::Subscribe { filters, id } => {
                for ((filter, options), reason) in filters.iter().zip(&reasons) {
                    if !reason.is_error() {
                        self.made.insert(filter.clone(), (*options, *id));
                    }
                }
            }
            RequestKind::Unsubscribe { filters } => {
                for filter in filters {
                    self.made.remove(filter.as_bytes());
                }
            }
        }
        request.finish(Ok(reasons));
    }

    /// The server lost the session: makes the subscriptions again, before
    /// anything else but what went out ahead of CONNACK, which counts.
    pub(super) fn subscribe_again(&mut self) {
        let mut again: Vec<Request> = Vec::new();
        let mut bytes = 0;
        let ahead: BTreeSet<&Text> = self.sent.values().flat_map(Request::filters).collect();
        let made = self.made.iter();
        for (filter, (options, id)) in made.filter(|(filter, _)| !ahead.contains(filter)) {
            bytes += filter.as_bytes().len();
            if let Some(Request {
                kind:
                    RequestKind::Subscribe {
                        filters,
                        id: last_id,
                    },
                ..
            }) = again.last_mut()
                && last_id == id
                && filters.len() < RESUBSCRIBE_FILTERS_MAX
                && bytes < RESUBSCRIBE_BYTES_MAX
            {
                filters.push((filter.clone(), *options));
                continue;
            }
            bytes = filter.as_bytes().len();
            again.push(Request {
                kind: RequestKind::Subscribe {
                    filters: vec![(filter.clone(), *options)],
                    id: *id,
                },
                done: None,
            });
        }
        for request in again.into_iter().rev() {
            self.waiting.push_front(request);
        }
    }

    /// The client is over.
    pub(super) fn end(&mut self, cause: &DisconnectCause) {
        let sent = self.sent.drain().map(|(_, request)| request);
        for request in self.waiting.drain(..).chain(sent) {
            request.finish(Err(SubscribeError::Closed(cause.clone())));
        }
    }
}

fn write_request(
    session: &mut Session,
    now: Instant,
    kind: &RequestKind,
    out: &mut SendBuf,
) -> Result<PacketId, CommandError> {
    match kind {
        RequestKind::Subscribe { filters, id } => {
            let filters: Vec<_> = filters
                .iter()
                .map(|(filter, options)| SubscribeFilter {
                    filter,
                    options: *options,
                })
                .collect();
            let subscribe = Subscribe {
                packet_id: PacketId::MIN,
                subscription_identifier: *id,
                user_properties: Default::default(),
                filters: SubscribeFilters::new(&filters),
            };
            session.subscribe(now, &subscribe, out)
        }
        RequestKind::Unsubscribe { filters } => {
            let filters: Vec<_> = filters.iter().map(Text::as_str).collect();
            let unsubscribe = Unsubscribe {
                packet_id: PacketId::MIN,
                user_properties: Default::default(),
                filters: UnsubscribeFilters::new(&filters),
            };
            session.unsubscribe(now, &unsubscribe, out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribe(filters: &[&str]) -> Request {
        let options = SubscribeOptions::default();
        let filters = filters.iter().map(|f| (Text::from(*f), options));
        Request {
            kind: RequestKind::Subscribe {
                filters: filters.collect(),
                id: None,
            },
            done: None,
        }
    }

    fn id(n: u16) -> PacketId {
        PacketId::new(n).expect("not zero")
    }

    fn waiting(requests: &Requests) -> Vec<Vec<String>> {
        let filters = |request: &Request| request.filters().map(|f| f.to_string()).collect();
        requests.waiting.iter().map(filters).collect()
    }

    #[test]
    fn requests_of_a_lost_connection_come_first_and_in_order() {
        let mut requests = Requests::default();
        requests.push(subscribe(&["new"]));
        requests.sent.insert(id(7), subscribe(&["first"]));
        requests.sent.insert(id(3), subscribe(&["second"]));
        requests.take_back(&[id(7), id(3), id(9)]);
        assert_eq!(waiting(&requests), [["first"], ["second"], ["new"]]);
    }

    #[test]
    fn what_the_server_granted_is_made_again_in_few_packets() {
        let mut requests = Requests::default();
        let names: Vec<String> = (0..=RESUBSCRIBE_FILTERS_MAX)
            .map(|n| format!("{n:03}"))
            .collect();
        let filters: Vec<&str> = names.iter().map(String::as_str).collect();
        requests.sent.insert(id(1), subscribe(&filters));
        let mut reasons = vec![ReasonCode::GRANTED_QOS_0; filters.len()];
        reasons[0] = ReasonCode::NotAuthorized;
        requests.answered(id(1), reasons);
        requests.sent.insert(id(2), subscribe(&["064"]));
        requests.subscribe_again();
        let again = waiting(&requests);
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].len(), RESUBSCRIBE_FILTERS_MAX - 1);
        assert_eq!(again[0].first().map(String::as_str), Some("001"));
    }
}
