//! Composite types: bytes and the struct that they are, both ways.

use dunlin_amqp_codec::*;

use crate::notation;

fn check(name: &str, bytes: &str, want: Performative<'_>) {
    let bytes = notation::bytes(bytes);
    assert_eq!(Performative::decode(&bytes), Ok((want, &[][..])), "{name}");
    let mut written = Vec::new();
    want.encode(&mut written).unwrap();
    assert_eq!(written, bytes, "{name}");
    assert_eq!(want.encoded_len(), bytes.len(), "{name}");
}

const fn symbol(text: &'static str) -> Symbol<'static> {
    Symbol::from_static(text)
}

#[test]
fn connection() {
    check(
        "open",
        "00 53 10 c0 04 01 a1 01 'c'",
        Open {
            container_id: "c",
            ..Open::default()
        }
        .into(),
    );
    let capabilities = [symbol("a"), symbol("bc")];
    let one = [symbol("x")];
    let properties = [(Value::Symbol(symbol("p")), Value::Bool(true))];
    let open = Open {
        container_id: "c",
        hostname: Some("h"),
        max_frame_size: 512,
        channel_max: 255,
        idle_time_out: Some(1000),
        offered_capabilities: Some(Symbols::new(&capabilities)),
        desired_capabilities: Some(Symbols::new(&one)),
        properties: Some(Map::new(&properties)),
        ..Open::default()
    };
    check(
        "open with everything",
        "00 53 10 c0 {0a a1 01 'c' a1 01 'h' 70 00000200 60 00ff 70 000003e8 40 40 \
         e0 {02 a3 01 'a' 02 'bc'} e0 {01 a3 01 'x'} c1 {02 a3 01 'p' 41}}",
        open.into(),
    );
    let error = Error::new(condition::NOT_FOUND, "no");
    check(
        "close with an error",
        "00 53 18 c0 {01 00 53 1d c0 {02 a3 0e 'amqp:not-found' a1 02 'no'}}",
        Close { error: Some(error) }.into(),
    );
    check("close", "00 53 18 45", Close::default().into());
}

#[test]
fn session() {
    let begin = Begin {
        next_outgoing_id: SerialNumber(u32::MAX),
        incoming_window: 0,
        outgoing_window: 5,
        ..Begin::default()
    };
    check(
        "begin",
        "00 53 11 c0 {04 40 70 ffffffff 43 52 05}",
        begin.into(),
    );
    check(
        "begin that answers",
        "00 53 11 c0 {04 60 0001 70 ffffffff 43 52 05}",
        Begin {
            remote_channel: Some(1),
            ..begin
        }
        .into(),
    );
    check("end", "00 53 17 45", End::default().into());
    check(
        "flow of a session",
        "00 53 13 c0 {04 43 52 01 43 52 02}",
        Flow {
            next_incoming_id: Some(SerialNumber(0)),
            incoming_window: 1,
            next_outgoing_id: SerialNumber(0),
            outgoing_window: 2,
            ..Flow::default()
        }
        .into(),
    );
    check(
        "flow of a link",
        "00 53 13 c0 {09 40 43 43 43 43 43 52 64 40 41}",
        Flow {
            handle: Some(0),
            delivery_count: Some(SerialNumber(0)),
            link_credit: Some(100),
            drain: true,
            ..Flow::default()
        }
        .into(),
    );
}

#[test]
fn attach() {
    let tag = [1, 2];
    let unsettled = [
        (&tag[..], None),
        (
            &tag[..1],
            Some(DeliveryState::Received(Received {
                section_number: 1,
                section_offset: 2,
            })),
        ),
    ];
    let filter_value = Value::String("a = 1");
    let filter = [(
        Value::Symbol(symbol("s")),
        Value::Described(Described::new(
            Descriptor::Code(0x0000_468c_0000_0004),
            &filter_value,
        )),
    )];
    let lifetime = [(
        Value::Symbol(capability::LIFETIME_POLICY),
        LifetimePolicy::DeleteOnClose.value(),
    )];
    let outcomes = [capability::ACCEPTED, capability::REJECTED];
    let attach = Attach {
        name: "l",
        handle: 0,
        role: Role::Receiver,
        snd_settle_mode: SenderSettleMode::Unsettled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        source: Some(Source {
            address: Some("q"),
            durable: TerminusDurability::UnsettledState,
            expiry_policy: TerminusExpiryPolicy::Never,
            timeout: 9,
            distribution_mode: Some(DistributionMode::Copy),
            filter: Some(Map::new(&filter)),
            default_outcome: Some(Outcome::Released),
            outcomes: Some(Symbols::new(&outcomes)),
            ..Source::default()
        }),
        target: Some(AnyTarget::Target(Target {
            dynamic: true,
            dynamic_node_properties: Some(Map::new(&lifetime)),
            ..Target::default()
        })),
        unsettled: Some(Unsettled::new(&unsettled)),
        incomplete_unsettled: true,
        max_message_size: Some(1 << 20),
        ..Attach::default()
    };
    check(
        "attach with everything",
        "00 53 12 c0 {0b a1 01 'l' 43 41 50 00 50 01 \
         00 53 28 c0 {0a a1 01 'q' 52 02 a3 05 'never' 52 09 40 40 a3 04 'copy' \
           c1 {02 a3 01 's' 00 80 0000468c00000004 a1 05 'a = 1'} \
           00 53 26 45 e0 {02 a3 12 'amqp:accepted:list' 12 'amqp:rejected:list'}} \
         00 53 29 c0 {06 40 40 40 40 41 c1 {02 a3 0f 'lifetime-policy' 00 53 2b 45}} \
         c1 {04 a0 02 0102 40 a0 01 01 00 53 23 c0 {02 52 01 53 02}} \
         41 40 80 0000000000100000}",
        attach.into(),
    );
    let mut policies = Vec::new();
    let Some(AnyTarget::Target(target)) = attach.target else {
        panic!("a target");
    };
    for (_, value) in target.dynamic_node_properties.unwrap().iter() {
        policies.extend(LifetimePolicy::from_value(&value));
    }
    assert_eq!(policies, [LifetimePolicy::DeleteOnClose]);
    let capabilities = [capability::LOCAL_TRANSACTIONS];
    let coordinator = Coordinator {
        capabilities: Some(Symbols::new(&capabilities)),
    };
    check(
        "attach to the coordinator",
        "00 53 12 c0 {07 a1 01 't' 43 42 40 40 40 \
         00 53 30 c0 {01 e0 {01 a3 17 'amqp:local-transactions'}}}",
        Attach {
            name: "t",
            target: Some(coordinator.into()),
            ..Attach::default()
        }
        .into(),
    );
    check(
        "detach",
        "00 53 16 c0 {02 43 41}",
        Detach {
            closed: true,
            ..Detach::default()
        }
        .into(),
    );
}

#[test]
fn transfer_has_a_payload() {
    let bytes = notation::bytes("00 53 14 c0 {05 43 52 07 a0 02 0001 43 42} 'payload'");
    let want = Transfer {
        delivery_id: Some(SerialNumber(7)),
        delivery_tag: Some(&[0, 1]),
        message_format: Some(0),
        settled: Some(false),
        ..Transfer::default()
    };
    assert_eq!(
        Performative::decode(&bytes),
        Ok((want.into(), &b"payload"[..]))
    );
    check(
        "transfer in a transaction",
        "00 53 14 c0 {08 43 40 40 40 40 41 40 00 53 34 c0 {01 a0 03 'txn'}}",
        Transfer {
            more: true,
            state: Some(DeliveryState::Transactional(TransactionalState {
                txn_id: b"txn",
                outcome: None,
            })),
            ..Transfer::default()
        }
        .into(),
    );
}

#[test]
fn dispositions() {
    let first = SerialNumber(1);
    let receiver = Disposition {
        role: Role::Receiver,
        first,
        ..Disposition::default()
    };
    let with = |state| {
        Disposition {
            settled: true,
            state: Some(state),
            ..receiver
        }
        .into()
    };
    check(
        "accepted",
        "00 53 15 c0 {05 41 52 01 40 41 00 53 24 45}",
        with(DeliveryState::ACCEPTED),
    );
    check(
        "released",
        "00 53 15 c0 {05 41 52 01 40 41 00 53 26 45}",
        with(DeliveryState::RELEASED),
    );
    check(
        "modified",
        "00 53 15 c0 {05 41 52 01 40 41 00 53 27 c0 {02 41 41}}",
        with(DeliveryState::Outcome(Outcome::Modified(Modified {
            delivery_failed: true,
            undeliverable_here: true,
            message_annotations: None,
        }))),
    );
    check(
        "rejected in a transaction",
        "00 53 15 c0 {05 41 52 01 40 41 00 53 34 c0 {02 a0 01 'x' 00 53 25 45}}",
        with(DeliveryState::Transactional(TransactionalState {
            txn_id: b"x",
            outcome: Some(Outcome::Rejected(Rejected::default())),
        })),
    );
    check(
        "declared",
        "00 53 15 c0 {05 41 52 01 40 41 00 53 33 c0 {01 a0 02 'tx'}}",
        with(DeliveryState::Outcome(Outcome::Declared(Declared {
            txn_id: b"tx",
        }))),
    );
    let number = Value::Uint(1);
    check(
        "a state of an extension",
        "00 53 15 c0 {05 41 52 01 40 41 00 a3 01 'x' 52 01}",
        with(DeliveryState::Other(Described::new(
            Descriptor::Symbol(symbol("x")),
            &number,
        ))),
    );
    check(
        "a range",
        "00 53 15 c0 {03 41 52 01 52 09}",
        Disposition {
            last: Some(SerialNumber(9)),
            ..receiver
        }
        .into(),
    );
}

#[test]
fn transactions() {
    let bytes = notation::bytes("00 53 32 c0 {02 a0 01 'x' 41}");
    let discharge = Discharge {
        txn_id: b"x",
        fail: Some(true),
    };
    assert_eq!(Discharge::decode(&bytes), Ok(discharge));
    assert_eq!(
        Declare::decode(&notation::bytes("00 53 31 45")),
        Ok(Declare::default())
    );
    assert!(Declare::decode(&bytes).is_err());
}

#[test]
fn symbolic_descriptors_and_wide_forms_are_read() {
    let bytes =
        notation::bytes("00 a3 0e 'amqp:open:list' d0 0000000b 00000002 b1 00000001 'c' 40");
    let open = Open {
        container_id: "c",
        ..Open::default()
    };
    assert_eq!(Performative::decode(&bytes), Ok((open.into(), &[][..])));
    let bytes = notation::bytes("00 80 0000000000000018 45");
    assert_eq!(
        Performative::decode(&bytes),
        Ok((Close::default().into(), &[][..]))
    );
    let bytes = notation::bytes("00 a3 12 'amqp:accepted:list' d0 00000004 00000000");
    assert_eq!(DeliveryState::decode(&bytes), Ok(DeliveryState::ACCEPTED));
}

#[test]
fn sasl() {
    let one = [symbol("PLAIN")];
    let two = [symbol("EXTERNAL"), symbol("ANONYMOUS")];
    for (bytes, want) in [
        (
            "00 53 40 c0 {01 e0 {01 a3 05 'PLAIN'}}",
            SaslFrame::from(SaslMechanisms {
                sasl_server_mechanisms: Symbols::new(&one),
            }),
        ),
        (
            "00 53 40 c0 {01 e0 {02 a3 08 'EXTERNAL' 09 'ANONYMOUS'}}",
            SaslMechanisms {
                sasl_server_mechanisms: Symbols::new(&two),
            }
            .into(),
        ),
        (
            "00 53 41 c0 {03 a3 05 'PLAIN' a0 03 00'a'00 a1 01 'h'}",
            SaslInit {
                mechanism: one[0],
                initial_response: Some(b"\0a\0"),
                hostname: Some("h"),
            }
            .into(),
        ),
        (
            "00 53 42 c0 04 01 a0 01 'c'",
            SaslChallenge { challenge: b"c" }.into(),
        ),
        (
            "00 53 43 c0 03 01 a0 00",
            SaslResponse { response: b"" }.into(),
        ),
        (
            "00 53 44 c0 03 01 50 01",
            SaslOutcome {
                code: SaslCode::Auth,
                additional_data: None,
            }
            .into(),
        ),
    ] {
        let bytes = notation::bytes(bytes);
        assert_eq!(SaslFrame::decode(&bytes), Ok(want));
        let mut written = Vec::new();
        want.encode(&mut written).unwrap();
        assert_eq!(written, bytes);
        assert_eq!(want.encoded_len(), bytes.len());
    }
}
