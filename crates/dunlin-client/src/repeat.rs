//! Sending small packets twice: the choice, the default that follows from the
//! stream policy, and how the transport and the server learn of it.

use dunlin_base::{ConnId, Repeat};
use dunlin_mqtt::flow::option;
use dunlin_net::Net;

use dunlin_mqtt::streams::StreamPolicy;

/// The application's choice; by policy if it made none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RepeatChoice(Option<Repeat>);

impl RepeatChoice {
    pub(crate) fn set(&mut self, repeat: Repeat) {
        self.0 = Some(repeat);
    }

    /// Asks the server for the same.
    pub(crate) fn add_property(
        self,
        policy: StreamPolicy,
        mut add: impl FnMut(&'static str, String),
    ) {
        match self.resolve(policy) {
            Repeat::Always => add(option::REPEAT, "1".into()),
            Repeat::OnLoss => add(option::REPEAT, "2".into()),
            _ => {}
        }
    }

    pub(crate) fn configure(self, policy: StreamPolicy, net: &mut Net, conn: ConnId) {
        net.conn(conn).repeat_packets(self.resolve(policy));
    }

    /// A client that spreads messages over streams wants no loss to hold them
    /// up.
    fn resolve(self, policy: StreamPolicy) -> Repeat {
        self.0.unwrap_or(match policy {
            StreamPolicy::Single => Repeat::Never,
            _ => Repeat::OnLoss,
        })
    }
}
