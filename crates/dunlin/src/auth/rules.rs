//! Rules that a claim of a token, or the answer of a server, has for one client.

use dunlin_broker::access::OwnRules;
use serde_json::Value;

/// Reads rules: an object with lists of topic filters, `pub`, `sub`, `all` and `deny`,
/// or one text with words such as `pub:a/#`, among which others may stand. `None`: it
/// is neither, or has a filter that is none.
pub(super) fn read(value: &Value) -> Option<OwnRules> {
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
    OwnRules::parse(&text).ok()
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
