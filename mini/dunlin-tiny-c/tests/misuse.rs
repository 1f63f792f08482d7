//! Calls as a careless program makes them: each is refused with its code, and
//! nothing is read or written that is not there.

#![allow(clippy::unwrap_used)]

use core::ffi::{CStr, c_void};
use core::ptr;

use dunlin_mini_crypto::{Crypto, Tiny};
use dunlin_tiny_c::api::{
    DUNLIN_STATE_SIZE, Handle, dunlin_connect, dunlin_disconnect, dunlin_error_text,
    dunlin_migrate, dunlin_new, dunlin_peer_code, dunlin_publish, dunlin_reason,
    dunlin_reason_text, dunlin_run, dunlin_size, dunlin_status, dunlin_subscribe, dunlin_ticket,
    dunlin_unsubscribe, dunlin_update_keys,
};
use dunlin_tiny_c::codes::Code;
use dunlin_tiny_c::types::{Bytes, Connect, Phase, Port, Publish, Room, Rooms};

const NONE: Bytes = Bytes {
    data: ptr::null(),
    len: 0,
};

/// What the callbacks of a test know.
struct World {
    client: *mut Handle,
    /// What the library said to a call from inside of a callback.
    inside: Option<Code>,
    sent: usize,
    entropy: bool,
    now: u32,
}

unsafe extern "C" fn send(context: *mut c_void, _: *const u8, len: usize) {
    // SAFETY: the context of these tests.
    let world = unsafe { &mut *context.cast::<World>() };
    world.sent += len;
    // SAFETY: a client, and no place for the time.
    world.inside = Some(unsafe { dunlin_run(world.client, ptr::null_mut()) });
}

unsafe extern "C" fn receive(_: *mut c_void, _: *mut u8, room: usize) -> usize {
    // More than there is room for, which is a mistake and dropped.
    room + 1
}

unsafe extern "C" fn now(context: *mut c_void) -> u32 {
    // SAFETY: the context of these tests.
    unsafe { (*context.cast::<World>()).now }
}

unsafe extern "C" fn random(context: *mut c_void, data: *mut u8, len: usize) -> bool {
    // SAFETY: the buffer of the library.
    unsafe { ptr::write_bytes(data, 7, len) };
    // SAFETY: the context of these tests.
    unsafe { (*context.cast::<World>()).entropy }
}

/// Memory for one client that stays until the process ends.
fn room(len: usize) -> Room {
    let memory: &'static mut [u64] = vec![0; len.div_ceil(8)].leak();
    Room {
        data: memory.as_mut_ptr().cast(),
        len,
    }
}

fn rooms() -> Rooms {
    Rooms {
        hello: room(768),
        handshake: room(2048),
        send: room(512),
        receive: room(512),
        datagram: room(1472),
    }
}

fn world() -> *mut World {
    Box::leak(Box::new(World {
        client: ptr::null_mut(),
        inside: None,
        sent: 0,
        entropy: true,
        now: 5,
    }))
}

fn port(world: *mut World) -> Port {
    Port {
        context: world.cast(),
        send: Some(send),
        receive: Some(receive),
        now: Some(now),
        random: Some(random),
        event: None,
    }
}

fn make(memory: Room, port: &Port, rooms: &Rooms) -> (Code, *mut Handle) {
    let mut client = ptr::null_mut();
    // SAFETY: memory of this test that stays.
    let code = unsafe { dunlin_new(memory, port, rooms, &raw mut client) };
    (code, client)
}

fn client() -> (*mut Handle, *mut World) {
    let world = world();
    let (code, client) = make(room(DUNLIN_STATE_SIZE), &port(world), &rooms());
    assert_eq!(code, Code::Ok);
    // SAFETY: of this test.
    unsafe { (*world).client = client };
    (client, world)
}

static KEY: [u8; 65] = [4; 65];

const fn how(keys: &'static [u8]) -> Connect {
    Connect {
        keys: Bytes {
            data: keys.as_ptr(),
            len: keys.len(),
        },
        authority: NONE,
        name: NONE,
        address: NONE,
        unix_time: 0,
        idle_ms: 1000,
        ticket: NONE,
        ticket_age_ms: 0,
        early: false,
        certificates: NONE,
        private_key: NONE,
        client_id: NONE,
        user: NONE,
        password: NONE,
        keep_alive: 0,
        expiry: 0,
        will: ptr::null(),
        will_delay: 0,
    }
}

const fn bytes(text: &'static [u8]) -> Bytes {
    Bytes {
        data: text.as_ptr(),
        len: text.len(),
    }
}

/// Bytes that are not there.
const NOWHERE: Bytes = Bytes {
    data: ptr::null(),
    len: 5,
};

/// As of a program that takes -1 for a length.
const NEGATIVE: Bytes = Bytes {
    data: &raw const KEY[0],
    len: usize::MAX,
};

const MESSAGE: Publish = Publish {
    topic: bytes(b"a"),
    payload: NONE,
    qos: 1,
    retain: false,
    again: 0,
    alias: 0,
};

#[test]
fn null_is_refused_everywhere() {
    let no_place = Room {
        data: ptr::null_mut(),
        len: 0,
    };
    let client: *mut Handle = ptr::null_mut();
    let mut id = 0;
    // SAFETY: null is allowed everywhere, which is what is tested.
    let codes = unsafe {
        [
            dunlin_new(no_place, ptr::null(), ptr::null(), ptr::null_mut()),
            dunlin_connect(client, ptr::null()),
            dunlin_connect(client, &how(&KEY)),
            dunlin_run(client, ptr::null_mut()),
            dunlin_publish(client, ptr::null(), ptr::null_mut()),
            dunlin_publish(client, &MESSAGE, &raw mut id),
            dunlin_subscribe(client, bytes(b"a"), 0, ptr::null_mut()),
            dunlin_unsubscribe(client, bytes(b"a"), ptr::null_mut()),
            dunlin_disconnect(client),
            dunlin_ticket(client, no_place, ptr::null_mut()),
            dunlin_migrate(client),
            dunlin_update_keys(client),
        ]
    };
    assert_eq!(codes, [Code::NullPointer; 12]);
    // SAFETY: as above.
    let (phase, reason) = unsafe { (dunlin_status(client), dunlin_reason(client)) };
    assert_eq!((phase, reason), (Phase::Idle, 0));
    // SAFETY: as above.
    assert_eq!(unsafe { dunlin_peer_code(client) }, 0);
}

#[test]
fn bytes_that_are_not_there() {
    let (client, _) = client();
    let place = ptr::null_mut();
    let mut id = 7;
    // SAFETY: a client; nothing is read where there is nothing.
    unsafe {
        let message = |topic, payload| Publish {
            topic,
            payload,
            ..MESSAGE
        };
        for (message, code) in [
            (message(NONE, NONE), Code::NoTopic),
            (message(NOWHERE, NONE), Code::NullPointer),
            // Not an empty message, which would delete a kept one.
            (message(MESSAGE.topic, NOWHERE), Code::NullPointer),
            (message(NEGATIVE, NONE), Code::TooLarge),
            (message(MESSAGE.topic, NEGATIVE), Code::TooLarge),
        ] {
            assert_eq!(dunlin_publish(client, &message, &raw mut id), code);
            assert_eq!(id, 0);
        }
        for (filter, code) in [
            (NONE, Code::NoTopic),
            (NOWHERE, Code::NullPointer),
            (NEGATIVE, Code::TooLarge),
        ] {
            assert_eq!(dunlin_subscribe(client, filter, 1, place), code);
            assert_eq!(dunlin_unsubscribe(client, filter, place), code);
        }
        let good = how(&KEY);
        for wrong in [
            Connect {
                keys: NOWHERE,
                ..good
            },
            Connect {
                name: NOWHERE,
                ..good
            },
            Connect {
                ticket: NOWHERE,
                ..good
            },
            Connect {
                client_id: NOWHERE,
                ..good
            },
            Connect {
                user: NOWHERE,
                ..good
            },
            Connect {
                password: NOWHERE,
                ..good
            },
            Connect {
                will: &message(MESSAGE.topic, NOWHERE),
                ..good
            },
        ] {
            assert_eq!(dunlin_connect(client, &good), Code::Ok);
            assert_eq!(dunlin_connect(client, &wrong), Code::NullPointer);
            assert_eq!(dunlin_status(client), Phase::Idle, "it is forgotten");
        }
        let no_topic = Connect {
            will: &message(NONE, NONE),
            ..good
        };
        assert_eq!(dunlin_connect(client, &no_topic), Code::NoTopic);
    }
    let port = port(world());
    let (nowhere, negative) = (
        Room {
            data: ptr::null_mut(),
            len: 512,
        },
        Room {
            len: usize::MAX,
            ..room(8)
        },
    );
    for (send, code) in [(nowhere, Code::NullPointer), (negative, Code::Memory)] {
        let rooms = Rooms { send, ..rooms() };
        let (made, client) = make(room(DUNLIN_STATE_SIZE), &port, &rooms);
        assert_eq!(made, code);
        assert!(client.is_null(), "left alone");
    }
}

#[test]
fn every_number_has_a_text() {
    let text = |code| {
        // SAFETY: a string that ends and stays.
        unsafe { CStr::from_ptr(dunlin_error_text(code)) }
    };
    assert_eq!(text(0), c"done");
    assert_eq!(text(99), c"the server's key is not among the pinned ones");
    assert_eq!(
        text(Code::NoTopic as u8),
        c"a topic or a topic filter is empty"
    );
    assert_eq!(text(255), c"an unknown error");
    // SAFETY: as above.
    let reason = unsafe { CStr::from_ptr(dunlin_reason_text(0x87)) };
    assert_eq!(reason, c"not authorized");
}

#[test]
fn memory_that_does_not_do() {
    let port = port(world());
    let (few, _) = make(room(dunlin_size() - 1), &port, &rooms());
    assert_eq!(few, Code::Memory);
    let mut odd = room(DUNLIN_STATE_SIZE + 8);
    odd.data = odd.data.wrapping_add(1);
    assert_eq!(make(odd, &port, &rooms()).0, Code::Memory);
    let mut small = rooms();
    small.datagram.len = 1199;
    let (code, _) = make(room(DUNLIN_STATE_SIZE), &port, &small);
    assert_eq!(code, Code::Memory);
    let mut deaf = port;
    deaf.receive = None;
    let (code, _) = make(room(DUNLIN_STATE_SIZE), &deaf, &rooms());
    assert_eq!(code, Code::NullPointer);
    // No room for the first message.
    let mut small = rooms();
    small.hello.len = 100;
    let (_, client) = make(room(DUNLIN_STATE_SIZE), &port, &small);
    // SAFETY: a client.
    assert_eq!(unsafe { dunlin_connect(client, &how(&KEY)) }, Code::Memory);
}

#[test]
fn keys_that_do_not_do() {
    let (client, _) = client();
    static SHORT: [u8; 64] = [4; 64];
    // SAFETY: a client, and keys that stay.
    unsafe {
        assert_eq!(dunlin_connect(client, &how(&SHORT)), Code::KeyLength);
        assert_eq!(dunlin_connect(client, &how(&[])), Code::NoKey);
        let mut authority = how(&[]);
        authority.authority = how(&SHORT).keys;
        assert_eq!(dunlin_connect(client, &authority), Code::KeyLength);
        authority.authority = how(&KEY).keys;
        (authority.name, authority.address) = (NONE, NONE);
        assert_eq!(dunlin_connect(client, &authority), Code::NoName);
        authority.address = bytes(b"127.0.0.1");
        assert_eq!(dunlin_connect(client, &authority), Code::NoName);
        authority.address = bytes(&[127, 0, 0, 1]);
        assert_eq!(dunlin_connect(client, &authority), Code::Ok);
        assert_eq!(dunlin_connect(client, ptr::null()), Code::NullPointer);
        assert_eq!(dunlin_status(client), Phase::Connecting, "as it was");
        assert_eq!(dunlin_connect(client, &how(&[])), Code::NoKey);
        assert_eq!(dunlin_status(client), Phase::Idle);
    }
}

#[test]
fn certificates_come_with_a_key_of_32_bytes() {
    let (client, _) = client();
    let mut how = how(&KEY);
    how.certificates = bytes(&[0x30, 0]);
    for (key, code) in [(31, Code::KeyLength), (32, Code::Ok), (33, Code::KeyLength)] {
        how.private_key = bytes(&KEY[..key]);
        let shows = cfg!(feature = "client-certificate");
        let code = if shows { code } else { Code::NoIdentity };
        // SAFETY: a client, and memory of this test.
        assert_eq!(unsafe { dunlin_connect(client, &how) }, code);
    }
}

#[test]
fn calls_at_the_wrong_time() {
    let (client, world) = client();
    let mut sleep = 0;
    let mut len = 9;
    // SAFETY: a client, and memory of this test.
    unsafe {
        assert_eq!(dunlin_run(client, &raw mut sleep), Code::SessionState);
        assert_eq!(dunlin_disconnect(client), Code::SessionState);
        let published = dunlin_publish(client, &MESSAGE, ptr::null_mut());
        assert_eq!(published, Code::SessionState);
        assert_eq!(dunlin_migrate(client), Code::State);
        assert_eq!(dunlin_update_keys(client), Code::State);
        assert_eq!(dunlin_ticket(client, room(8), &raw mut len), Code::Ok);
        assert_eq!(len, 0, "there is none");

        assert_eq!(dunlin_connect(client, &how(&KEY)), Code::Ok);
        assert_eq!(dunlin_status(client), Phase::Connecting);
        assert_eq!(dunlin_run(client, &raw mut sleep), Code::Ok);
        assert!(sleep > 0 && (*world).sent >= 1200);
        assert_eq!((*world).inside, Some(Code::Busy), "from a callback");
        let odd = Publish { qos: 3, ..MESSAGE };
        assert_eq!(dunlin_publish(client, &odd, ptr::null_mut()), Code::Qos);
        // Before the handshake there is nothing to disconnect from.
        assert_eq!(dunlin_disconnect(client), Code::Ok);
        assert_eq!(dunlin_run(client, &raw mut sleep), Code::Ok);
        assert_eq!(dunlin_status(client), Phase::Closed);
        // And once more, in the same memory.
        (*world).entropy = false;
        assert_eq!(dunlin_connect(client, &how(&KEY)), Code::Entropy);
        (*world).entropy = true;
        assert_eq!(dunlin_connect(client, &how(&KEY)), Code::Ok);
    }
}

#[test]
fn nothing_is_due_while_the_broker_is_silent() {
    // A ticket that allows early data: CONNECT goes out with the hello.
    let mut ticket = vec![2, 1, 0, 0, 255, 255, 0, 0, 0, 1];
    ticket.extend([5; 32]);
    // No name, the protocol, and the key that is believed.
    let mut crypto = Tiny::new(|_: &mut [u8]| Ok(()));
    let mut hash = crypto.hash();
    let len = |len: usize| len.to_le_bytes();
    for part in [&len(0)[..], &len(4), b"mqtt", &KEY] {
        crypto.update(&mut hash, part);
    }
    ticket.extend(&crypto.finish(hash)[..8]);
    ticket.extend([0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 2, 7, 7]);
    let (client, world) = client();
    let early = Connect {
        ticket: Bytes {
            data: ticket.as_ptr(),
            len: ticket.len(),
        },
        early: true,
        keep_alive: 1,
        idle_ms: 60_000,
        ..how(&KEY)
    };
    let mut sleep = 0;
    // SAFETY: a client, and memory of this test.
    unsafe {
        assert_eq!(dunlin_connect(client, &early), Code::Ok);
        assert_eq!(dunlin_status(client), Phase::Ready);
        for _ in 0..5 {
            assert_eq!(dunlin_run(client, &raw mut sleep), Code::Ok);
            // Its keep alive is of no use before the broker has answered.
            assert!(sleep > 100, "{sleep} at {}", (*world).now);
            (*world).now += sleep;
        }
        // Nor is the one of the connection before.
        assert_eq!(dunlin_connect(client, &how(&KEY)), Code::Ok);
        assert_eq!(dunlin_run(client, &raw mut sleep), Code::Ok);
        assert!(sleep > 100, "{sleep}");
    }
}
