//! Sending small packets twice: the choice, the default that follows from the
//! stream policy, and how the transport and the server learn of it. A server does as
//! [`Repeat::Lone`] by itself, if it knows how.

use dunlin_base::{ConnId, Repeat};
use dunlin_mqtt::streams::{StreamPolicy, option};
use dunlin_net::Net;

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
        if let Some(number) = self.resolve(policy).asked() {
            add(option::REPEAT, number.to_string());
        }
    }

    pub(crate) fn configure(self, policy: StreamPolicy, net: &mut Net, conn: ConnId) {
        net.conn(conn).repeat_packets(self.resolve(policy));
    }

    /// A client that spreads messages over streams wants no loss to hold them
    /// up. On a single one only what nothing follows waits long.
    fn resolve(self, policy: StreamPolicy) -> Repeat {
        self.0.unwrap_or(match policy {
            StreamPolicy::Single => Repeat::Lone,
            _ => Repeat::OnLoss,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_asked_for_what_it_does_not_do_by_itself() {
        let mut chosen = RepeatChoice::default();
        let asked = |choice: RepeatChoice, policy| {
            let mut asked = None;
            choice.add_property(policy, |name, value| asked = Some((name, value)));
            assert!(
                asked
                    .as_ref()
                    .is_none_or(|(name, _)| *name == option::REPEAT)
            );
            (choice.resolve(policy), asked.map(|(_, value)| value))
        };
        let default = [
            (StreamPolicy::Single, Repeat::Lone, None),
            (StreamPolicy::PerTopic, Repeat::OnLoss, Some("2".to_owned())),
        ];
        for (policy, repeat, value) in default {
            assert_eq!(asked(chosen, policy), (repeat, value));
        }
        for (repeat, value) in [
            (Repeat::Never, Some("0".to_owned())),
            (Repeat::Always, Some("1".to_owned())),
            (Repeat::Lone, None),
        ] {
            chosen.set(repeat);
            assert_eq!(asked(chosen, StreamPolicy::Single), (repeat, value));
        }
    }
}
