//! Listeners of mosquitto as listeners of Dunlin.

use core::fmt::Write as _;

use super::lines::Line;
use super::{Import, quoted};

/// Port when none is given.
const PORT: u16 = 1883;

/// A listener as mosquitto's file says it.
#[derive(Debug, Default)]
pub(super) struct Listener {
    port: u16,
    host: Option<String>,
    /// Path of a Unix socket.
    socket: Option<String>,
    websockets: bool,
    cert: Option<String>,
    key: Option<String>,
    ca: Option<String>,
    /// Certificates that were revoked.
    crl: Option<String>,
    require_certificate: bool,
    identity: bool,
    anonymous: Option<bool>,
    mount: Option<String>,
    pub(super) max_connections: Option<u64>,
    /// It cannot be one of Dunlin.
    dropped: bool,
}

/// Options that concern one listener, and why they stay behind; empty: they are
/// carried over.
const OPTIONS: &[(&str, &str)] = &[
    ("bind_address", ""),
    ("port", ""),
    ("protocol", ""),
    ("certfile", ""),
    ("keyfile", ""),
    ("cafile", ""),
    ("crlfile", ""),
    ("require_certificate", ""),
    ("use_identity_as_username", ""),
    ("socket_domain", ""),
    ("max_connections", ""),
    ("mount_point", ""),
    (
        "capath",
        "tls.client_ca is one file: put the certificates of the folder into it",
    ),
    ("ciphers", "see tls.cipher_suites"),
    ("ciphers_tls1.3", "see tls.cipher_suites"),
    ("dhparamfile", "key exchanges are those of tls.groups"),
    ("tls_version", "TLS 1.2 and 1.3 are both spoken over TCP"),
    ("tls_engine", "keys are files in PEM"),
    ("tls_engine_kpass_sha1", "keys are files in PEM"),
    ("tls_keyform", "keys are files in PEM"),
    (
        "use_subject_as_username",
        "tls.identity takes one name of a certificate, not the subject",
    ),
    (
        "psk_hint",
        "there is no TLS-PSK: use certificates, or SCRAM with a password; the listener is \
         left out",
    ),
    ("max_qos", "all listeners take QoS 2"),
    (
        "use_username_as_clientid",
        "clients choose their identifiers",
    ),
    ("http_dir", "no files are served"),
    ("websockets_headers_size", "the bound is fixed"),
    ("bind_interface", "listen on the address of the interface"),
    ("accept_protocol_versions", "3.1.1 and 5.0 are accepted"),
];

/// Whether an option concerns one listener.
pub(super) fn has(name: &str) -> bool {
    OPTIONS.iter().any(|(option, _)| *option == name)
}

impl Listener {
    /// The one that mosquitto makes for options before the first `listener`.
    pub(super) fn implied() -> Self {
        Self {
            port: PORT,
            ..Self::default()
        }
    }

    /// Listens on one address only.
    pub(super) fn bind(&mut self, host: &str) {
        self.host = Some(host.to_owned());
    }

    /// `listener PORT [ADDRESS]`, or `listener 0 SOCKET`.
    pub(super) fn begin(line: &Line, import: &mut Import) -> Self {
        let mut words = line.value.split_whitespace();
        let port = words.next().and_then(|word| word.parse().ok());
        let host = words.next().map(str::to_owned);
        let (host, socket, wrong) = match (port, host) {
            (Some(0), Some(path)) => (None, Some(path), None),
            (Some(0), None) => (None, None, Some("a Unix socket needs a path")),
            (None, host) => (host, None, Some("the port is no number")),
            (Some(_), host) => (host, None, None),
        };
        if let Some(wrong) = wrong {
            import.leave(line, wrong);
        }
        Self {
            port: port.unwrap_or_default(),
            host,
            socket,
            dropped: wrong.is_some(),
            ..Self::default()
        }
    }

    /// An option of this listener.
    pub(super) fn set(&mut self, line: &Line, import: &mut Import) {
        let (value, flag) = (&line.value, line.value == "true");
        let text = || Some(value.clone());
        match line.name.as_str() {
            "bind_address" => self.host = text(),
            "port" => match value.parse() {
                Ok(port) => self.port = port,
                Err(_) => import.leave(line, "the port is no number"),
            },
            "protocol" => match value.as_str() {
                "mqtt" => {}
                "websockets" => self.websockets = true,
                _ => {
                    import.leave(line, "there is no such protocol; the listener is left out");
                    self.dropped = true;
                }
            },
            "certfile" => self.cert = text(),
            "keyfile" => self.key = text(),
            "cafile" => self.ca = text(),
            "crlfile" => self.crl = text(),
            "require_certificate" => self.require_certificate = flag,
            "use_identity_as_username" => self.identity = flag,
            "allow_anonymous" => self.anonymous = Some(flag),
            "socket_domain" if self.host.is_none() => match value.as_str() {
                "ipv4" => self.host = Some("0.0.0.0".into()),
                "ipv6" => self.host = Some("::".into()),
                _ => import.leave(line, "it is ipv4 or ipv6"),
            },
            "max_connections" => self.max_connections = value.parse().ok(),
            "mount_point" => match dunlin_broker::validate_mount(value) {
                Ok(()) => self.mount = text(),
                Err(error) => import.leave(line, &error.to_string()),
            },
            name => {
                // Without its keys it would be open to all, in plain text.
                self.dropped |= name == "psk_hint";
                let found = OPTIONS.iter().find(|(option, _)| *option == name);
                import.leave(line, found.map_or("", |(_, why)| why));
            }
        }
    }

    /// Whether it asks for certificates, and of which authority is not known here: without
    /// that it would ask for none.
    const fn lacks_authority(&self) -> bool {
        self.require_certificate && self.ca.is_none()
    }

    /// Whether it has no table in our file.
    pub(super) const fn is_left_out(&self) -> bool {
        self.dropped || self.lacks_authority()
    }

    /// The table in our file.
    pub(super) fn write(&self, out: &mut String) {
        if self.is_left_out() {
            return;
        }
        if self.socket.is_some() {
            return self.table("unix", 0, "", out);
        }
        let has_tls = self.cert.is_some();
        let transport = match (self.websockets, has_tls) {
            (false, false) => "tcp",
            (false, true) => "tls",
            (true, false) => "ws",
            (true, true) => "wss",
        };
        self.table(transport, self.port, "", out);
        if has_tls && !self.websockets {
            out.push_str("# The same over QUIC, for clients that speak it:\n");
            self.table("quic", 14567, "#", out);
        }
    }

    fn table(&self, transport: &str, port: u16, comment: &str, out: &mut String) {
        let host = match &self.host {
            None => "*".to_owned(),
            Some(host) if host.contains(':') => format!("[{host}]"),
            Some(host) => host.clone(),
        };
        let mut line = |text: String| {
            let _ = writeln!(out, "{comment}{text}");
        };
        line("[[listener]]".into());
        line(format!("transport = \"{transport}\""));
        line("protocols = [\"mqtt\"]".into());
        match &self.socket {
            Some(path) => {
                line(format!("path = {}", quoted(path)));
                // mosquitto leaves the permissions to the umask, 0755 as a rule, with which
                // its own user alone may connect.
                line("#mode = \"0660\"".into());
            }
            None => line(format!("address = {}", quoted(&format!("{host}:{port}")))),
        }
        if let Some(mount) = &self.mount {
            line(format!("mount = {}", quoted(mount)));
        }
        if let Some(anonymous) = self.anonymous {
            line(format!(
                "anonymous = \"{}\"",
                if anonymous { "always" } else { "never" }
            ));
        }
        if self.socket.is_some() {
            out.push('\n');
            return;
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            line(format!("tls.cert = {}", quoted(cert)));
            line(format!("tls.key = {}", quoted(key)));
        }
        // mosquitto needs the option to ask clients for certificates.
        if let (Some(ca), true) = (&self.ca, self.require_certificate) {
            line(format!("tls.client_ca = {}", quoted(ca)));
            line("tls.require_client_cert = true".into());
            if let Some(crl) = &self.crl {
                line(format!("tls.crl_files = [{}]", quoted(crl)));
            }
            if self.identity {
                line("tls.identity = \"cn\"".into());
            }
        }
        out.push('\n');
    }

    /// What only shows when all its options are known.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let name = format!("listener {}", self.port);
        if self.lacks_authority() && !self.dropped {
            remarks.push(format!(
                "{name}: left out, since it asks clients for certificates and has no cafile: \
                 add it with tls.client_ca and tls.require_client_cert"
            ));
        }
        if self.is_left_out() {
            return remarks;
        }
        if self.socket.is_some() {
            if self.websockets || self.cert.is_some() {
                remarks.push(format!(
                    "{name}: plain MQTT at its Unix socket, without WebSocket or TLS"
                ));
            }
            return remarks;
        }
        if self.websockets {
            remarks.push(format!(
                "{name}: clients must ask for the path /mqtt (key `path`); mosquitto takes any"
            ));
        }
        if self.require_certificate && !self.identity {
            remarks.push(format!(
                "{name}: the name in a client's certificate becomes its user name, as with \
                 use_identity_as_username"
            ));
        }
        match (&self.crl, self.require_certificate) {
            (Some(_), true) => remarks.push(format!(
                "{name}: tls.crl_files must have a list of every authority from which clients' \
                 certificates come: a client for which there is none is refused"
            )),
            // As with mosquitto, which then asks clients for no certificate.
            (Some(_), false) => remarks.push(format!(
                "{name}: crlfile without require_certificate: no certificate is asked for"
            )),
            (None, _) => {}
        }
        if self.cert.is_some() && self.key.is_none() {
            remarks.push(format!("{name}: certfile without keyfile"));
        }
        remarks
    }
}
