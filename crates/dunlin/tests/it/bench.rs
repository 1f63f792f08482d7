//! The load generator against a broker in this process: it counts what it
//! sent, and the broker loses nothing.

use core::time::Duration;
use std::sync::Arc;

use dunlin::bench;
use dunlin::bench::fleet::Share;
use dunlin::bench::handshakes::{self, Pace, Until, Visits};
use dunlin::bench::library::{self, Options};
use dunlin::bench::plan::{Pattern, Plan, Target};
use dunlin::bench::proc::Process;
use dunlin::bench::report::Report;
use dunlin::bench::schedule::Arrival;
use dunlin_base::transport::Transport;
use dunlin_dial::Protocol;
use dunlin_mqtt_codec::{QoS, Version};
use dunlin_net::{ClientTls, QuicTuning};

use crate::support::Broker;

fn target(broker: &Broker, protocol: Protocol, transport: Transport) -> Target {
    let tls = ClientTls::builder().dangerous_accept_any_certificate();
    Target {
        url: format!("{}://localhost", protocol.scheme(transport)),
        protocol,
        transport,
        addr: broker.addr(transport),
        server_name: "localhost".into(),
        ws_path: String::new(),
        tls: Some(Arc::new(tls.build().expect("settings"))),
        quic: QuicTuning::default(),
        user: None,
        password: None,
    }
}

fn plan(broker: &Broker, transport: Transport, run_id: &str) -> Plan {
    let target = target(broker, Protocol::Mqtt, transport);
    let mut plan = Plan::new(target, run_id);
    plan.time.warmup = Duration::from_millis(50);
    plan.time.duration = Duration::from_millis(300);
    // A machine under load must not fail the test.
    plan.time.drain = Duration::from_secs(30);
    plan
}

fn run(plan: &Plan) -> Report {
    bench::run(plan, None, &mut std::io::sink()).expect("a run")
}

fn assert_complete(report: &Report, what: &str) {
    let messages = report.messages.as_ref().expect("messages");
    assert!(messages.sent > 0, "{what}: {report}");
    assert_eq!(messages.sent, messages.offered, "{what}: {report}");
    assert_eq!(
        (messages.lost, messages.refused),
        (0, 0),
        "{what}: {report}"
    );
    assert_eq!(messages.delivered, messages.expected, "{what}: {report}");
    assert_eq!(messages.duplicates, 0, "{what}: {report}");
    let latency = report.latency.expect("latency");
    assert_eq!(latency.count, messages.delivered, "{what}: {report}");
}

#[test]
fn nothing_is_lost_on_any_transport_and_qos() {
    let broker = Broker::start(2);
    let cases = [
        (Transport::Tcp, QoS::AtMostOnce, Version::V311),
        (Transport::Tls, QoS::AtLeastOnce, Version::V5),
        (Transport::Quic, QoS::ExactlyOnce, Version::V5),
        (Transport::Ws, QoS::ExactlyOnce, Version::V311),
        (Transport::Wss, QoS::AtMostOnce, Version::V5),
    ];
    for (number, (transport, qos, version)) in cases.into_iter().enumerate() {
        let mut plan = plan(&broker, transport, &format!("t{number}"));
        (
            plan.messages.qos,
            plan.sessions.subscribe_qos,
            plan.sessions.version,
        ) = (qos, qos, version);
        plan.pattern = Pattern::All;
        (plan.publishers, plan.subscribers, plan.topics) = (3, 2, 4);
        plan.threads = 2;
        plan.pace.rate = Some(2_000.0);
        let report = run(&plan);
        assert_complete(&report, &format!("{transport:?} {qos:?}"));
        let messages = report.messages.expect("messages");
        assert!(messages.coordinated_omission_corrected);
        let acknowledged = if qos == QoS::AtMostOnce {
            0
        } else {
            messages.sent
        };
        assert_eq!(messages.acknowledged, acknowledged);
        assert_eq!(messages.expected, 2 * messages.sent);
    }
}

#[test]
fn nothing_is_lost_with_amqp_and_between_protocols() {
    let broker = Broker::start(2);
    let (mqtt, amqp) = (Protocol::Mqtt, Protocol::Amqp);
    let cases = [
        (amqp, Transport::Tcp, amqp, QoS::AtMostOnce, true),
        (amqp, Transport::Tls, amqp, QoS::AtLeastOnce, true),
        (amqp, Transport::Quic, amqp, QoS::ExactlyOnce, false),
        (amqp, Transport::Tls, amqp, QoS::AtLeastOnce, false),
        (mqtt, Transport::Tcp, amqp, QoS::AtLeastOnce, false),
        (amqp, Transport::Tcp, mqtt, QoS::ExactlyOnce, false),
    ];
    for (number, (from, transport, to, qos, to_queue)) in cases.into_iter().enumerate() {
        let what = format!("{from:?} {transport:?} {to:?} {qos:?} queue {to_queue}");
        let mut plan = plan(&broker, transport, &format!("a{number}"));
        plan.target = target(&broker, from, transport);
        plan.subscribers_at = Some(target(&broker, to, transport));
        (plan.messages.qos, plan.sessions.subscribe_qos) = (qos, qos);
        (plan.publishers, plan.subscribers, plan.topics) = (3, 2, 4);
        plan.pattern = Pattern::All;
        plan.pace.rate = Some(2_000.0);
        if to_queue {
            (plan.messages.queue, plan.topics) = (Some(format!("/queues/{number}")), 1);
        }
        let report = run(&plan);
        assert_complete(&report, &what);
        let messages = report.messages.expect("messages");
        let acknowledged = match qos {
            QoS::AtMostOnce => 0,
            _ => messages.sent,
        };
        assert_eq!(messages.acknowledged, acknowledged, "{what}");
        let copies = if to_queue { 1 } else { 2 };
        assert_eq!(messages.expected, copies * messages.sent, "{what}");
    }
}

#[test]
fn saturation_of_a_queue_is_settled_in_full() {
    let broker = Broker::start(1);
    for (qos, durable) in [(QoS::AtMostOnce, false), (QoS::AtLeastOnce, true)] {
        let mut plan = plan(&broker, Transport::Tcp, "queue");
        plan.target = target(&broker, Protocol::Amqp, Transport::Tcp);
        plan.messages.queue = Some("/queues/full".into());
        (
            plan.messages.qos,
            plan.sessions.subscribe_qos,
            plan.messages.durable,
        ) = (qos, qos, durable);
        plan.subscribers = 20;
        assert_complete(&run(&plan), &format!("{qos:?}"));
    }
}

#[test]
fn idle_clients_of_amqp_have_a_link() {
    let broker = Broker::start(1);
    let mut plan = plan(&broker, Transport::Tcp, "links");
    plan.target = target(&broker, Protocol::Amqp, Transport::Tcp);
    (plan.publishers, plan.subscribers, plan.idle) = (0, 0, 20);
    let report = run(&plan);
    assert_eq!(report.connections.ready, 20);
    assert!(report.connections.losses.is_empty(), "{report}");
}

#[test]
fn saturation_with_a_persistent_subscriber_is_acknowledged_in_full() {
    let broker = Broker::start(1);
    let mut plan = plan(&broker, Transport::Tcp, "full");
    plan.pattern = Pattern::FanIn;
    (plan.publishers, plan.topics) = (5, 5);
    (plan.messages.qos, plan.sessions.subscribe_qos) = (QoS::AtLeastOnce, QoS::AtLeastOnce);
    plan.sessions.persistent = true;
    let report = run(&plan);
    assert_complete(&report, "persistent");
    let messages = report.messages.expect("messages");
    assert_eq!(messages.acknowledged, messages.sent);
}

#[test]
fn what_a_broker_refuses_is_distinguished_from_what_is_lost() {
    let broker = Broker::start_with(1, &["limits.max_queued_messages=1"]);
    let mut plan = plan(&broker, Transport::Tcp, "refuse");
    plan.pattern = Pattern::FanIn;
    (plan.publishers, plan.topics) = (5, 5);
    (plan.messages.qos, plan.sessions.subscribe_qos) = (QoS::AtLeastOnce, QoS::AtLeastOnce);
    plan.sessions.persistent = true;
    let report = run(&plan);
    let messages = report.messages.as_ref().expect("messages");
    assert!(messages.refused > 0, "{report}");
    let answered = messages.acknowledged + messages.refused;
    assert_eq!(answered, messages.sent, "{report}");
    assert_eq!(messages.expected, messages.acknowledged, "{report}");
    assert_eq!(messages.lost, 0, "{report}");
}

#[test]
fn idle_connections_are_held_and_a_missing_broker_is_named() {
    let mut broker = Broker::start(2);
    let mut plan = plan(&broker, Transport::Quic, "idle");
    (plan.publishers, plan.subscribers, plan.idle) = (0, 0, 30);
    let report = run(&plan);
    assert_eq!(report.connections.ready, 30);
    assert_eq!(report.connections.time.count, 30);
    assert!(report.messages.is_none());
    broker.stop();
    plan.target.transport = Transport::Tcp;
    let error = bench::run(&plan, None, &mut std::io::sink()).expect_err("no broker");
    assert!(error.to_string().contains("refused"), "{error}");
}

fn visits(target: Target, count: u64, pace: Pace, until: Until) -> Visits {
    Visits {
        target,
        version: Version::V5,
        count,
        warm_up: 2,
        pace,
        until,
        timeout: Duration::from_secs(20),
        early_data: false,
        own_tickets: Vec::new(),
    }
}

#[test]
fn visits_are_counted_and_failures_named() {
    let mut broker = Broker::start(1);
    for transport in [Transport::Quic, Transport::Tls, Transport::Tcp] {
        let target = plan(&broker, transport, "visits").target;
        let visits = visits(target, 20, Pace::AtOnce(3), Until::Connack);
        let own = Process::own();
        let cost = handshakes::run(&visits, own).expect("visited");
        assert!(cost.connections >= 20 && cost.failed == 0, "{cost:?}");
        assert!(cost.broker_cpu_ms.is_some() && cost.to_string().contains("CPU s"));
        assert!(cost.times.is_none());
    }
    let target = plan(&broker, Transport::Tcp, "visits").target;
    broker.stop();
    let visits = visits(target, 1, Pace::AtOnce(1), Until::Connack);
    let error = handshakes::run(&visits, None).expect_err("no broker");
    assert!(error.to_string().contains("too many failed"), "{error}");
}

#[test]
fn visits_at_an_interval_are_timed_step_by_step() {
    let mut broker = Broker::start(1);
    let pace = Pace::Every(Duration::from_millis(5));
    for (until, steps) in [
        (Until::Handshake, [10, 0, 0]),
        (Until::Connack, [10, 10, 0]),
        (Until::Suback, [10, 10, 10]),
    ] {
        for transport in [Transport::Quic, Transport::Tls, Transport::Tcp] {
            let target = plan(&broker, transport, "timed").target;
            let cost = handshakes::run(&visits(target, 10, pace, until), None).expect("visited");
            let times = cost.times.expect("times");
            assert_eq!((times.clients, times.done, cost.failed), (10, 10, 0));
            let all = [&times.ready_us, &times.connack_us, &times.suback_us];
            assert_eq!(all.map(Vec::len), steps, "{transport:?} {until:?}");
            let in_order = |at: usize| times.ready_us[at] <= times.connack_us[at];
            assert!(until == Until::Handshake || (0..10).all(in_order));
        }
    }
    let target = plan(&broker, Transport::Quic, "early").target;
    let trust = |_| Arc::clone(target.tls.as_ref().expect("QUIC has TLS"));
    let mut early = visits(target.clone(), 4, pace, Until::Connack);
    early.early_data = true;
    early.own_tickets = (0..6).map(trust).collect();
    let times = handshakes::run(&early, None).expect("visited").times;
    let times = times.expect("times");
    assert_eq!((times.done, times.answered_us.len()), (4, 4), "{times:?}");
    assert!(times.early > 0, "{times:?}");
    let target = plan(&broker, Transport::Tcp, "gone").target;
    broker.stop();
    let cost = handshakes::run(&visits(target, 3, pace, Until::Connack), None).expect("a count");
    let times = cost.times.expect("times");
    assert_eq!((times.done, cost.failed), (0, 3));
    assert!(times.why.expect("a cause").contains("refused"));
}

fn fleet(broker: &Broker, transport: Transport, run_id: &str) -> Plan {
    let mut plan = plan(broker, transport, run_id);
    plan.pattern = Pattern::Fleet;
    (plan.messages.qos, plan.sessions.subscribe_qos) = (QoS::AtLeastOnce, QoS::AtLeastOnce);
    (plan.publishers, plan.subscribers, plan.topics) = (8, 8, 8);
    plan.pace.rate = Some(40.0);
    plan.time.duration = Duration::from_millis(1_500);
    plan.messages.sizes = vec![16, 200];
    plan
}

fn percent(share: f64) -> Share {
    Share::percent(share).expect("a percentage")
}

/// A turn of the generator touches those publishers only to which something
/// happened: to ask all of them in each of some 300 turns would be 120,000 times.
#[test]
fn publishers_without_anything_to_send_are_not_asked() {
    let broker = Broker::start(1);
    let mut plan = plan(&broker, Transport::Tcp, "asked");
    (plan.publishers, plan.subscribers, plan.topics) = (400, 1, 400);
    plan.pattern = Pattern::FanIn;
    (plan.messages.qos, plan.sessions.subscribe_qos) = (QoS::AtLeastOnce, QoS::AtLeastOnce);
    plan.pace.rate = Some(300.0);
    plan.time.duration = Duration::from_secs(1);
    let report = run(&plan);
    assert_complete(&report, "fan-in");
    if let Some(generator) = report.generator {
        // Some twice while they connect; for a message: it is due, its bytes have
        // left, it is acknowledged.
        let sent = report.messages.expect("messages").sent;
        let most = 5 * 400 + 5 * (sent + 50);
        assert!(generator.asked < most, "{} of {most}", generator.asked);
    }
}

#[test]
fn devices_of_a_fleet_sleep_and_wake() {
    let broker = Broker::start(1);
    let cases = [
        (Transport::Quic, QoS::AtLeastOnce, Arrival::Even),
        (Transport::Quic, QoS::AtMostOnce, Arrival::Poisson),
        (Transport::Tls, QoS::ExactlyOnce, Arrival::Clusters(4)),
        (Transport::Tcp, QoS::AtMostOnce, Arrival::Even),
    ];
    for (number, (transport, qos, arrival)) in cases.into_iter().enumerate() {
        let what = format!("{transport:?} {qos:?} {arrival:?}");
        let mut plan = fleet(&broker, transport, &format!("f{number}"));
        (
            plan.messages.qos,
            plan.sessions.subscribe_qos,
            plan.pace.arrival,
        ) = (qos, qos, arrival);
        plan.fleet.sleeping = percent(75.0);
        let report = run(&plan);
        assert_complete(&report, &what);
        assert!(report.connections.losses.is_empty(), "{what}: {report}");
        let fleet = report.fleet.as_ref().expect("a fleet");
        assert_eq!((fleet.devices, fleet.sleeping), (16, 6), "{what}");
        assert!(fleet.wakes > 0, "{what}: {report}");
        assert_eq!(fleet.wake.count, fleet.wakes, "{what}");
        let is_quic = transport == Transport::Quic;
        assert_eq!(fleet.early_data_accepted > 0, is_quic, "{what}: {report}");
        assert!(report.to_string().contains("wake time"), "{report}");
    }
}

#[test]
fn devices_of_a_fleet_move() {
    let broker = Broker::start(1);
    let mut plan = fleet(&broker, Transport::Quic, "move");
    plan.fleet.moving = percent(50.0);
    plan.fleet.move_every = Duration::from_millis(400);
    plan.threads = 2;
    let report = run(&plan);
    assert_complete(&report, "moving");
    assert!(report.connections.losses.is_empty(), "{report}");
    let fleet = report.fleet.as_ref().expect("a fleet");
    assert_eq!((fleet.moving, fleet.wakes), (8, 0));
    assert!(fleet.moves >= 8, "{report}");
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["fleet"]["moves"], fleet.moves);
}

#[test]
fn clients_of_the_library_carry_a_load() {
    let broker = Broker::start(2);
    for (transport, scheme) in [(Transport::Quic, "quic"), (Transport::Tcp, "mqtt")] {
        let mut plan = plan(&broker, transport, scheme);
        plan.pattern = Pattern::All;
        (plan.publishers, plan.subscribers, plan.topics) = (2, 2, 4);
        (plan.messages.qos, plan.sessions.subscribe_qos) = (QoS::AtLeastOnce, QoS::AtLeastOnce);
        plan.pace.rate = Some(100.0);
        (plan.time.warmup, plan.time.duration) = (Duration::ZERO, Duration::from_secs(1));
        let url = format!("{scheme}://{}", broker.addr(transport));
        let make = |kind, number| {
            let tls = dunlin_client::TlsOptions::new().dangerous_no_verification();
            let builder = dunlin_client::Client::builder(&url)?.tls(tls);
            Ok(builder.client_id(plan.client_id(kind, number)))
        };
        let options = Options {
            samples: true,
            migrate: Some(Duration::from_millis(300)),
            exchange: 2,
            ..Options::default()
        };
        let done = library::run(&plan, &options, &make).expect("a run");
        assert_eq!((done.published, done.expected), (100, 200), "{done}");
        assert_eq!(
            (done.lost, done.duplicated, done.failed),
            (0, 0, 0),
            "{done}"
        );
        assert_eq!(done.received, 200, "{done}");
        assert_eq!((done.samples.len(), done.acknowledged.len()), (100, 100));
        assert!(
            done.samples
                .iter()
                .all(|(topic, sent, came)| *topic < 4 && sent <= came)
        );
        assert!(done.samples.is_sorted_by_key(|(_, sent, _)| *sent));
        assert_eq!(done.latency.count, 200);
        assert_eq!(done.moves > 0, transport == Transport::Quic, "{done}");
    }
}

/// Each scenario of the repository, made small and short: all clients come about, all that
/// was sent arrives, and each population has a row for each of its phases.
#[test]
fn the_scenarios_of_the_repository_run() {
    let broker = Broker::start(2);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/scenarios");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).expect("scenarios") {
        let file = file.expect("an entry").path();
        let port = broker.addr(Transport::Quic).port();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_dunlin"))
            .args(["bench", "--scenario"])
            .arg(&file)
            .args(["--scale", "0.02", "--phase-seconds", "0.5", "--insecure"])
            .args(["--url", &format!("quic://localhost:{port}")])
            .args(["--json", "-"])
            .output()
            .expect("run");
        let errors = String::from_utf8_lossy(&output.stderr);
        let what = file.display();
        assert!(output.status.success(), "{what}: {errors}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let phases = report["phases"].as_array().expect("phases");
        let mut sent = 0;
        for population in report["populations"].as_array().expect("populations") {
            let what = format!("{what}: {population:#}");
            let made = &population["report"];
            assert!(population["failure"].is_null(), "{what}");
            assert_eq!(
                made["connections"]["ready"], made["connections"]["wanted"],
                "{what}"
            );
            let of_phases = made["phases"].as_array().into_iter().flatten();
            for phase in of_phases {
                sent += phase["sent"].as_u64().expect("a number");
                assert_eq!(phase["lost"], 0, "{what}");
            }
        }
        assert!(sent > 0, "{what}: {report:#}");
        for phase in phases {
            let name = phase["name"].as_str().expect("a name");
            assert!(errors.contains(&format!("== {name},")), "{what}: {errors}");
        }
        seen += 1;
    }
    assert!(seen >= 4, "{seen} scenarios");
}

/// A population of the first phase that cannot connect ends the scenario; one of a later
/// phase is named in its result, and the others go on.
#[test]
fn a_population_that_fails_is_named() {
    let broker = Broker::start(1);
    let port = broker.addr(Transport::Tcp).port();
    let dir = tempfile::tempdir().expect("a directory");
    let run = |phases: &str| {
        let text = format!(
            "name = 'x'\n[options]\nurl = 'mqtt://127.0.0.1:{port}'\n\
             [[phase]]\nname = 'a'\nseconds = 0.3\n[[phase]]\nname = 'b'\nseconds = 0.3\n\
             [[population]]\nname = 'good'\nrate = 100\n\
             [[population]]\nname = 'bad'\nphases = {phases}\nurl = 'mqtt://127.0.0.1:1'\n"
        );
        let path = dir.path().join("x.toml");
        std::fs::write(&path, text).expect("written");
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_dunlin"))
            .args(["bench", "--quiet", "--scenario"])
            .arg(&path)
            .output()
            .expect("run");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let (code, text) = run("['b']");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("bad: FAILED: "), "{text}");
    assert!(text.contains("good        b"), "{text}");
    let (code, text) = run("['a']");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("population bad: "), "{text}");
}
