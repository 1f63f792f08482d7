//! Values of a configuration as they are shown: without what is secret in them.

/// Ends of keys whose values are secrets.
const SECRET: [&str; 4] = ["password", "secret", "token", "passphrase"];

/// What is shown in the place of a secret.
pub(crate) const HIDDEN: &str = "(hidden)";

/// A value without what is secret in it.
pub(crate) fn hide(key: &str, value: &str) -> String {
    let name = key.rsplit('.').next().unwrap_or_default();
    if SECRET.contains(&name) {
        return HIDDEN.to_owned();
    }
    let Some((scheme, rest)) = value.split_once("://") else {
        return value.to_owned();
    };
    // A query may have a key of the server that is asked.
    let (rest, query) = match rest.split_once('?') {
        // A password may have a question mark.
        Some((_, query)) if query.contains('@') => return format!("{scheme}://{HIDDEN}"),
        Some((rest, _)) => (rest, format!("?{HIDDEN}")),
        None => (rest, String::new()),
    };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}{query}"),
        None => format!("{scheme}://{rest}{query}"),
    }
}
