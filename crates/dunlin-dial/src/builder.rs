//! Methods that the builders of all client libraries have alike.

/// Methods of a builder that pass an option on to the
/// [`LinkOptions`](crate::LinkOptions) that its method `link` lends, for use
/// within its `impl`.
#[macro_export]
macro_rules! link_methods {
    () => {
        /// Sets what to trust on encrypted transports. Default: what the operating
        /// system trusts.
        pub fn tls(mut self, tls: $crate::TlsOptions) -> Self {
            self.link().tls = tls;
            self
        }

        /// How to connect again after a failure. On by default.
        pub fn reconnect(mut self, backoff: $crate::Backoff) -> Self {
            self.link().reconnect = Some(backoff);
            self
        }

        /// Ends the client with its first connection.
        pub fn no_reconnect(mut self) -> Self {
            self.link().reconnect = None;
            self
        }

        /// Ends the client when so many connections in a row were accepted by the
        /// server and lost within ten seconds for the same reason, with no message
        /// acknowledged or received on them: what the client sends again on each of
        /// them is then the likely cause. What waits fails with that reason. 0: never.
        /// Default 20. Attempts that the server did not accept do not count.
        pub fn losses_max(mut self, losses: u32) -> Self {
            self.link().losses_max = losses;
            self
        }

        /// Sends from this address of the machine.
        pub fn local_addr(mut self, addr: core::net::IpAddr) -> Self {
            self.link().local_addr = Some(addr);
            self
        }

        /// How QUIC behaves towards the network.
        pub fn network(mut self, network: $crate::NetworkOptions) -> Self {
            self.link().network = network;
            self
        }

        /// Has QUIC and TLS over TCP race for the connection, as the URL schemes
        /// `auto` and `amqp+auto` do: QUIC is taken if it gets through, else TLS, and a
        /// client that had to take TLS goes back to QUIC when that becomes possible.
        /// Only the winner carries the protocol; nothing is ever sent in the clear.
        pub fn race(mut self, race: $crate::Race) -> Self {
            self.link().race = Some(race);
            self
        }
    };
}
