//! What a server of AMQP 1.0 says when a connection opens.

use std::time::Instant;

use dunlin_amqp::codec::{Open, SaslCode, SaslInit, SaslMechanisms, Symbol, Symbols, Value};
use dunlin_amqp::{Connection, Event, Limits, SaslPolicy, Settings, Side};
use dunlin_base::{SendBuf, StreamId};

use super::fault::Fault;
use super::wire::{Wire, plain};
use super::{Check, Checked, Needs, Probe, Verdict};

/// What a client that wants SASL sends first.
pub(super) const SASL_HEADER: &[u8] = b"AMQP\x03\x01\x00\x00";

/// Names of a list that are shown.
const NAMES_MAX: usize = 32;

/// The checks.
pub(super) const CHECKS: &[Check] = &[
    check("amqp", "AMQP 1.0", amqp),
    check("sasl", "SASL mechanisms", |probe, until| {
        Ok(list(talk(probe, until)?.mechanisms))
    }),
    check("capabilities", "capabilities", |probe, until| {
        Ok(list(open(probe, until)?.capabilities))
    }),
    check("frame-size", "max-frame-size", |probe, until| {
        let size = open(probe, until)?.max_frame_size;
        Ok(Verdict::yes(format!("{size} bytes")).value(size))
    }),
    check("channels", "channel-max", |probe, until| {
        let max = open(probe, until)?.channel_max;
        Ok(Verdict::yes(max.to_string()).value(max))
    }),
    check("amqp-idle-time-out", "idle-time-out", |probe, until| {
        Ok(match open(probe, until)?.idle_time_out {
            Some(ms) => Verdict::yes(format!("{ms} ms")).value(ms),
            None => Verdict::no("none"),
        })
    }),
];

const fn check(
    name: &'static str,
    title: &'static str,
    run: fn(&mut Probe, Instant) -> Checked,
) -> Check {
    Check {
        name,
        title,
        needs: Needs::Nothing,
        run,
    }
}

/// What the server says before and with `open`.
#[derive(Default)]
struct Said {
    mechanisms: Vec<String>,
    /// `None`: it did not come so far; `refusal` says why.
    opened: Option<Opened>,
    refusal: Option<String>,
}

struct Opened {
    container: String,
    product: Option<String>,
    max_frame_size: u32,
    channel_max: u16,
    idle_time_out: Option<u32>,
    capabilities: Vec<String>,
}

impl Opened {
    fn of(open: &Open<'_>) -> Self {
        let text = |name: &str| {
            let is_it = |key: &Value<'_>| matches!(key, Value::Symbol(key) if key.as_str() == name);
            let mut pairs = open.properties.as_ref()?.iter();
            match pairs.find(|(key, _)| is_it(key))?.1 {
                Value::String(text) => Some(plain(text)),
                _ => None,
            }
        };
        let product = [text("product"), text("version")];
        let product: Vec<String> = product.into_iter().flatten().collect();
        Self {
            container: plain(open.container_id),
            product: (!product.is_empty()).then(|| product.join(" ")),
            max_frame_size: open.max_frame_size,
            channel_max: open.channel_max,
            idle_time_out: open.idle_time_out,
            capabilities: open
                .offered_capabilities
                .as_ref()
                .map_or_else(Vec::new, names),
        }
    }
}

fn amqp(probe: &mut Probe, until: Instant) -> Checked {
    let opened = open(probe, until)?;
    let container = opened.container;
    Ok(Verdict::yes(match opened.product {
        Some(product) => format!("{product}, container {container}"),
        None => format!("container {container}"),
    }))
}

fn list(names: Vec<String>) -> Verdict {
    match names.is_empty() {
        true => Verdict::no("none is offered"),
        false => Verdict::yes(names.join(", ")).value(names),
    }
}

fn names(symbols: &Symbols<'_>) -> Vec<String> {
    let names = symbols.iter().map(|symbol| plain(symbol.as_str()));
    names.take(NAMES_MAX).collect()
}

fn open(probe: &mut Probe, until: Instant) -> Result<Opened, Fault> {
    let said = talk(probe, until)?;
    let why = said.refusal;
    said.opened
        .ok_or_else(|| Fault::Other(why.unwrap_or_default()))
}

/// Opens a connection and closes it.
fn talk(probe: &mut Probe, until: Instant) -> Result<Said, Fault> {
    let mut wire = probe.dial(until)?;
    let id = probe.client_id();
    let settings = Settings {
        side: Side::Client,
        container_id: &id,
        sasl: SaslPolicy::Required,
        mechanisms: Symbols::default(),
        limits: Limits::default(),
    };
    let mut engine = Connection::new(wire.now(), &settings);
    let mut said = Said::default();
    loop {
        flush(&mut engine, &mut wire);
        if said.opened.is_some() || said.refusal.is_some() {
            break;
        }
        let bytes = wire.bytes()?;
        let mut data = bytes.as_slice();
        while let Some(event) = engine.poll_event(wire.now(), &mut data) {
            take(probe, &mut engine, &mut said, wire.now(), event)?;
        }
    }
    // Refused where it is over already.
    let _ = engine.close(wire.now(), None);
    flush(&mut engine, &mut wire);
    wire.abandon();
    Ok(said)
}

fn take(
    probe: &Probe,
    engine: &mut Connection,
    said: &mut Said,
    now: dunlin_base::Instant,
    event: Event<'_>,
) -> Result<(), Fault> {
    let other = |error: &dyn core::fmt::Display| Fault::Other(error.to_string());
    match event {
        Event::SaslMechanisms(body) => {
            let offered = body.mechanisms();
            let offered = offered.map(|it: SaslMechanisms<'_>| names(&it.sasl_server_mechanisms));
            said.mechanisms = offered.unwrap_or_default();
            authenticate(probe, engine).map_err(|error| other(&error))?;
        }
        Event::SaslOutcome { code, .. } if code != SaslCode::Ok => {
            said.refusal = Some(format!("not authenticated ({code:?})"));
        }
        Event::SaslOutcome { .. } => {
            let open = Open {
                hostname: Some(probe.options.url.host()),
                ..Open::default()
            };
            engine.open(now, &open).map_err(|error| other(&error))?;
        }
        Event::Opened(body) => said.opened = body.open().as_ref().map(Opened::of),
        Event::Closed { error, .. } => {
            let why = error.as_ref().map(|error| {
                let error = error.get();
                let text = error.description.unwrap_or_default();
                plain(&format!("{} {text}", error.condition.as_str()))
            });
            said.refusal = Some(why.unwrap_or_else(|| "closed by the server".into()));
        }
        _ => {}
    }
    Ok(())
}

/// PLAIN where there is a user, else ANONYMOUS.
fn authenticate(probe: &Probe, engine: &mut Connection) -> Result<(), dunlin_amqp::CallError> {
    let plain = probe.user().map(|user| {
        let password = probe.password().unwrap_or_default();
        format!("\0{user}\0{password}")
    });
    engine.sasl_init(&SaslInit {
        mechanism: Symbol::from_static(match plain {
            Some(_) => "PLAIN",
            None => "ANONYMOUS",
        }),
        initial_response: Some(plain.as_deref().unwrap_or_default().as_bytes()),
        hostname: Some(probe.options.url.host()),
    })
}

fn flush(engine: &mut Connection, wire: &mut Wire) {
    let mut bytes = SendBuf::new();
    engine.poll_output(wire.now(), &mut bytes);
    wire.send_buf(StreamId::CONTROL, &mut bytes);
}
