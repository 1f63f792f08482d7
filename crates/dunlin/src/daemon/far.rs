//! The ways of a shard to those of other nodes; without the feature `cluster`, none.

#[cfg(not(feature = "cluster"))]
pub(crate) use alone::{Far, Place};

#[cfg(feature = "cluster")]
pub(crate) use super::cluster::{Place, far::Far};

#[cfg(not(feature = "cluster"))]
mod alone {
    use dunlin_base::{Instant, ShardId};
    use dunlin_broker::{BusMessage, Config};

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

        pub(crate) const fn flush(&mut self) {}
    }
}
