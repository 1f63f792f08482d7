//! Options of mosquitto that concern the whole broker.

use super::lines::Line;
use super::{Import, quoted};

/// Bytes of a packet beside its payload, for a limit that counts the payload only.
const AROUND_BYTES: u64 = 1024;

/// The least value of limits.max_packet_size.
const PACKET_BYTES_MIN: u64 = 256;

/// Options that need no key here: why.
const DONE: &[&str] = &[
    // Dunlin does so in any case, or leaves it to its service manager.
    "set_tcp_nodelay",
    "user",
    "pid_file",
    "persistence_file",
    "autosave_interval",
    "autosave_on_changes",
    "log_timestamp",
    "log_timestamp_format",
    "connection_messages",
    "per_listener_settings",
];

/// Options that stay behind, with what replaces them.
const LEFT: &[(&str, &str)] = &[
    (
        "allow_duplicate_messages",
        "a client gets a message once for overlapping subscriptions",
    ),
    (
        "allow_zero_length_clientid",
        "an identifier is assigned to clients without one",
    ),
    ("auto_id_prefix", "assigned identifiers begin with auto-"),
    (
        "auth_plugin",
        "there are no plugins: password_file, acl_file, client certificates, tokens",
    ),
    (
        "plugin",
        "there are no plugins: password_file, acl_file, client certificates, tokens",
    ),
    (
        "global_plugin",
        "there are no plugins: password_file, acl_file, client certificates, tokens",
    ),
    (
        "check_retain_source",
        "rights are checked when a retained message is sent",
    ),
    (
        "clientid_prefixes",
        "use the access list, with `client` and %c",
    ),
    ("log_facility", "logs go to standard error"),
    (
        "psk_file",
        "there is no TLS-PSK: use certificates, or SCRAM with a password",
    ),
    ("max_inflight_bytes", "see limits.max_send_backlog"),
    ("max_queued_bytes_total", "see limits.memory"),
    (
        "queue_qos0_messages",
        "QoS 0 is not kept for clients that are away",
    ),
    (
        "retain_available",
        "retained messages are always kept; see limits.max_retained_messages",
    ),
    (
        "retain_expiry_interval",
        "set Message Expiry Interval when publishing",
    ),
    (
        "upgrade_outgoing_qos",
        "messages keep the lower QoS of message and subscription",
    ),
    ("websockets_log_level", "see log.level"),
];

/// One line of the result: its section, its key, its value.
pub(super) type Setting = (&'static str, &'static str, String);

/// What an option becomes.
pub(super) fn set(line: &Line, import: &mut Import) {
    let name = line.name.as_str();
    if DONE.contains(&name) {
        return;
    }
    if name.starts_with("auth_opt_") || name.starts_with("plugin_opt_") {
        return import.leave(line, "there are no plugins");
    }
    if let Some((_, why)) = LEFT.iter().find(|(option, _)| *option == name) {
        return import.leave(line, why);
    }
    match carried(name, &line.value) {
        Some(Ok(settings)) => {
            for setting in settings {
                import
                    .settings
                    .retain(|(section, key, _)| (*section, *key) != (setting.0, setting.1));
                import.settings.push(setting);
            }
        }
        Some(Err(why)) => import.leave(line, why),
        None => import.leave(line, "there is no such option in mosquitto 2"),
    }
}

/// An access list, with which mosquitto leaves out messages rather than refuse
/// subscriptions.
fn rights(file: &str) -> Vec<Setting> {
    vec![
        ("auth", "acl_file", quoted(file)),
        ("auth", "filter_subscriptions", "true".into()),
    ]
}

type Carried = Result<Vec<Setting>, &'static str>;

/// `None`: the option is not known.
fn carried(name: &str, value: &str) -> Option<Carried> {
    let one = |section, key, value: String| Ok(vec![(section, key, value)]);
    let limit = |key, value: String| one("limits", key, value);
    let number = value.parse::<u64>();
    let wrong = Err("the value is no number");
    Some(match (name, number) {
        ("allow_anonymous", _) => {
            let who = if value == "true" { "always" } else { "never" };
            one("auth", "anonymous", quoted(who))
        }
        ("password_file", _) => one("auth", "password_file", quoted(value)),
        ("acl_file", _) => Ok(rights(value)),
        ("persistence", _) => match value {
            "true" => Ok(Vec::new()),
            _ => one("store", "durability", quoted("memory")),
        },
        ("persistence_location", _) => Err(
            "mosquitto.db cannot be read: sessions and retained messages begin empty \
             (data_dir says where Dunlin keeps its own)",
        ),
        ("persistent_client_expiration", _) => match expiry(value) {
            Some(text) => limit("max_session_expiry", quoted(&text)),
            None => Err("it is a number and h, d, w, m or y"),
        },
        ("log_dest", _) => match value {
            "stderr" | "stdout" | "none" | "syslog" => Ok(Vec::new()),
            _ => Err("logs go to standard error: systemd and others keep them"),
        },
        ("log_type", _) => match value {
            "all" | "debug" => one("log", "level", quoted("debug")),
            _ => Ok(Vec::new()),
        },
        ("max_inflight_messages", Ok(count)) => {
            let count = u16::try_from(count).unwrap_or(u16::MAX);
            let count = if count == 0 { u16::MAX } else { count };
            Ok(vec![
                ("limits", "max_inflight", count.to_string()),
                ("limits", "receive_maximum", count.to_string()),
            ])
        }
        ("max_queued_messages", Ok(0)) => Err("a queue has a bound: limits.max_queued_messages"),
        ("max_queued_messages", Ok(count)) => limit("max_queued_messages", count.to_string()),
        ("max_queued_bytes", Ok(0)) => Err("a queue has a bound: limits.max_queued_bytes"),
        ("max_queued_bytes", Ok(bytes)) => limit("max_queued_bytes", quoted(&format!("{bytes}B"))),
        ("message_size_limit", Ok(0)) => Err("packets have a bound: limits.max_packet_size"),
        ("message_size_limit", Ok(bytes)) => packet_size(bytes.saturating_add(AROUND_BYTES)),
        ("max_packet_size", Ok(0)) => Err("packets have a bound: limits.max_packet_size"),
        ("max_packet_size", Ok(bytes)) => packet_size(bytes),
        ("max_keepalive", Ok(seconds)) => limit("max_keep_alive", quoted(&format!("{seconds}s"))),
        ("global_max_connections", Ok(count)) => limit("max_connections", count.to_string()),
        ("max_topic_alias", Ok(count)) => limit("topic_alias_maximum", count.to_string()),
        ("memory_limit", Ok(0)) => Ok(Vec::new()),
        ("memory_limit", Ok(bytes)) => limit("memory", quoted(&format!("{bytes}B"))),
        ("sys_interval", Ok(seconds)) => one("sys", "interval", quoted(&format!("{seconds}s"))),
        (
            "max_inflight_messages"
            | "max_queued_messages"
            | "max_queued_bytes"
            | "message_size_limit"
            | "max_packet_size"
            | "max_keepalive"
            | "global_max_connections"
            | "max_topic_alias"
            | "memory_limit"
            | "sys_interval",
            Err(_),
        ) => wrong,
        _ => return None,
    })
}

fn packet_size(bytes: u64) -> Carried {
    let max = u64::from(dunlin_base::limits::MQTT_PACKET_BYTES_MAX);
    let bytes = bytes.clamp(PACKET_BYTES_MIN, max);
    Ok(vec![(
        "limits",
        "max_packet_size",
        quoted(&format!("{bytes}B")),
    )])
}

/// mosquitto's months and years in days.
fn expiry(value: &str) -> Option<String> {
    let (number, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "h" | "d" | "w" => value.to_owned(),
        "m" => format!("{}d", number.checked_mul(30)?),
        "y" => format!("{}d", number.checked_mul(365)?),
        _ => return None,
    })
}
