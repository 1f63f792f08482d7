//! Selectors: what is true of a message, what is not, and what is no selector.

use dunlin_amqp::filter::{Selector, Subject};
use dunlin_base::{Instant, MessageProperties, Text};

use crate::message;

fn matches(selector: &Selector) -> bool {
    let message = message();
    let bytes = Subject::bytes(&message, Instant::ZERO);
    selector.matches(&Subject::of(&message, &bytes).unwrap())
}

#[test]
fn true_of_the_message() {
    for text in [
        "TRUE",
        "t",
        "NOT f",
        "a = 5",
        "a = 5.0",
        "5 = a",
        "a <> 4 AND a != 6",
        "a < 6 AND a <= 5 AND a > 4 AND a >= 5",
        "a BETWEEN 5 AND 7",
        "a NOT BETWEEN 6 AND 7",
        "a IN (1, 5)",
        "a IN (-1, 5.0)",
        "s IN ('x', 'it''s 100%')",
        "s NOT IN ('x')",
        "s = 'it''s 100%'",
        "s LIKE 'it%'",
        "s LIKE '%100%'",
        "s LIKE 'it_s _00_'",
        r"s LIKE '%100\%' ESCAPE '\'",
        r"s NOT LIKE '%1\%' ESCAPE '\'",
        "a + 1 * 2 = 7",
        "(a + 1) * 2 = 12",
        "-a = -5",
        "a - 1 - 1 = 3",
        "a / 2 = 2",
        "a / 2.0 = b",
        "a % 2 = 1",
        "b = 2.5 AND b > 2",
        "2.5E0 = b AND .25e+1 = b AND 25e-1D = b",
        "0x05 = a AND 5L = a",
        "missing IS NULL",
        "\"null\" IS NULL",
        "a IS NOT NULL",
        "NOT (missing IS NOT NULL)",
        "missing = 1 OR a = 5",
        "a = 5 or not t and f",
        "JMSPriority = 7",
        "JMSDeliveryMode = 'PERSISTENT'",
        "JMSMessageID = 'ID:1'",
        "JMSType LIKE 'temp%'",
        "JMSTimestamp = 1000",
        "JMSXUserID = 'me'",
        "JMSXGroupID = 'g'",
        "\"m.x-opt-n\" = 3",
        "x.y > 9223372036854775807",
        "\"and\" = 1",
        "[and] = 1",
        "$m IS NULL AND _ü IS NULL",
    ] {
        let selector = Selector::parse(text);
        let selector = selector.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(matches(&selector), "{text}");
    }
}

#[test]
fn not_true_of_the_message() {
    for text in [
        "FALSE",
        "f",
        "NOT t",
        "a",
        "missing",
        "NOT missing",
        "missing = 1",
        "missing <> 1",
        "NOT missing = 1",
        "missing = 1 AND t",
        "missing IN (1)",
        "missing NOT IN (1)",
        "missing LIKE '%'",
        "missing NOT LIKE '%'",
        "missing BETWEEN 1 AND 2",
        "a = '5'",
        "a <> '5'",
        "s > 'a'",
        "t > f",
        "bytes = 'x'",
        "JMSCorrelationID = '01010101-0101-0101-0101-010101010101'",
        "a / 0 = 0",
        "a + 's' = 5",
        "s LIKE 'it'",
        "s LIKE '%101%'",
        "A = 5",
        "jmspriority = 7",
    ] {
        let selector = Selector::parse(text);
        let selector = selector.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(!matches(&selector), "{text}");
    }
}

#[test]
fn no_selectors() {
    for text in [
        "",
        " ",
        "a =",
        "= a",
        "a = = 5",
        "a = 5 5",
        "(a = 5",
        "a = 5)",
        "a BETWEEN 1",
        "a IN ()",
        "a IN (b)",
        "a IN (1,)",
        "s LIKE a",
        "s LIKE 'a' ESCAPE ''",
        "s LIKE 'a' ESCAPE 'ab'",
        r"s LIKE 'a\' ESCAPE '\'",
        "a IS 5",
        "a NOT 5",
        "NOT",
        "AND",
        "a = 1 OR LIKE",
        "'open",
        "\"open",
        "[open",
        "a = 1x",
        "a = 1.5L",
        "a = 99999999999999999999",
        "a = 0x",
        "a ; b",
        "a = #",
    ] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn names_of_sql_filters() {
    for (text, is_match) in [
        ("properties.subject = 'temperature'", true),
        (
            "p.message_id = 'ID:1' AND p.content_type LIKE 'text/%'",
            true,
        ),
        ("header.priority > 6 AND h.durable", true),
        ("application_properties.a = 5 AND a.b = 2.5", true),
        ("message_annotations.n IS NULL", true),
        ("a = 5", true),
        ("p.nothing IS NULL AND header.ttl IS NULL", true),
        ("JMSPriority = 7", false),
    ] {
        assert_eq!(
            matches(&Selector::parse_sql(text).unwrap()),
            is_match,
            "{text}"
        );
    }
}

#[test]
fn a_message_of_mqtt_has_fields_too() {
    let mut message = message();
    message.extra = None;
    message.properties = Some(Box::new(MessageProperties {
        content_type: Some(Text::from("text/plain")),
        user_properties: vec![(Text::from("unit"), Text::from("K"))],
        ..MessageProperties::default()
    }));
    let bytes = Subject::bytes(&message, Instant::ZERO);
    let subject = Subject::of(&message, &bytes).unwrap();
    let text = "unit = 'K' AND JMSDestination = 'q' AND JMSDeliveryMode = 'PERSISTENT'";
    assert!(Selector::parse(text).unwrap().matches(&subject));
}
