//! What an owner with several streams to one server needs to know.

use super::*;
use crate::client::Owed;

#[test]
fn a_release_differs_from_what_belongs_anywhere() {
    let mut rig = Rig::connected();
    assert_eq!(rig.engine.owed(), None);
    assert_eq!(rig.publish("a", 2), Ok(Some(id(1))));
    rig.expect(&["PUBLISH 1 q2 a"]);
    let mut bytes = Vec::new();
    let packet = parse("PUBREC 1");
    packet.encode(Version::V5, &mut bytes).expect("encode");
    let handled = rig.engine.handle_bytes(rig.now, &bytes);
    assert!(handled.is_ok());
    assert_eq!(rig.engine.owed(), Some(Owed::Release(id(1))));
    rig.expect(&["PUBREL 1"]);
    assert_eq!(rig.engine.owed(), None);
    // One that is not known is answered anywhere.
    rig.hears("PUBREC 7", "Nothing");
    assert_eq!(rig.engine.owed(), Some(Owed::Other));
    rig.expect(&["PUBREL 7 0x92"]);
}

#[test]
fn messages_on_their_own_streams_carry_no_alias() {
    let mut rig = Rig::new(Settings::default());
    rig.connect(&Rig::options());
    rig.connack(false, |p| p.topic_alias_maximum = Some(4));
    rig.engine.use_aliases(false);
    assert_eq!(rig.publish("long/topic", 0), Ok(None));
    rig.expect(&["PUBLISH long/topic"]);
    rig.engine.use_aliases(true);
    assert_eq!(rig.publish("long/topic", 0), Ok(None));
    let lines = rig.sent();
    assert!(
        lines.iter().all(|line| line.contains("alias=")),
        "{lines:?}"
    );
}
