//! A node from joining its cluster to leaving it: an edge while another one is the home, a
//! standby all that time, and the home when nothing holds the lease of the log any more.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use dunlin_broker::bus;
use dunlin_bus::limits::{ADDRESS_BYTES_MAX, ADDRESSES_MAX, SECRET_BYTES_MAX, SECRET_BYTES_MIN};
use dunlin_bus::{About, Bus, Encoding};
use dunlin_net::NetKeys;

use super::cluster::{Nodes, Wanted};
use super::standby::Standby;
use super::{Daemon, GivenUp, StartError, settings};
use crate::config::Config;
use crate::config::listener::{Address, Kind};

/// Time from when a node begins to serve as an edge until it does so again.
const BEGIN_EVERY: Duration = Duration::from_secs(1);

/// What a node hears of.
#[derive(Debug)]
pub enum Heard {
    /// Another thing may be wanted of it.
    Changed,
    /// It is to be the home, or cannot wait for that any more.
    Free(u64, Result<(), StartError>),
    /// Its log is another one's, or fails.
    GivenUp(GivenUp),
}

/// Where that goes. It is called from any thread and must not block.
pub type Hears = Arc<dyn Fn(Heard) + Send + Sync>;

/// What a node serves.
#[derive(Debug)]
enum Serving {
    Nothing,
    Edge(Daemon),
    Home(Daemon),
}

/// See the head of the file.
pub struct Node {
    config: Config,
    hears: Hears,
    nodes: Arc<Nodes>,
    bus: Option<Bus>,
    standby: Option<Standby>,
    /// How often it has been a standby.
    waits: u64,
    serving: Serving,
    /// When it last began to serve as an edge.
    begun: Option<Instant>,
}

impl Node {
    /// Joins the cluster. What the node hears of goes to `hears`.
    ///
    /// # Errors
    /// The cluster cannot be joined, or the log not be followed.
    pub fn join(config: Config, hears: Hears) -> Result<Self, StartError> {
        let (nodes, bus) = enter(&config, &hears)?;
        let mut node = Self {
            config,
            hears,
            nodes,
            bus: Some(bus),
            standby: None,
            waits: 0,
            serving: Serving::Nothing,
            begun: None,
        };
        node.stand_by()?;
        node.show()?;
        Ok(node)
    }

    /// What serves clients here, if anything does.
    #[must_use]
    pub const fn daemon(&self) -> Option<&Daemon> {
        match &self.serving {
            Serving::Nothing => None,
            Serving::Edge(daemon) | Serving::Home(daemon) => Some(daemon),
        }
    }

    /// Whether it is the home.
    #[must_use]
    pub const fn is_home(&self) -> bool {
        matches!(self.serving, Serving::Home(_))
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.bus.as_ref().map_or(0, |bus| bus.member().node.get())
    }

    /// Does what follows. `true`: something else serves clients than before, or nothing.
    ///
    /// # Errors
    /// The node cannot go on.
    pub fn hear(&mut self, heard: Heard) -> Result<bool, StartError> {
        let is_other = match heard {
            Heard::Changed => self.adapt(),
            Heard::Free(of, free) => self.take_over(of, free),
            Heard::GivenUp(cause) => self.give_up(&cause).map(|()| true),
        }?;
        self.show()?;
        Ok(is_other)
    }

    /// Where it serves nothing, that is what is seen of it.
    fn show(&mut self) -> Result<(), StartError> {
        match (&self.serving, &mut self.standby) {
            (Serving::Nothing, Some(standby)) => {
                let nodes = Arc::<Nodes>::clone(&self.nodes);
                standby.show(nodes)
            }
            _ => Ok(()),
        }
    }

    /// Does what is wanted now. `true`: something else serves clients than before.
    ///
    /// # Errors
    /// What is to serve cannot begin.
    fn adapt(&mut self) -> Result<bool, StartError> {
        match (self.nodes.wanted(), &self.serving) {
            (Wanted::Edge, Serving::Nothing) => self.serve_edge(),
            (Wanted::End, Serving::Edge(_)) => {
                self.end();
                self.adapt()?;
                Ok(true)
            }
            (Wanted::End, Serving::Home(_)) => {
                self.end();
                self.stand_by()?;
                Ok(true)
            }
            (Wanted::Rejoin, _) => {
                self.end();
                self.standby = None;
                if let Some(bus) = self.bus.take() {
                    bus.leave();
                }
                let (nodes, bus) = enter(&self.config, &self.hears)?;
                (self.nodes, self.bus) = (nodes, Some(bus));
                self.stand_by()?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Nothing has the log, or it cannot be followed: `of` names the wait. `true`: something
    /// else serves clients than before.
    ///
    /// # Errors
    /// The log cannot be followed or taken over, or the home not begin.
    fn take_over(&mut self, of: u64, free: Result<(), StartError>) -> Result<bool, StartError> {
        if of != self.waits {
            return Ok(false);
        }
        let Some(standby) = self.standby.take() else {
            return Ok(false);
        };
        free?;
        self.end();
        let here = self.number();
        let place = self.nodes.home_place(here, self.config.shard_count())?;
        match standby.serve_at(&place) {
            Ok(daemon) => {
                let hears = Arc::clone(&self.hears);
                daemon.when_given_up(move |cause| hears(Heard::GivenUp(cause)));
                tracing::info!(node = here, "this node is the home of the cluster");
                self.serving = Serving::Home(daemon);
                Ok(true)
            }
            Err(error) if error.is_taken_over() => {
                tracing::warn!("{error}");
                self.stand_by()?;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// The log is another one's, which is the home now.
    ///
    /// # Errors
    /// The log fails, or cannot be followed.
    fn give_up(&mut self, cause: &GivenUp) -> Result<(), StartError> {
        if !self.is_home() {
            return Ok(());
        }
        self.end();
        match cause {
            GivenUp::TakenOver => self.stand_by(),
            GivenUp::Failed(why) => Err(StartError::Loop(why.clone())),
        }
    }

    /// Ends what it serves, and leaves the cluster.
    pub fn leave(mut self) {
        self.end();
        drop(self.standby.take());
        if let Some(bus) = self.bus.take() {
            bus.leave();
        }
    }

    /// Ends what it serves. What is served next has the configuration of its file then.
    fn end(&mut self) {
        match core::mem::replace(&mut self.serving, Serving::Nothing) {
            Serving::Nothing => return,
            Serving::Edge(daemon) | Serving::Home(daemon) => daemon.shut_down(),
        }
        match self.config.read_again() {
            Ok(config) => self.config = config,
            Err(error) => tracing::error!("{error}; the configuration stays as it was"),
        }
    }

    fn serve_edge(&mut self) -> Result<bool, StartError> {
        // One that loses its home again and again is not to take all of the machine.
        if let Some(begun) = self.begun {
            std::thread::sleep(BEGIN_EVERY.saturating_sub(begun.elapsed()));
        }
        self.begun = Some(Instant::now());
        let here = self.number();
        let Some(place) = self.nodes.edge_place(here, self.config.shard_count())? else {
            return Ok(false);
        };
        let home = place.home();
        if let Some(standby) = &mut self.standby {
            standby.hide();
        }
        match Daemon::edge(&self.config, &place) {
            Ok(daemon) => {
                tracing::info!(node = here, home, "this node is an edge");
                self.serving = Serving::Edge(daemon);
                Ok(true)
            }
            // There will be another one.
            Err(StartError::HomeGone) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn stand_by(&mut self) -> Result<(), StartError> {
        let (standby, outcome) = Standby::beside(self.config.clone())?;
        self.nodes.set_log(standby.views());
        self.waits += 1;
        let (number, hears) = (self.waits, Arc::clone(&self.hears));
        let thread = std::thread::Builder::new().name("standby".into());
        let started = thread.spawn(move || hears(Heard::Free(number, outcome.wait())));
        started.map_err(|error| StartError::Loop(error.to_string()))?;
        self.standby = Some(standby);
        Ok(())
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Node");
        shown.field("number", &self.number());
        shown.field("serving", &self.serving);
        shown.finish_non_exhaustive()
    }
}

fn enter(config: &Config, hears: &Hears) -> Result<(Arc<Nodes>, Bus), StartError> {
    let secret = secret(config)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let about = About {
        name: name(config),
        shards: config.shard_count(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        encoding: Encoding {
            version: bus::VERSION.into(),
            least: bus::LEAST.into(),
            oldest: bus::OLDEST.into(),
        },
        addresses: addresses(config),
        since: now.map_or(0, |since| since.as_secs()),
    };
    let hears = Arc::clone(hears);
    let keys = NetKeys::of_cluster(&secret);
    let nodes = Nodes::new(keys, move || hears(Heard::Changed));
    let of_bus = Arc::clone(&nodes);
    let settings = settings::bus(config, &secret, about);
    let bus = Bus::join(settings, move |event| of_bus.handle(event)).map_err(Box::new)?;
    nodes.joined(&bus);
    Ok((nodes, bus))
}

/// Whether what all nodes know can be read.
///
/// # Errors
/// It cannot, or is too short or too long.
pub(crate) fn check(config: &Config) -> Result<(), StartError> {
    if config.cluster.is_used() {
        secret(config)?;
    }
    Ok(())
}

/// The keys of QUIC that all nodes have.
///
/// # Errors
/// The secret cannot be read, or is too short or too long.
pub(super) fn net_keys(config: &Config) -> Result<NetKeys, StartError> {
    Ok(NetKeys::of_cluster(&secret(config)?))
}

/// What all nodes know.
fn secret(config: &Config) -> Result<Vec<u8>, StartError> {
    let path = config.cluster.secret_file.clone().unwrap_or_default();
    let wrong = |source| StartError::ClusterSecret {
        path: path.clone(),
        source,
    };
    let secret = std::fs::read(&path).map_err(wrong)?;
    let secret = secret.trim_ascii();
    if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
        let length = secret.len();
        let why = format!("it has {length} bytes, not {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}");
        return Err(wrong(std::io::Error::other(why)));
    }
    Ok(secret.to_vec())
}

fn name(config: &Config) -> String {
    match config.cluster.name.as_str() {
        "" => machine().unwrap_or_else(|| "a node without a name".to_owned()),
        name => name.to_owned(),
    }
}

/// The name of this machine.
fn machine() -> Option<String> {
    let name = std::fs::read_to_string("/etc/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Where clients reach it, as far as its configuration says.
fn addresses(config: &Config) -> Vec<String> {
    let host = machine().unwrap_or_else(|| "localhost".to_owned());
    let listeners = config.listener.iter();
    let listeners = listeners.filter(|it| it.transport != Kind::Unix && it.address().port() != 0);
    let urls = listeners.map(|it| {
        let transport = it.transport.name();
        match it.address() {
            Address::Socket(addr) if !addr.ip().is_unspecified() => format!("{transport}://{addr}"),
            Address::Name(name, port) => format!("{transport}://{name}:{port}"),
            any => format!("{transport}://{host}:{}", any.port()),
        }
    });
    let urls = urls.filter(|url| url.len() <= ADDRESS_BYTES_MAX);
    urls.take(ADDRESSES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_clients_are_those_of_the_listeners() {
        let mut config = Config::default();
        let of = |address: &str| {
            let text = format!("transport = 'tcp'\naddress = '{address}'");
            toml::from_str(&text).expect("a listener")
        };
        config.listener = vec![
            of("127.0.0.1:1883"),
            of("[::1]:1883"),
            of("broker.example:1884"),
            of("127.0.0.1:0"),
            of("*:1885"),
        ];
        let found = addresses(&config);
        let known = [
            "tcp://127.0.0.1:1883",
            "tcp://[::1]:1883",
            "tcp://broker.example:1884",
        ];
        assert_eq!(found[..3], known);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[3].ends_with(":1885"), "{found:?}");
    }
}
