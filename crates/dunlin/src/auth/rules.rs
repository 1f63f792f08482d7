//! Rules, groups and limits that claims of a token, or the answer of a server, have for one
//! client.

use core::str::FromStr;
use std::sync::Arc;

use dunlin_broker::access::OwnRules;
use serde_json::Value;

use crate::config::units::{Size, Span};

/// Longest name of a group.
const GROUP_BYTES_MAX: usize = 256;

/// What is said of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Given<'a> {
    /// What it may do; absent: nothing is said of that.
    pub(super) rules: Option<&'a Value>,
    /// Its groups.
    pub(super) groups: Option<&'a Value>,
    /// How much it may send and have.
    pub(super) limits: Option<&'a Value>,
}

impl Given<'_> {
    /// All of it; `None`: it cannot be read.
    pub(super) fn read(self) -> Option<Option<Arc<OwnRules>>> {
        if self.rules.is_none() && self.groups.is_none() && self.limits.is_none() {
            return Some(None);
        }
        let mut text = match self.rules {
            Some(rules) => read_rules(rules)?,
            None => "open\n".to_owned(),
        };
        self.groups
            .map_or(Some(()), |it| read_groups(it, &mut text))?;
        self.limits
            .map_or(Some(()), |it| read_limits(it, &mut text))?;
        let own = OwnRules::parse(&text).ok()?;
        Some(Some(Arc::new(own)))
    }
}

/// Whether this is the name of a group.
pub(super) fn is_group(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= GROUP_BYTES_MAX && !name.contains(char::is_control)
}

/// Reads groups: a list of names, or one text with words.
fn read_groups(value: &Value, text: &mut String) -> Option<()> {
    let mut push = |name: &str| is_group(name).then(|| *text += &format!("group {name}\n"));
    match value {
        Value::Array(names) => names.iter().try_for_each(|name| push(name.as_str()?)),
        Value::String(words) => words.split_ascii_whitespace().try_for_each(push),
        _ => None,
    }
}

/// Reads limits: an object with the names that a quota of the configuration has.
fn read_limits(value: &Value, text: &mut String) -> Option<()> {
    for (name, value) in value.as_object()? {
        let number = match &**name {
            "messages" | "queue_messages" | "sessions" => value.as_u64(),
            "bytes" | "packet_size" | "queue_bytes" => match value.as_str() {
                Some(text) => Size::from_str(text).ok().map(|size| size.0),
                None => value.as_u64(),
            },
            "burst" | "debt" => match value.as_str() {
                Some(text) => Span::from_str(text).ok().map(|span| span.0),
                None => core::time::Duration::try_from_secs_f64(value.as_f64()?).ok(),
            }
            .and_then(|time| u64::try_from(time.as_millis()).ok()),
            _ => None,
        };
        *text += &format!("limit {name} {}\n", number?);
    }
    Some(())
}

/// Reads rules: an object with lists of topic filters, `pub`, `sub`, `all` and `deny`,
/// or one text with words such as `pub:a/#`, among which others may stand. `None`: it
/// is neither, or has a filter that is none.
fn read_rules(value: &Value) -> Option<String> {
    let mut text = String::new();
    match value {
        Value::Object(lists) => {
            for (name, filters) in lists {
                for filter in filters.as_array()? {
                    add(&mut text, effect(name)?, filter.as_str()?)?;
                }
                effect(name)?;
            }
        }
        Value::String(words) => {
            let words = words.split_ascii_whitespace();
            let rules = words.filter_map(|word| word.split_once(':'));
            for (name, filter) in rules {
                // Words of other services may look like this.
                if let Some(effect) = effect(name) {
                    add(&mut text, effect, filter)?;
                }
            }
        }
        _ => return None,
    }
    Some(text)
}

/// What an access list calls it.
fn effect(name: &str) -> Option<&'static str> {
    match name {
        "pub" => Some("write"),
        "sub" => Some("read"),
        "all" => Some("readwrite"),
        "deny" => Some("deny"),
        _ => None,
    }
}

fn add(text: &mut String, effect: &str, filter: &str) -> Option<()> {
    let is_line = !filter.is_empty()
        && !filter.starts_with(char::is_whitespace)
        && !filter.contains(char::is_control);
    is_line.then(|| *text += &format!("{effect} {filter}\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Option<Arc<OwnRules>> {
        let rules = Some(value);
        let given = Given {
            rules,
            ..Given::default()
        };
        given.read()?
    }

    /// The lines of what is said.
    fn lines(
        rules: Option<&Value>,
        groups: Option<&Value>,
        limits: Option<&Value>,
    ) -> Option<Option<String>> {
        let given = Given {
            rules,
            groups,
            limits,
        };
        let own = given.read()?;
        Some(own.map(|own| own.text().to_owned()))
    }

    #[test]
    fn groups_and_limits_are_said_with_rules_or_without() {
        let (rules, groups) = (json!("pub:a"), json!(["ops", "night shift"]));
        let limits = json!({"messages": 5, "bytes": "1KiB", "burst": 1.5, "debt": "2s"});
        assert_eq!(lines(None, None, None), Some(None));
        let both = "open\ngroup ops\ngroup night shift\n";
        assert_eq!(lines(None, Some(&groups), None), Some(Some(both.into())));
        let words = json!("a b");
        let both = "write a\ngroup a\ngroup b\n";
        assert_eq!(
            lines(Some(&rules), Some(&words), None),
            Some(Some(both.into()))
        );
        let text = lines(None, None, Some(&limits)).flatten().expect("limits");
        let mut found: Vec<&str> = text.lines().collect();
        found.sort_unstable();
        let all = [
            "limit burst 1500",
            "limit bytes 1024",
            "limit debt 2000",
            "limit messages 5",
        ];
        assert_eq!(found, [&all[..], &["open"]].concat());
        for wrong in [
            json!({"messages": "5"}),
            json!({"messages": 1.5}),
            json!({"messages": null}),
            json!({"burst": -1}),
            json!({"burst": 1e300}),
            json!({"bytes": "5 apples"}),
            json!({"unknown": 5}),
            json!(5),
        ] {
            assert_eq!(lines(None, None, Some(&wrong)), None, "{wrong}");
        }
        let many = json!(vec!["g"; 17]);
        for wrong in [
            many,
            json!([""]),
            json!(["a\nopen"]),
            json!([["a"]]),
            json!(1),
        ] {
            assert_eq!(lines(None, Some(&wrong), None), None, "{wrong}");
        }
    }

    #[test]
    fn rules_are_lists_or_words() {
        for (value, text) in [
            (
                json!({"pub": ["a/%c"], "sub": ["b/#", "c d"], "deny": ["b/x"], "all": []}),
                "deny b/x\nwrite a/%c\nread b/#\nread c d\n",
            ),
            (
                json!("openid pub:a/%c all:b https://x.example"),
                "write a/%c\nreadwrite b\n",
            ),
            (json!({}), ""),
            (json!(""), ""),
        ] {
            let rules = read(&value).expect("rules");
            let sorted = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(rules.text()), sorted(text), "{value}");
        }
    }

    #[test]
    fn what_is_no_rule_is_not_passed_over() {
        let many: Vec<String> = (0..65).map(|at| format!("a/{at}")).collect();
        for value in [
            json!(null),
            json!(1),
            json!(["a"]),
            json!({"pub": "a"}),
            json!({"pub": [1]}),
            json!({"pub": [""]}),
            json!({"pub": [" a"]}),
            json!({"pub": ["a\nreadwrite #"]}),
            json!({"pub": ["a/#/b"]}),
            json!({"publish": ["a"]}),
            json!({"publish": []}),
            json!({"sub": many}),
            json!("pub:a/#/b"),
            json!("pub:"),
        ] {
            assert_eq!(read(&value), None, "{value}");
        }
    }
}
