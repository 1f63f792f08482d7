//! Any sequence of operations on two broker shards: clients that connect, send
//! packets or bytes, break off and stop reading, time that passes, a disk that
//! fails, a process that dies. Nothing panics, and when everybody has left and
//! all sessions have expired, nothing is left behind.

use core::time::Duration;

use dunlin_mqtt_codec::Version;
use dunlin_sim::{Fault, Script, Setup, encode};

/// Clients.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// CONNECTs; two clients may use one identifier.
const CONNECTS: [&str; 10] = [
    "CONNECT a clean",
    "CONNECT a expiry=20",
    "CONNECT b expiry=90 rm=2 aliases=2",
    "CONNECT b v4",
    "CONNECT c v4 clean will=t/1:gone wq=1",
    "CONNECT c expiry=50 will=t/2:gone wdelay=10 wretain wq=2",
    "CONNECT d clean keep=10 max=40",
    "CONNECT - clean",
    "CONNECT d expiry=5 keep=5",
    "CONNECT a clean auth=SCRAM-SHA-256 data=n,,n=u,r=x",
];

/// Packets; `ID` is replaced.
const PACKETS: [&str; 24] = [
    "SUBSCRIBE ID t/+|q1",
    "SUBSCRIBE ID t/#|q2 sub=3",
    "SUBSCRIBE ID $share/g/t/+|q2",
    "SUBSCRIBE ID $share/g/t/1|q1 t/1|nl|rap|q2",
    "UNSUBSCRIBE ID t/+ $share/g/t/+",
    "UNSUBSCRIBE ID t/# $share/g/t/1",
    "PUBLISH t/1 x",
    "PUBLISH t/1 x q1 #ID",
    "PUBLISH t/2 x q2 #ID",
    "PUBLISH t/1 x q2 #ID dup",
    "PUBLISH t/2 kept q1 #ID retain",
    "PUBLISH t/2 kept retain",
    "PUBLISH t/2 - q2 #ID retain",
    "PUBLISH t/3 x q1 #ID expiry=3",
    "PUBLISH t/1 x alias=1",
    "PUBLISH - x alias=1 q1 #ID",
    "PUBACK ID",
    "PUBREC ID",
    "PUBREL ID",
    "PUBCOMP ID",
    "PUBREC ID 0x80",
    "PINGREQ",
    "DISCONNECT",
    "DISCONNECT 0x04",
];

/// One input.
pub(crate) fn run(data: &[u8]) {
    let mut input = data.iter().copied();
    let mut setup = Setup::new(2, u64::from(input.next().unwrap_or_default()));
    // Small, so that limits are met and everything ends.
    setup.config.sessions.session_expiry_secs_max = 100;
    setup.config.sessions.queue_messages_max = 6;
    setup.config.sessions.queue_held_max = 2;
    setup.config.clients.receive_maximum = 5;
    setup.config.retained_max = 1;
    setup.config.clients.data_streams_max = 2;
    setup.config.sending.send_backlog_bytes = 100;
    setup.config.sending.qos0_backlog_bytes = 200;
    let mut script = Script::new(setup);
    while let Some(op) = input.next() {
        operate(&mut script, op, &mut input);
        forget(&mut script);
    }
    script.world.disk.fault = Fault::None;
    for name in NAMES {
        let _ = script.step(&format!("{name} cut"));
        forget(&mut script);
    }
    script.settle();
    script.run_for(Duration::from_secs(300));
    let mut census = script.world.census();
    census.retained = 0;
    assert_eq!(census, dunlin_broker::Census::default(), "left behind");
    assert_eq!(script.world.disk.stored_messages(), 0, "left in the store");
    assert!(
        script.world.disk.recover().sessions.is_empty(),
        "left in the store"
    );
}

/// What the clients were sent is not looked at.
fn forget(script: &mut Script) {
    for name in NAMES {
        while script.pop(name).is_some() {}
    }
}

fn operate(script: &mut Script, op: u8, input: &mut impl Iterator<Item = u8>) {
    let name = NAMES[usize::from(op & 3)];
    let mut byte = || input.next().unwrap_or_default();
    match op >> 2 {
        0..=7 => {
            let line = CONNECTS[usize::from(byte()) % CONNECTS.len()];
            script.send_line(name, line);
        }
        8..=35 => {
            let choice = byte();
            let id = 1 + (choice >> 5) % 4;
            let line = PACKETS[usize::from(choice & 31) % PACKETS.len()];
            script.send_line(name, &line.replace("ID", &id.to_string()));
            if op & 4 != 0 {
                script.settle();
            }
        }
        36..=39 => {
            let len = byte() % 32;
            let bytes: Vec<u8> = (0..len).map(|_| byte()).collect();
            script.send_bytes(&format!("{name}@{}", (op & 4) * 2), &bytes);
        }
        40..=42 => {
            let bytes = encode(
                PACKETS[usize::from(byte()) % 4].replace("ID", "9").as_str(),
                Version::V5,
            );
            script.send_bytes(&format!("{name}@4"), &bytes);
        }
        43..=47 => drop(script.step(&format!("{name} cut"))),
        48 => drop(script.step(&format!("{name} finish"))),
        49 => drop(script.step(&format!("{name} stall"))),
        50 => drop(script.step(&format!("{name} read"))),
        51..=54 => script.run_for(Duration::from_millis(u64::from(byte()))),
        55..=57 => script.run_for(Duration::from_secs(u64::from(byte() % 64))),
        58 => script.world.disk.fault = Fault::Full,
        59 => script.world.disk.fault = Fault::Broken,
        60 | 61 => script.world.disk.fault = Fault::None,
        62 => {
            script.world.crash();
            script.settle();
        }
        _ => script.settle(),
    }
}
