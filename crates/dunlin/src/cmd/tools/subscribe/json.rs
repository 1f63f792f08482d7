//! A message as JSON, in mosquitto_sub's words and order.

use std::io;

use dunlin_client::Message;

use super::context::Context;

/// One object. With `embed` the payload is itself JSON and goes in as it is.
pub(super) fn message(message: &Message, context: &Context, embed: bool) -> io::Result<Vec<u8>> {
    let mut object = Object::new(context.pretty, 1);
    object.text("tst", context.now.iso_8601_micros().as_bytes());
    object.text("topic", message.topic.as_bytes());
    object.number("qos", message.qos as u32);
    object.number("retain", u32::from(message.retain));
    object.number("payloadlen", message.payload.len());
    if let Some(id) = message.packet_id {
        object.number("mid", id);
    }
    if let Some(properties) = properties(message, context.pretty) {
        object.raw("properties", &properties);
    }
    if embed {
        serde_json::from_slice::<serde::de::IgnoredAny>(&message.payload)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        object.raw("payload", &message.payload);
    } else {
        object.text("payload", &message.payload);
    }
    Ok(object.end())
}

fn properties(message: &Message, pretty: bool) -> Option<Vec<u8>> {
    let mut object = Object::new(pretty, 2);
    if let Some(properties) = message.properties.as_deref() {
        if !properties.user_properties.is_empty() {
            let mut users = Object::new(pretty, 3);
            for (name, value) in &properties.user_properties {
                users.text(name, value.as_bytes());
            }
            object.raw("user-properties", &users.end());
        }
        if let Some(text) = &properties.content_type {
            object.text("content-type", text.as_bytes());
        }
        if let Some(text) = &properties.response_topic {
            object.text("response-topic", text.as_bytes());
        }
        if let Some(data) = &properties.correlation_data {
            object.text("correlation-data", data);
        }
        if let Some(utf8) = properties.payload_is_utf8 {
            object.number("payload-format-indicator", u32::from(utf8));
        }
    }
    if let Some(expiry) = message.expires_in {
        object.number("message-expiry-interval", expiry.as_secs());
    }
    if let Some(id) = message.subscription_ids.first() {
        object.number("subscription-identifier", id);
    }
    (!object.is_empty).then(|| object.end())
}

/// An object under construction.
struct Object {
    out: Vec<u8>,
    pretty: bool,
    depth: usize,
    is_empty: bool,
}

impl Object {
    fn new(pretty: bool, depth: usize) -> Self {
        Self {
            out: vec![b'{'],
            pretty,
            depth,
            is_empty: true,
        }
    }

    fn key(&mut self, key: &str) {
        if !core::mem::replace(&mut self.is_empty, false) {
            self.out.push(b',');
        }
        self.indent(self.depth);
        put_text(key.as_bytes(), &mut self.out);
        self.out.push(b':');
        if self.pretty {
            self.out.push(b'\t');
        }
    }

    fn text(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        put_text(value, &mut self.out);
    }

    fn number(&mut self, key: &str, value: impl ToString) {
        self.raw(key, value.to_string().as_bytes());
    }

    fn raw(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        self.out.extend_from_slice(value);
    }

    fn end(mut self) -> Vec<u8> {
        if !self.is_empty {
            self.indent(self.depth - 1);
        }
        self.out.push(b'}');
        self.out
    }

    fn indent(&mut self, depth: usize) {
        if self.pretty {
            self.out.push(b'\n');
            self.out.extend(core::iter::repeat_n(b'\t', depth));
        }
    }
}

/// A JSON string. Bytes that are not UTF-8 become U+FFFD: JSON has no bytes.
fn put_text(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for char in String::from_utf8_lossy(bytes).chars() {
        match char {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\x08' => out.extend_from_slice(b"\\b"),
            '\x0c' => out.extend_from_slice(b"\\f"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            char if char < ' ' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(char)).as_bytes());
            }
            char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        let mut out = Vec::new();
        put_text(b"a\"b\\c\n\x01\xc3\xa9\xff", &mut out);
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(text, "\"a\\\"b\\\\c\\n\\u0001\u{e9}\u{fffd}\"");
    }

    #[test]
    fn objects_nest() {
        let mut inner = Object::new(true, 2);
        inner.text("b", b"c");
        let mut outer = Object::new(true, 1);
        outer.number("n", 1);
        outer.raw("a", &inner.end());
        let text = String::from_utf8(outer.end()).expect("UTF-8");
        assert_eq!(
            text,
            "{\n\t\"n\":\t1,\n\t\"a\":\t{\n\t\t\"b\":\t\"c\"\n\t}\n}"
        );
    }
}
