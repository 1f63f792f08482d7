//! Rows as the operations that write them: what a store amounts to, for copies
//! of it. Knows nothing of where rows come from.

use std::collections::BTreeMap;

use dunlin_store::{Seq, SessionKey, StoreOp, Target};

use crate::codec::{self, DecodeError};
use crate::rows::Table;

/// Turns rows into operations, table by table in the order of [`Table::ALL`].
#[derive(Debug, Default)]
pub(crate) struct Ops {
    /// By message: sessions that acknowledged it, or joined later.
    marks: BTreeMap<u64, Vec<(u64, Option<Target>)>>,
}

impl Ops {
    /// The operation that writes this row, if it is one of its own. The value
    /// is without its checksum.
    pub(crate) fn read(
        &mut self,
        table: Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<StoreOp>, DecodeError> {
        let op = match table {
            Table::Marks => {
                let key = key.try_into().map_err(|_| DecodeError::Truncated)?;
                let (seq, session) = codec::split_mark_key(key);
                let mark = (session, codec::decode_mark(value)?);
                self.marks.entry(seq).or_default().push(mark);
                return Ok(None);
            }
            Table::Log => {
                let seq = codec::decode_session_key(key)?.0;
                let targets = self.targets(seq, codec::decode_log_head(value)?.targets);
                let message = codec::decode_log_message(value)?;
                if targets.is_empty() {
                    return Ok(None);
                }
                StoreOp::Enqueue {
                    seq: Seq(seq),
                    message,
                    targets,
                }
            }
            Table::Sessions => StoreOp::PutSession {
                key: codec::decode_session_key(key)?,
                record: codec::decode_record(value)?,
            },
            Table::Subscriptions => {
                let (session, filter) = codec::split_subscription_key(key)?;
                let (options, identifier) = codec::decode_subscription(value)?;
                StoreOp::PutSubscription {
                    key: SessionKey(session),
                    filter,
                    options,
                    identifier,
                }
            }
            Table::Inflight => {
                let (session, packet_id) = codec::decode_packet_key(key)?;
                let (seq, state) = codec::decode_inflight(value)?;
                StoreOp::PutInflight {
                    session: SessionKey(session),
                    packet_id,
                    seq,
                    state,
                }
            }
            Table::Inbound => {
                let (session, packet_id) = codec::decode_packet_key(key)?;
                codec::decode_inbound(value)?;
                StoreOp::PutInbound {
                    session: SessionKey(session),
                    packet_id,
                }
            }
            Table::Retained => StoreOp::PutRetained {
                message: codec::decode_message(value)?.into(),
            },
            Table::Meta => StoreOp::PutMeta {
                key: codec::decode_text(key)?,
                value: codec::decode_meta(value)?,
            },
        };
        Ok(Some(op))
    }

    /// Who still wants a message: of two mentions of a session, the later counts.
    fn targets(&mut self, seq: u64, first: Vec<Target>) -> Vec<Target> {
        let mut targets: BTreeMap<u64, Target> =
            first.into_iter().map(|t| (t.session.0, t)).collect();
        for (session, target) in self.marks.remove(&seq).unwrap_or_default() {
            match target {
                Some(target) => targets.insert(session, target),
                None => targets.remove(&session),
            };
        }
        targets.into_values().collect()
    }
}
