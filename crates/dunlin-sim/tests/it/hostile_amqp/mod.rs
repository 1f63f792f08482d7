//! Hostile clients of AMQP beside an innocent one: each gets its condition at its
//! level, what the broker keeps for it stays bounded, and nothing that was settled is
//! lost.
//!
//! | case | test |
//! |---|---|
//! | truncated | `types::truncated_types_close_the_connection`, `types::a_conversation_cut_anywhere_leaves_nothing` |
//! | oversized | `types::sizes_larger_than_their_frame_close_the_connection` |
//! | endlessly nested | `types::endlessly_nested_types_close_the_connection`, `types::endlessly_nested_messages_are_rejected` |
//! | frames wrong for the state | `states::frames_wrong_for_the_state_have_their_condition` |
//! | duplicate names, handles, tags | `states::duplicate_names_handles_and_tags_have_their_condition` |
//! | credit and size violations | `states::credit_and_size_violations_detach_the_link` |
//! | a transfer never finished | `keeping::transfers_never_finished_share_one_budget` |
//! | unknown or forbidden addresses | `states::unknown_and_forbidden_addresses_refuse_the_link` |
//! | SASL that loops or is silent | `strangers::sasl_that_loops_ends`, `strangers::sasl_that_is_silent_ends` |
//! | SASL on one stream after another | `strangers::sasl_on_stream_after_stream_ends_the_connection` |
//! | floods before authentication | `strangers::floods_before_authentication_are_bounded` |
//! | receivers that never settle | `keeping::receivers_that_never_settle_hold_what_others_get_after_them` |
//! | senders that never settle | `keeping::senders_that_never_settle_get_no_further_credit` |
//! | transactions never discharged | `keeping::transactions_never_discharged_are_rolled_back`, `keeping::outcomes_of_a_transaction_that_grow_count_against_it` |
//! | large link state, large outcomes | `keeping::large_attaches_count_in_the_budget`, `keeping::a_large_outcome_is_not_repeated_for_each_delivery` |
//! | dispositions of ranges | `keeping::an_outcome_that_is_repeated_costs_nothing_more`, `dunlin-amqp` `tests::deliveries::states_that_are_said_again_and_again_are_passed_over` |
//! | tokens at `$cbs`: by the thousand, long ones, answers never read, a wrong reply-to, links that are gone | `tokens::tokens_by_the_thousand_are_answered_and_few_of_them_verified`, `tokens::a_flight_of_long_tokens_is_bounded`, `tokens::answers_that_are_never_read_are_dropped`, `tokens::answers_go_to_the_client_itself_only`, `tokens::tokens_of_what_has_gone_are_forgotten` |
//! | a selector of 100 KB | `types::a_selector_of_100_kb_fits_no_frame_and_a_long_one_no_link` |
//! | poison messages | `types::poison_messages_are_rejected_and_others_go_on`; of consumers: `dunlin-broker`, `tests::dead` |
//!
//! Bytes that break rules of one connection only are tests of `dunlin-amqp`
//! (`tests::faults`, `tests::transfers`, `tests::sasl`) and `dunlin-amqp-codec`
//! (`errors`, `robustness`).

mod keeping;
mod states;
mod strangers;
mod tokens;
mod types;

use core::time::Duration;

use dunlin_amqp::LinkId;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, DeliveryState, Open, Outcome, Performative, Role, Section,
    SerialNumber, Source, Target, Transfer,
};
use dunlin_base::StreamId;
use dunlin_base::transport::Transport;
use dunlin_sim::frames::{HEADER, RawAmqp, frame};
use dunlin_sim::{AmqpClient, Seen, Setup, World};

/// Handle of the link of [`Scene::sending`].
const HANDLE: u32 = 0;

/// A world with an innocent client that sends to a topic and to a queue, and
/// receives from both.
struct Scene {
    world: World,
    witness: AmqpClient,
    senders: [LinkId; 2],
    receivers: [LinkId; 2],
}

fn setup(shards: u16) -> Setup {
    let mut setup = Setup::new(shards, 3);
    setup.transport = Transport::Tcp;
    setup.protocol = Some("amqp");
    setup
}

impl Scene {
    fn new(setup: Setup) -> Self {
        let mut world = World::new(setup);
        let conn = world.open();
        let mut witness = AmqpClient::new(&world, conn, StreamId::CONTROL, None);
        let session = witness.open(world.now()).expect("a session");
        let addresses = ["witness/topic", "/queues/witness"];
        let senders = addresses.map(|it| witness.sender(session, it).expect("a handle"));
        let receivers = addresses.map(|it| witness.receiver(session, it, 10).expect("a handle"));
        let mut scene = Self {
            world,
            witness,
            senders,
            receivers,
        };
        scene.run(&mut []);
        scene
    }

    /// Lets everything happen that is under way.
    fn run(&mut self, wires: &mut [&mut RawAmqp]) {
        loop {
            self.witness.flush(&mut self.world);
            let Some((conn, event)) = self.world.next_before_quiet() else {
                return;
            };
            let now = self.world.now();
            if !self.witness.take(now, conn, &event) {
                wires.iter_mut().any(|wire| wire.take(conn, &event));
            }
        }
    }

    /// Lets time pass.
    fn wait(&mut self, time: Duration, wires: &mut [&mut RawAmqp]) {
        let until = self.world.now() + time;
        loop {
            self.witness.flush(&mut self.world);
            let due = self.witness.engine.deadline();
            let due = due.map_or(until, |due| due.min(until));
            if let Some((conn, event)) = self.world.next(due) {
                let now = self.world.now();
                if !self.witness.take(now, conn, &event) {
                    wires.iter_mut().any(|wire| wire.take(conn, &event));
                }
                continue;
            }
            if self.world.now() >= until {
                return;
            }
            self.witness.engine.on_deadline(self.world.now());
        }
    }

    /// The innocent client is served.
    fn check_served(&mut self, what: &str) {
        self.witness.events.clear();
        for link in self.senders {
            let sent = self.witness.send(link, &message(true, what.as_bytes()));
            sent.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        self.run(&mut []);
        let (mut accepted, mut came) = (0, Vec::new());
        for seen in core::mem::take(&mut self.witness.events) {
            match seen {
                Seen::Disposition(_, Some(state)) => {
                    let state = state.get();
                    let is_accepted = state == DeliveryState::Outcome(Outcome::Accepted);
                    accepted += usize::from(is_accepted);
                }
                Seen::Message(delivery, bytes) => {
                    assert!(bytes.ends_with(what.as_bytes()), "{what}");
                    came.push(delivery);
                }
                _ => {}
            }
        }
        assert_eq!((accepted, came.len()), (2, 2), "{what}");
        for delivery in came {
            let settled = self
                .witness
                .engine
                .settle(delivery, Some(&DeliveryState::ACCEPTED));
            settled.expect("open");
        }
        for link in self.receivers {
            let given = self.witness.engine.set_credit(link, 10, false);
            given.expect("attached");
        }
        self.run(&mut []);
    }

    /// A client that has opened and begun a session, on channel 0.
    fn begun(&mut self) -> RawAmqp {
        let mut wire = RawAmqp::new(self.world.open(), StreamId::CONTROL);
        wire.send(&mut self.world, HEADER);
        self.say(&wire, 0, &Performative::Open(Open::default()));
        self.say(&wire, 0, &Performative::Begin(begin()));
        self.run(&mut [&mut wire]);
        let lines = wire.said("begin");
        assert_eq!(lines, ["begin"]);
        wire
    }

    /// As [`Scene::begun`], with a link to a topic, whose handle is [`HANDLE`].
    fn sending(&mut self, address: &str) -> RawAmqp {
        let mut wire = self.begun();
        self.say(&wire, 0, &sender(address, HANDLE, address));
        self.run(&mut [&mut wire]);
        let attached = format!("attach {address}");
        assert_eq!(wire.said("attach"), [attached]);
        wire
    }

    fn say(&mut self, wire: &RawAmqp, channel: u16, performative: &Performative<'_>) {
        wire.send(&mut self.world, &frame(channel, performative, b""));
    }

    fn transfer(&mut self, wire: &RawAmqp, transfer: Transfer<'_>, payload: &[u8]) {
        let performative = Performative::Transfer(transfer);
        wire.send(&mut self.world, &frame(0, &performative, payload));
    }

    /// The client breaks its connection; everything of it goes.
    fn cut(&mut self, wire: &RawAmqp) {
        self.world.cut(wire.conn);
        self.run(&mut []);
    }

    /// Nothing is left but what is the innocent client's.
    fn check_empty(&self, what: &str) {
        let census = self.world.census();
        let left = (
            census.conns,
            census.sessions,
            census.pending,
            census.unfinished_bytes,
            census.miscounted_bytes,
        );
        // Its links, and its queue.
        assert_eq!(left, (1, 5, 0, 0, 0), "{what}: {census:?}");
    }
}

const fn begin() -> Begin<'static> {
    Begin {
        remote_channel: None,
        next_outgoing_id: SerialNumber(0),
        incoming_window: 1000,
        outgoing_window: 1000,
        handle_max: u32::MAX,
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
    }
}

fn sender<'a>(name: &'a str, handle: u32, address: &'a str) -> Performative<'a> {
    Performative::Attach(Attach {
        name,
        handle,
        role: Role::Sender,
        source: Some(Source::default()),
        target: Some(AnyTarget::Target(Target {
            address: Some(address),
            ..Target::default()
        })),
        initial_delivery_count: Some(SerialNumber(0)),
        ..Attach::default()
    })
}

fn receiver<'a>(name: &'a str, handle: u32, source: Source<'a>) -> Performative<'a> {
    Performative::Attach(Attach {
        name,
        handle,
        role: Role::Receiver,
        source: Some(source),
        target: Some(AnyTarget::Target(Target::default())),
        ..Attach::default()
    })
}

const fn from(address: &str) -> Source<'_> {
    Source {
        address: Some(address),
        durable: dunlin_amqp::codec::TerminusDurability::None,
        expiry_policy: dunlin_amqp::codec::TerminusExpiryPolicy::SessionEnd,
        timeout: 0,
        dynamic: false,
        dynamic_node_properties: None,
        distribution_mode: None,
        filter: None,
        default_outcome: None,
        outcomes: None,
        capabilities: None,
    }
}

/// The first frame of a delivery.
fn first(id: u32, tag: &[u8]) -> Transfer<'_> {
    Transfer {
        handle: HANDLE,
        delivery_id: Some(SerialNumber(id)),
        delivery_tag: Some(tag),
        ..Transfer::default()
    }
}

fn message(durable: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if durable {
        bytes.extend_from_slice(&[0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41]);
    }
    Section::encode_data_start(payload.len(), &mut bytes).expect("a vector");
    bytes.extend_from_slice(payload);
    bytes
}
