//! A client of MQTT by others over a socket of `dunlin-socket`: the example of that
//! crate, at a broker.

use dunlin_base::transport::Transport;

use crate::support::{Broker, run};

#[allow(dead_code, reason = "its own main is for programs")]
#[path = "../../../dunlin-socket/examples/mqtt.rs"]
mod mqtt;

#[test]
fn an_mqtt_client_by_others_talks_over_a_quic_socket() {
    let broker = Broker::start(1);
    let server = format!("localhost:{}", broker.addr(Transport::Quic).port());
    run(mqtt::run(&broker.ca(), &server)).expect("a message that comes back");
}
