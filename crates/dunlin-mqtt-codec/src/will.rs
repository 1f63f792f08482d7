//! The Will Message inside CONNECT (MQTT 5.0 section 3.1.3.2).

use dunlin_base::QoS;

use crate::UserProperties;
use crate::property::properties;

/// What the server publishes when the client is lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Will<'a> {
    /// Quality of service.
    pub qos: QoS,
    /// Retain it.
    pub retain: bool,
    /// Topic name.
    pub topic: &'a str,
    /// Application payload, at most 65,535 bytes.
    pub payload: &'a [u8],
    /// Properties; 3.1.1 has none and leaves them out.
    pub properties: WillProperties<'a>,
}

properties! {
    /// Properties of the Will Message (section 3.1.3.2).
    pub struct WillProperties<'a> {
        /// Seconds between the loss of the client and the publication.
        delay_interval: u32 = WillDelayInterval,
        /// `true`: the payload is UTF-8; `false`: unspecified bytes.
        payload_format_indicator: bool = PayloadFormatIndicator,
        /// Lifetime in seconds.
        message_expiry_interval: u32 = MessageExpiryInterval,
        /// Kind of content, such as a MIME type.
        content_type: &'a str = ContentType,
        /// Topic for a response.
        response_topic: &'a str = ResponseTopic,
        /// What lets a requester recognise the response.
        correlation_data: &'a [u8] = CorrelationData,
        ;
        /// Names and values of the application.
        user_properties: UserProperties<'a> = UserProperty
    }
}
