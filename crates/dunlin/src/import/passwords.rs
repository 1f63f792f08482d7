//! mosquitto's password file: which of its lines are good here.

use std::collections::BTreeSet;
use std::path::Path;

use super::Remark;
use super::lines::Place;
use crate::auth::passwords::Passwords;

/// The lines that can be used, and why the others cannot.
pub(super) fn sort(path: &Path, text: &str) -> (String, Vec<Remark>) {
    let (mut good, mut bad) = (String::new(), Vec::new());
    let mut users = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        let is_comment = trimmed.is_empty() || trimmed.starts_with('#');
        let (user, hash) = trimmed.split_once(':').unwrap_or((trimmed, ""));
        let is_new = is_comment || users.insert(user);
        if is_comment || (is_new && Passwords::is_line(line)) {
            good.push_str(line);
            good.push('\n');
            continue;
        }
        let why = match hash {
            _ if !is_new => "the user has a line already",
            _ if user.is_empty() || hash.is_empty() => "the line has no password",
            _ if hash.starts_with("$6$") => {
                "a hash of one round (SHA-512): give the user a new password with `dunlin passwd`"
            }
            _ if hash.starts_with("$argon2") => {
                "an Argon2 hash: give the user a new password with `dunlin passwd`"
            }
            // It may be the password itself, which is not repeated.
            _ => "no hash that is known: give the user a new password with `dunlin passwd`",
        };
        bad.push(Remark {
            at: Some(Place {
                file: path.to_owned(),
                line: index + 1,
            }),
            option: format!("user {user}"),
            why: why.to_owned(),
        });
    }
    (good, bad)
}
