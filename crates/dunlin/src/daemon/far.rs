//! The ways of a shard to those of other nodes; without the feature `cluster`, none.

#[cfg(not(feature = "cluster"))]
pub(crate) use alone::{Answers, Copies, Far, Place};

#[cfg(feature = "cluster")]
pub(crate) use super::cluster::tickets::{Answers, Copies};
#[cfg(feature = "cluster")]
pub(crate) use super::cluster::{Place, far::Far};

#[cfg(not(feature = "cluster"))]
mod alone {
    use std::sync::Arc;

    use dunlin_base::{Instant, ShardId};
    use dunlin_broker::{BusMessage, Config};
    use dunlin_net::{
        Answer, ForeignDatagram, NetConfig, NetKeys, StrikeId, TicketChange, TicketRegister,
    };

    use super::super::changes::Changes;
    use super::super::mailbox::Addresses;
    use crate::control::cluster::Known;
    use crate::metrics::Readiness;

    /// Where shards stand: there are no others.
    #[derive(Debug)]
    pub(crate) struct Place;

    impl Place {
        pub(crate) const fn alone() -> Self {
            Self
        }

        pub(crate) const fn first(&self) -> ShardId {
            ShardId(0)
        }

        pub(crate) fn settle(&self, config: Config) -> Config {
            config
        }

        pub(crate) const fn cluster(&self) -> Option<std::sync::Arc<dyn Known>> {
            None
        }

        pub(crate) const fn far(&self, _: &Readiness) -> Far {
            Far
        }

        pub(crate) const fn asks_for_tickets(&self) -> bool {
            false
        }

        pub(crate) fn ask_home(
            &self,
            _: &Arc<TicketRegister>,
            _: &Addresses,
            _: &Arc<Changes>,
        ) -> Option<Box<dyn FnOnce() + Send>> {
            None
        }

        pub(crate) const fn copies(
            &self,
            _: &Arc<TicketRegister>,
            _: &Addresses,
            _: &Arc<Changes>,
        ) -> Copies {
            Copies
        }

        pub(crate) const fn settle_net(&self, _: &mut NetConfig) {}

        pub(crate) const fn net_keys(&self) -> Option<NetKeys> {
            None
        }
    }

    /// No other has tickets.
    #[derive(Debug)]
    pub(crate) struct Copies;

    impl Copies {
        pub(crate) const fn note(&mut self, _: &TicketChange) {}

        pub(crate) const fn tell(&mut self) -> Option<std::time::Instant> {
            None
        }

        pub(crate) const fn answers(&self) -> Answers {
            Answers
        }
    }

    /// No other asks for tickets.
    #[derive(Debug)]
    pub(crate) struct Answers;

    impl Answers {
        pub(crate) fn struck(&self, shard: ShardId, _: StrikeId, _: bool) {
            tracing::error!(shard = shard.0, "a ticket of a shard that does not exist");
        }
    }

    /// There are no other nodes.
    #[derive(Debug, Default)]
    pub(crate) struct Far;

    impl Far {
        pub(crate) const fn is_held_up(&self) -> bool {
            false
        }

        pub(crate) const fn serve(&mut self) {}

        pub(crate) fn push(&mut self, _: ShardId, to: ShardId, _: &BusMessage, _: Instant) {
            tracing::error!(shard = to.0, "mail for a shard that does not exist");
        }

        pub(crate) fn relay(
            &mut self,
            _: ShardId,
            _: ShardId,
            datagram: ForeignDatagram,
            _: Instant,
        ) -> Option<ForeignDatagram> {
            Some(datagram)
        }

        pub(crate) const fn answer(&mut self, _: ShardId, _: ShardId, _: &Answer, _: Instant) {}

        pub(crate) const fn flush(&mut self) {}
    }
}
