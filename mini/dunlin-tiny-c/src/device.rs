//! A client with its memory and its session: what the functions for C do, in
//! safe code.

use dunlin_mini_crypto::{Crypto, Point, Tiny};
use dunlin_mqtt_mini as mqtt;
use dunlin_mqtt_mini::{Event, Message, Options, Qos, Session};
use dunlin_quic_mini as quic;
use dunlin_quic_mini::{Client, Config, Memory, Parts, Pinned, Stream, Verifier};

use crate::port::Calls;
use crate::types::{Bytes, Happened, Kind, Phase};

/// Datagrams that are taken in one go, so that a flood does not keep a call
/// from returning.
const BURST: usize = 16;

/// Who the broker must be.
#[derive(Clone, Copy)]
pub(crate) enum Trust {
    Keys(&'static [Point]),
    #[cfg(feature = "authority")]
    Authority(quic::Authority<'static>),
}

impl Verifier for Trust {
    fn verify<C: Crypto>(&self, crypto: &mut C, certificate: &[u8]) -> Result<Point, quic::Error> {
        match self {
            Self::Keys(keys) => Pinned::new(keys).verify(crypto, certificate),
            #[cfg(feature = "authority")]
            Self::Authority(authority) => authority.verify(crypto, certificate),
        }
    }

    fn believed<C: Crypto>(&self, crypto: &mut C, hash: &mut C::Hash) {
        match self {
            Self::Keys(keys) => Pinned::new(keys).believed(crypto, hash),
            #[cfg(feature = "authority")]
            Self::Authority(authority) => authority.believed(crypto, hash),
        }
    }
}

/// Who the broker must be, and what it is shown.
#[cfg(feature = "client-certificate")]
pub(crate) type Believed = quic::Identified<'static, Trust>;
#[cfg(not(feature = "client-certificate"))]
pub(crate) type Believed = Trust;

/// No broker is believed.
#[cfg(feature = "client-certificate")]
const NONE: Believed = quic::Identified::new(
    Trust::Keys(&[]),
    quic::Identity {
        certificates: &[],
        key: &[0; 32],
    },
);
#[cfg(not(feature = "client-certificate"))]
const NONE: Believed = Trust::Keys(&[]);

/// Buffers of the program.
pub(crate) struct Given {
    pub(crate) hello: &'static mut [u8],
    pub(crate) handshake: &'static mut [u8],
    pub(crate) send: &'static mut [u8],
    pub(crate) receive: &'static mut [u8],
    /// MQTT needs one.
    streams: [Stream; 1],
}

impl Given {
    pub(crate) fn new(
        hello: &'static mut [u8],
        handshake: &'static mut [u8],
        send: &'static mut [u8],
        receive: &'static mut [u8],
    ) -> Self {
        Self {
            hello,
            handshake,
            send,
            receive,
            streams: [Stream::default()],
        }
    }
}

impl Memory for Given {
    fn parts(&mut self) -> Parts<'_> {
        Parts {
            send_len: self.send.len(),
            receive_len: self.receive.len(),
            hello: self.hello,
            handshake: self.handshake,
            streams: &mut self.streams,
            send: self.send,
            receive: self.receive,
        }
    }
}

type Quic = Client<Tiny<Calls>, Believed, Given>;

/// Everything behind a handle.
pub(crate) struct Device {
    port: Calls,
    datagram: &'static mut [u8],
    quic: Quic,
    session: Session,
    closing: bool,
    /// Whether the program learned something that it may want to act on.
    news: bool,
    /// When MQTT last sent something, for its keep alive.
    said: u32,
    login: Login,
}

/// What CONNECT needs once the connection is there.
#[derive(Clone, Copy)]
pub(crate) struct Login {
    pub(crate) begun: bool,
    pub(crate) options: Options<'static>,
}

impl Device {
    pub(crate) const fn new(port: Calls, datagram: &'static mut [u8], given: Given) -> Self {
        let quic = Client::new(Tiny::new(port), NONE, given);
        Self {
            port,
            datagram,
            quic,
            session: Session::new(),
            closing: false,
            news: false,
            said: 0,
            login: Login {
                begun: false,
                options: Options::NEW,
            },
        }
    }

    /// Forgets the connection, in its place: a second client on the stack would be
    /// half of it.
    pub(crate) fn forget(&mut self) {
        self.quic.clear();
        self.closing = false;
        self.login.begun = false;
    }

    /// Begins a connection.
    pub(crate) fn connect(
        &mut self,
        trust: Believed,
        config: &Config<'_>,
        options: Options<'static>,
    ) -> Result<(), mqtt::Error> {
        *self.quic.verifier() = trust;
        self.login.options = options;
        let datagram = u16::try_from(self.datagram.len()).unwrap_or(u16::MAX);
        let config = Config {
            max_datagram: datagram.min(1472),
            ..*config
        };
        let begun = self.quic.connect(self.port.now(), &config);
        let begun = begun.map_err(mqtt::Error::from).and_then(|()| self.begin());
        if begun.is_err() {
            self.forget();
        }
        begun
    }

    /// Asks for the session as soon as the connection can carry it.
    fn begin(&mut self) -> Result<(), mqtt::Error> {
        let quic = &mut self.quic;
        if quic.is_usable() && !self.login.begun && !self.closing {
            match self.session.begin(quic, &self.login.options) {
                // The server grants a stream later.
                Err(mqtt::Error::Quic(quic::Error::NoStreamLeft)) => return Ok(()),
                begun => begun?,
            }
            self.login.begun = true;
            self.said = self.port.now();
        }
        Ok(())
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.quic.state() {
            quic::State::Idle => Phase::Idle,
            quic::State::Closed | quic::State::Closing => Phase::Closed,
            _ if self.closing => Phase::Closing,
            _ if self.session.is_up() && self.login.begun => Phase::Up,
            _ if self.login.begun => Phase::Ready,
            _ => Phase::Connecting,
        }
    }

    /// Sends and takes what there is. Gives the milliseconds that may be
    /// slept, and the reason when the connection is over.
    pub(crate) fn run(&mut self) -> Result<u32, mqtt::Error> {
        if matches!(self.phase(), Phase::Idle | Phase::Closed) {
            return Err(mqtt::Error::State);
        }
        self.news = false;
        let phase = self.phase();
        let end = self.exchange();
        if end.is_err() {
            // The broker broke the rules, or the engine has ended already.
            let now = self.port.now();
            self.quic.close(now, 0);
        }
        self.transmit();
        end?;
        // A program that acts on what has changed should not have to sleep before.
        let news = self.news || self.phase() != phase;
        let now = self.port.now();
        let quic = &mut self.quic;
        if let Some(error) = quic
            .error()
            .filter(|_| quic.state() != quic::State::Connected)
        {
            // After DISCONNECT, either side may be the first to close.
            let wanted = error as u8 <= quic::Error::ClosedLocally as u8
                && error != quic::Error::IdleTimeout;
            return if wanted && self.closing {
                Ok(u32::MAX)
            } else {
                Err(error.into())
            };
        }
        if news {
            return Ok(0);
        }
        let timer = quic.timeout(now).unwrap_or(u32::MAX);
        Ok(timer.min(self.silence().saturating_sub(now.wrapping_sub(self.said))))
    }

    fn exchange(&mut self) -> Result<(), mqtt::Error> {
        for _ in 0..BURST {
            self.transmit();
            self.begin()?;
            self.events()?;
            let now = self.port.now();
            let len = self.port.receive(self.datagram);
            let Some(datagram) = self.datagram.get_mut(..len).filter(|_| len > 0) else {
                break;
            };
            self.quic.receive(now, datagram);
        }
        self.begin()?;
        self.events()?;
        self.stay_alive();
        self.leave()
    }

    fn transmit(&mut self) {
        let quic = &mut self.quic;
        loop {
            let len = quic.transmit(self.port.now(), self.datagram);
            match self.datagram.get(..len) {
                Some(datagram) if len > 0 => self.port.send(datagram),
                _ => return,
            }
        }
    }

    /// Tells what MQTT has to tell.
    fn events(&mut self) -> Result<(), mqtt::Error> {
        if !self.login.begun {
            return Ok(());
        }
        let quic = &mut self.quic;
        // A connection that is over has its own reason.
        if quic.error().is_some() {
            return Ok(());
        }
        loop {
            let event = match self.session.poll(quic) {
                Ok(Some(event)) => happened(&event),
                // An answer that does not fit now goes out with the next call.
                Ok(None) | Err(mqtt::Error::Full) => return Ok(()),
                Err(error) => return Err(error),
            };
            self.news = true;
            self.port.event(&event);
        }
    }

    /// Milliseconds that MQTT may be silent. Before the broker has answered,
    /// there is nothing to keep alive.
    fn silence(&self) -> u32 {
        match self.session.keep_alive() {
            // A quarter is left for the way.
            seconds @ 1.. if self.phase() == Phase::Up => u32::from(seconds) * 750,
            _ => u32::MAX,
        }
    }

    fn stay_alive(&mut self) {
        let now = self.port.now();
        let due = now.wrapping_sub(self.said) >= self.silence();
        if due {
            // Without room for it, what is in the way is a sign of life as well.
            let _ = self.session.ping(&mut self.quic);
            self.said = now;
        }
    }

    /// Ends the connection when all was acknowledged.
    fn leave(&mut self) -> Result<(), mqtt::Error> {
        let now = self.port.now();
        let stream = self.session.stream();
        let closing = self.closing;
        let begun = self.login.begun;
        let quic = &mut self.quic;
        if closing && (!begun || quic.is_flushed(stream)) {
            quic.close(now, 0);
        }
        Ok(())
    }

    pub(crate) fn publish(
        &mut self,
        again: u16,
        alias: u8,
        message: &Message<'_>,
    ) -> Result<u16, mqtt::Error> {
        let quic = &mut self.quic;
        let id = if again == 0 {
            self.session.publish_as(quic, alias, message)?
        } else {
            self.session.publish_again(quic, again, message)?;
            again
        };
        self.said = self.port.now();
        Ok(id)
    }

    pub(crate) fn subscribe(&mut self, qos: Qos, filter: &[u8]) -> Result<u16, mqtt::Error> {
        let quic = &mut self.quic;
        let id = self.session.subscribe(quic, qos, filter)?;
        self.said = self.port.now();
        Ok(id)
    }

    pub(crate) fn unsubscribe(&mut self, filter: &[u8]) -> Result<u16, mqtt::Error> {
        let id = self.session.unsubscribe(&mut self.quic, filter)?;
        self.said = self.port.now();
        Ok(id)
    }

    pub(crate) fn disconnect(&mut self) -> Result<(), mqtt::Error> {
        match self.phase() {
            Phase::Ready | Phase::Up => {
                let quic = &mut self.quic;
                self.session.disconnect(quic)?;
            }
            Phase::Connecting => {}
            _ => return Err(mqtt::Error::State),
        }
        self.closing = true;
        Ok(())
    }

    /// The newest ticket; empty if there is none.
    pub(crate) fn ticket(&mut self) -> &[u8] {
        self.quic.ticket().unwrap_or_default()
    }

    pub(crate) fn migrate(&mut self) -> Result<(), mqtt::Error> {
        #[cfg(feature = "migration")]
        self.quic.migrate()?;
        let built = cfg!(feature = "migration");
        built.then_some(()).ok_or(mqtt::Error::State)
    }

    pub(crate) fn update_keys(&mut self) -> Result<(), mqtt::Error> {
        #[cfg(feature = "key-update")]
        self.quic.update_keys()?;
        let built = cfg!(feature = "key-update");
        built.then_some(()).ok_or(mqtt::Error::State)
    }

    pub(crate) const fn reason(&self) -> u8 {
        self.session.reason()
    }

    pub(crate) const fn peer_code(&self) -> u32 {
        self.quic.peer_code()
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.quic.is_resumed()
    }

    pub(crate) fn took_early_data(&self) -> bool {
        self.quic.took_early_data()
    }

    pub(crate) const fn rtt(&self) -> u32 {
        self.quic.rtt_ms()
    }
}

/// An event for C. Its bytes stay in the receive buffer until the next poll.
const fn happened(event: &Event<'_>) -> Happened {
    let mut happened = Happened {
        kind: Kind::Connected,
        session: false,
        retain: false,
        qos: 0,
        reason: 0,
        id: 0,
        topic: Bytes::NONE,
        payload: Bytes::NONE,
    };
    match *event {
        Event::Connected { session } => happened.session = session,
        Event::Message(message) => {
            happened.kind = Kind::Message;
            happened.retain = message.retain;
            happened.qos = message.qos as u8;
            happened.topic = Bytes::of(message.topic);
            happened.payload = Bytes::of(message.payload);
        }
        Event::Published { id, reason } => {
            happened.kind = Kind::Published;
            (happened.id, happened.reason) = (id, reason);
        }
        Event::Rejected { id, reason } => {
            happened.kind = Kind::Rejected;
            (happened.id, happened.reason) = (id, reason);
        }
        Event::Subscribed { id, reason } => {
            happened.kind = Kind::Subscribed;
            (happened.id, happened.reason) = (id, reason);
        }
        Event::Unsubscribed { id, reason } => {
            happened.kind = Kind::Unsubscribed;
            (happened.id, happened.reason) = (id, reason);
        }
        _ => {}
    }
    happened
}
