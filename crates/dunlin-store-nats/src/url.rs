//! A URL of a server, and the user in it.

/// A server, and who connects to it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// Without user and password.
    pub(crate) url: String,
    /// User and password, as the server knows them.
    pub(crate) user: Option<(String, String)>,
}

impl Server {
    /// Of a URL such as `nats://user:password@host:port`. In a user and a password, `%` and
    /// two hexadecimal digits are one byte.
    pub(crate) fn of(url: &str) -> Self {
        let (scheme, rest) = match url.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None => ("", url),
        };
        let (user, host) = match rest.rsplit_once('@') {
            Some((user, host)) => (user.split_once(':'), host),
            None => (None, rest),
        };
        Self {
            url: match scheme {
                "" => host.to_owned(),
                scheme => format!("{scheme}://{host}"),
            },
            user: user.map(|(user, password)| (decoded(user), decoded(password))),
        }
    }
}

/// With `%` and two digits as the byte that they say. Another `%` stays.
fn decoded(text: &str) -> String {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let value = match byte {
            b'%' => digit(ahead.next()).zip(digit(ahead.next())),
            _ => None,
        };
        let value = value.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        if value.is_some() {
            bytes = ahead;
        }
        out.push(value.unwrap_or(byte));
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_taken_out_of_urls() {
        let user = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        for (text, url, found) in [
            ("nats://a:b@h:1", "nats://h:1", user("a", "b")),
            ("tls://a:p@ss@h", "tls://h", user("a", "p@ss")),
            ("a:b@h:2", "h:2", user("a", "b")),
            ("nats://h", "nats://h", None),
            (
                "nats://a%40b:p%2Fq%3a%25@h",
                "nats://h",
                user("a@b", "p/q:%"),
            ),
            ("nats://a:50%@h", "nats://h", user("a", "50%")),
            ("nats://a:%zz%4@h", "nats://h", user("a", "%zz%4")),
            ("nats://a:%C3%BC@h", "nats://h", user("a", "\u{fc}")),
        ] {
            let server = Server::of(text);
            assert_eq!(server.url, url, "{text}");
            assert_eq!(server.user, found, "{text}");
        }
    }
}
