//! Clients and links that the configuration sends to another server.

use alloc::string::{String, ToString};
use alloc::vec;

use dunlin_amqp::Event;
use dunlin_amqp::codec::{Attach, Error, Source, Symbols, Target, capability};
use dunlin_base::Text;

use super::amqp::{Client, OPEN, World, conn, receiver, sender};
use crate::config::{LinkRedirect, Redirect, Server};

fn world(redirect: Redirect) -> World {
    World::configured(2, OPEN, move |config| config.redirect = redirect.clone())
}

fn two() -> Server {
    Server {
        host: Text::from("two.example"),
        port: 5671,
    }
}

/// Condition, host, port and address of an error.
fn there(error: &Error<'_>) -> (String, String, u64, Option<String>) {
    let info = error.info.expect("where");
    let text = |name| Some(info.get(name)?.as_str()?.to_string());
    assert_eq!(text("hostname"), text("network-host"));
    let port = info.get("port").and_then(|port| port.as_u64());
    let host = text("network-host").expect("a host");
    let condition = error.condition.as_str().to_string();
    (condition, host, port.expect("a port"), text("address"))
}

/// Where a link was sent that was attached last; `None`: nowhere.
fn sent_to(client: &mut Client) -> Option<(String, String, u64, Option<String>)> {
    let detached = client.events.iter().find_map(|event| match event {
        Event::Detached { error, .. } => error.clone(),
        _ => None,
    });
    client.events.clear();
    detached.map(|error| there(&error.get()))
}

#[test]
fn links_to_some_addresses_are_for_another_server() {
    let link = |filter, address: Option<&str>| LinkRedirect {
        filter: Text::from(filter),
        server: two(),
        address: address.map(Text::from),
    };
    let links = vec![link("plant2/#", None), link("/queues/jobs", Some("work"))];
    let mut world = world(Redirect {
        links,
        ..Redirect::default()
    });
    let mut client = Client::new(&mut world, conn(0, 1), None);
    let redirect = |address: Option<&str>| {
        let condition = "amqp:link:redirect".to_string();
        let host = "two.example".to_string();
        Some((condition, host, 5671, address.map(String::from)))
    };
    for (address, expected) in [
        ("plant2/door", redirect(None)),
        ("/topics/plant2/+/x", redirect(None)),
        ("$share/g/plant2/#", redirect(None)),
        ("plant1/door", None),
        ("#", None),
        ("/queues/jobs", redirect(Some("work"))),
        ("/queues/jobs2", None),
    ] {
        let attach = Attach {
            name: address,
            ..receiver(address)
        };
        client.attach(&mut world, &attach);
        assert_eq!(sent_to(&mut client), expected, "{address}");
    }
    let queue = [capability::QUEUE];
    for (name, address, is_queue, expected) in [
        ("a", Some("plant2/door"), false, redirect(None)),
        ("b", Some("plant1/door"), false, None),
        ("c", Some("jobs"), true, redirect(Some("work"))),
        ("d", Some("jobs"), false, None),
        ("e", None, false, None),
    ] {
        let target = Target {
            address,
            capabilities: is_queue.then(|| Symbols::new(&queue)),
            ..Target::default()
        };
        let attach = Attach {
            name,
            ..sender(target)
        };
        client.attach(&mut world, &attach);
        assert_eq!(sent_to(&mut client), expected, "{address:?}");
    }
    // A dynamic node is made here.
    let dynamic = Attach {
        source: Some(Source {
            dynamic: true,
            ..Source::default()
        }),
        ..receiver("")
    };
    client.attach(&mut world, &dynamic);
    assert_eq!(sent_to(&mut client), None);
    world.check();
}

#[test]
fn all_clients_are_for_another_server() {
    let mut world = world(Redirect {
        mqtt: Some(Text::from("two:1883")),
        amqp: Some(two()),
        links: vec![],
    });
    let client = Client::new(&mut world, conn(1, 1), None);
    let closed = client.events.iter().find_map(|event| match event {
        Event::Closed { error, .. } => error.clone(),
        _ => None,
    });
    let found = there(&closed.expect("an error").get());
    let condition = "amqp:connection:redirect".to_string();
    assert_eq!(found, (condition, "two.example".to_string(), 5671, None));
    assert!(world.closed.contains(&conn(1, 1)));
    // MQTT 5.0 says where, 3.1.1 cannot.
    let reference = b"\x1c\x00\x08two:1883";
    let connack = [&[0x20, 14, 0, 0x9c, 11][..], reference].concat();
    for (serial, level, answer) in [(2, 5, &connack[..]), (3, 4, &[0x20, 2, 0, 3])] {
        world.open(conn(0, serial), "mqtt");
        let rest: &[u8] = match level {
            5 => &[0, 0, 1, b'a'],
            _ => &[0, 1, b'a'],
        };
        let head = [0, 4, b'M', b'Q', b'T', b'T', level, 2, 0, 0];
        let packet = [&[0x10, (head.len() + rest.len()) as u8][..], &head, rest].concat();
        world.bytes(conn(0, serial), &packet);
        assert_eq!(world.take_sent(conn(0, serial)), answer, "level {level}");
        assert!(world.closed.contains(&conn(0, serial)));
    }
    let refused: u64 = world
        .shards
        .iter()
        .map(|it| it.stats().clients_refused)
        .sum();
    assert_eq!(refused, 3);
    world.check();
}
