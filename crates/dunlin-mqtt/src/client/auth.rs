//! Enhanced authentication of a connection (MQTT 5.0 section 4.12).

use dunlin_base::{ByteSink, Text};
use dunlin_mqtt_codec::{Auth, AuthProperties, Packet, ReasonCode, Version};

use super::error::{CommandError, PeerError};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// CONNECT had no method.
    #[default]
    None,
    /// An exchange is under way.
    Active,
    /// The exchange succeeded; another may be started.
    Done,
}

/// The exchange of one connection.
#[derive(Debug, Default)]
pub(super) struct Authentication {
    state: State,
    method: Text,
}

impl Authentication {
    /// CONNECT begins an exchange if it has a method.
    pub(super) fn start(&mut self, method: Option<&str>) {
        self.state = method.map_or(State::None, |_| State::Active);
        self.method = method.map(Text::from).unwrap_or_default();
    }

    /// The server accepted the connection.
    pub(super) fn connected(&mut self) {
        if self.state == State::Active {
            self.state = State::Done;
        }
    }

    /// Checks the method that the server named [MQTT-4.12.0-5],
    /// [MQTT-4.12.0-6].
    pub(super) fn check_method(&self, method: Option<&str>) -> Result<(), PeerError> {
        let fits = match (self.state, method) {
            (State::None, None) => true,
            (State::None, Some(_)) | (_, None) => false,
            (_, Some(method)) => self.is_method(method),
        };
        fits.then_some(()).ok_or(PeerError::AuthenticationMethod)
    }

    /// An AUTH packet came. Tells whether it ends the exchange, else it asks
    /// for another step.
    pub(super) fn handle_auth(
        &mut self,
        auth: &Auth<'_>,
        is_connected: bool,
    ) -> Result<bool, PeerError> {
        if self.state != State::Active {
            // [MQTT-4.12.0-6]
            return Err(PeerError::UnexpectedPacket("AUTH"));
        }
        self.check_method(auth.properties.authentication_method)?;
        match auth.reason {
            ReasonCode::ContinueAuthentication => Ok(false),
            ReasonCode::Success if is_connected => {
                self.state = State::Done;
                Ok(true)
            }
            _ => Err(PeerError::UnexpectedPacket("AUTH")),
        }
    }

    /// Writes the next step of an exchange.
    pub(super) fn write_step(
        &self,
        method: &str,
        data: &[u8],
        version: Version,
        out: &mut impl ByteSink,
    ) -> Result<(), CommandError> {
        if self.state != State::Active {
            return Err(CommandError::NotAuthenticating);
        }
        let reason = ReasonCode::ContinueAuthentication;
        self.write(reason, method, data, version, out)
    }

    /// Writes the first step of another exchange.
    pub(super) fn write_again(
        &mut self,
        method: &str,
        data: &[u8],
        version: Version,
        out: &mut impl ByteSink,
    ) -> Result<(), CommandError> {
        if self.state != State::Done {
            return Err(CommandError::NotAuthenticating);
        }
        self.write(ReasonCode::ReAuthenticate, method, data, version, out)?;
        self.state = State::Active;
        Ok(())
    }

    fn write(
        &self,
        reason: ReasonCode,
        method: &str,
        data: &[u8],
        version: Version,
        out: &mut impl ByteSink,
    ) -> Result<(), CommandError> {
        if !self.is_method(method) {
            return Err(CommandError::NotAuthenticating);
        }
        let properties = AuthProperties {
            authentication_method: Some(method),
            authentication_data: Some(data),
            ..AuthProperties::default()
        };
        let packet = Packet::Auth(Auth { reason, properties });
        packet.encode(version, out)?;
        Ok(())
    }

    fn is_method(&self, method: &str) -> bool {
        self.method.as_bytes() == method.as_bytes()
    }
}
