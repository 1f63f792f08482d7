//! What other shards say.

use dunlin_base::topic::Filter;
use dunlin_base::transport::NetEvent;
use dunlin_base::{ShardId, StreamId};

use crate::io::{BusMessage, InterestChange, Output};
use crate::pending::{Pending, Prepared};
use crate::shard::{Shard, Subscribed, Subscriber};

impl Shard {
    pub(crate) fn handle_bus(&mut self, from: ShardId, message: BusMessage) {
        match message {
            BusMessage::Handover { conn, peer, data } => {
                self.handle_opened(conn, peer);
                // Counted where its socket is.
                self.stats.connections -= 1;
                if let Some(&c) = self.conn_ids.get(&conn) {
                    self.stats.bytes_received += data.len() as u64;
                    self.handle_bytes(c, StreamId::CONTROL, &data);
                }
            }
            BusMessage::Net(NetEvent { conn, kind }) => {
                if let Some(&c) = self.conn_ids.get(&conn) {
                    self.handle_conn_event(c, kind);
                }
            }
            BusMessage::Command(command) => self.output(Output::Net(command)),
            BusMessage::Interest { token, changes } => {
                for change in changes {
                    self.note_interest(from, &change);
                }
                if token != 0 {
                    let message = BusMessage::InterestNoted { token };
                    self.output(Output::Bus { to: from, message });
                }
            }
            BusMessage::InterestNoted { token } => match self.pending.remove(&token) {
                Some(Pending::Subscribe(pending)) => self.advance_subscribe(token, pending),
                Some(other) => {
                    self.pending.insert(token, other);
                }
                None => {}
            },
            BusMessage::Forward { forward, token } => self.handle_forward(from, &forward, token),
            BusMessage::Prepared {
                token,
                ops,
                refused,
                missed,
            } => {
                let Some(Pending::Publish(mut publish)) = self.pending.remove(&token) else {
                    return;
                };
                publish.preparing = publish.preparing.saturating_sub(1);
                publish.refused |= refused;
                if !ops.is_empty() {
                    publish.participants.push(from);
                    publish.ops.extend(ops);
                }
                if let Some(missed) = missed {
                    self.choose_again(&missed, token, &mut publish);
                }
                self.advance_publish(token, publish);
            }
            BusMessage::Settled { token, committed } => {
                if let Some(Prepared { due, retained }) = self.prepared.remove(&(from, token)) {
                    self.settle_due(due, retained, committed);
                }
            }
            BusMessage::Retained { message } => self.keep_retained(&message),
        }
    }

    pub(crate) fn note_interest(&mut self, from: ShardId, change: &InterestChange) {
        let key = Subscriber::Shard(from);
        let value = Subscribed {
            options: 0,
            identifier: 0,
            stream: StreamId::CONTROL,
        };
        match change {
            InterestChange::Add(filter) => {
                self.tree.insert(filter, key, value);
            }
            InterestChange::Remove(filter) => {
                self.tree.remove(filter, key);
            }
            InterestChange::Share(text, members) => {
                let Ok(Filter {
                    share: Some(group),
                    filter,
                }) = Filter::parse(text)
                else {
                    return;
                };
                if *members == 0 {
                    self.tree.remove_shared(group, filter, key);
                } else {
                    self.tree.insert_shared(group, filter, key, value, *members);
                }
            }
        }
    }
}
