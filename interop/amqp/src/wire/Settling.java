//! Section 2.6.12 and 2.6.13, 2.7.6, 3.4: settlement, outcomes, resumption.
package wire;

import static org.hamcrest.Matchers.anyOf;
import static org.hamcrest.Matchers.anything;
import static org.hamcrest.Matchers.equalTo;
import static org.hamcrest.Matchers.notNullValue;
import static org.hamcrest.Matchers.nullValue;
import static wire.Amqp.bytes;
import static wire.Amqp.performative;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.qpid.protonj2.test.driver.codec.messaging.Accepted;
import org.apache.qpid.protonj2.test.driver.codec.messaging.Header;
import org.apache.qpid.protonj2.test.driver.codec.primitives.Binary;
import org.apache.qpid.protonj2.test.driver.codec.transport.DeliveryState;

final class Settling {
    private static final byte[] M = Amqp.data("m");

    private Settling() {}

    static void add(Case.Cases cases) {
        modes(cases);
        ranges(cases);
        outcomes(cases);
        resuming(cases);
    }

    private static void modes(Case.Cases cases) {
        cases.add("2.6.12", "a settled delivery is not answered", w -> {
            w.sender();
            w.transfer(0, M).withSettled(true).now();
            w.barrier();
        });
        cases.add("2.6.12", "an unsettled delivery is settled with its outcome", w -> {
            w.sender();
            w.expectAccepted(0);
            w.transfer(0, M).now();
        });
        cases.add("2.8.2", "snd-settle-mode settled is granted to a sender", w -> {
            w.begun();
            w.expectAttach().withSenderSettleModeSettled();
            w.expectFlow();
            w.asSender(0).withSenderSettleModeSettled().now();
            w.sync();
            w.transfer(0, M).withSettled(true).now();
            w.barrier();
        });
        cases.add("2.8.2", "snd-settle-mode unsettled is granted to a sender", w -> {
            w.begun();
            w.expectAttach().withSenderSettleModeUnsettled();
            w.expectFlow();
            w.asSender(0).withSenderSettleModeUnsettled().now();
            w.sync();
            w.expectAccepted(0);
            w.transfer(0, M).now();
        });
        cases.add("2.8.2", "snd-settle-mode mixed: both", w -> {
            w.begun();
            w.expectAttach().withSndSettleMode(anyOf(nullValue(),
                equalTo(org.apache.qpid.protonj2.test.driver.codec.primitives.UnsignedByte.valueOf((byte) 2))));
            w.expectFlow();
            w.asSender(0).withSenderSettleModeMixed().now();
            w.sync();
            w.transfer(0, M).withSettled(true).now();
            w.expectAccepted(1);
            w.transfer(1, M).now();
        });
        cases.add("2.8.2", "a receiver that wants settled deliveries gets them settled", w -> {
            w.begun();
            w.expectAttach().withSenderSettleModeSettled();
            w.asReceiver(0).withSenderSettleModeSettled().now();
            w.sync().credit(2);
            w.expectMessage(M).withSettled(true);
            w.feed(M);
        });
        cases.add("2.8.2", "a receiver that wants unsettled deliveries gets them unsettled", w -> {
            w.begun();
            w.expectAttach().withSenderSettleModeUnsettled();
            w.asReceiver(0).withSenderSettleModeUnsettled().now();
            w.sync().credit(2);
            w.expectMessage(M).withSettled(Wire.NO);
            w.feed(M);
        });
        cases.add("2.8.3", "rcv-settle-mode second: the broker settles after the sender", w -> {
            w.begun();
            w.expectAttach().withReceiverSettlesSecond();
            w.expectFlow();
            w.asSender(0).withRcvSettleMode((byte) 1).now();
            w.sync();
            w.expectDisposition().withRole(true).withFirst(0).withSettled(Wire.NO).withState().accepted();
            w.transfer(0, M).now();
            w.sync();
            w.remoteDisposition().withRole(false).withFirst(0).withSettled(true).withState().accepted().now();
            w.barrier();
        });
        cases.add("2.8.3", "rcv-settle-mode second: the broker as sender settles", w -> {
            w.begun();
            w.expectAttach().withReceiverSettlesSecond();
            w.asReceiver(0).withRcvSettleMode((byte) 1).now();
            w.sync().credit(2);
            w.expectMessage(M).withSettled(Wire.NO);
            w.feed(M);
            w.sync();
            w.expectDisposition().withRole(false).withSettled(true).withState().accepted();
            w.remoteDisposition().withRole(true).withFirst(0).withState().accepted().now();
        });
        cases.add("2.7.5", "rcv-settle-mode second of a transfer on a link with first", w -> {
            w.sender();
            w.detaches("amqp:invalid-field");
            w.transfer(0, M).withRcvSettleMode(
                org.apache.qpid.protonj2.test.driver.codec.transport.ReceiverSettleMode.SECOND).now();
        });
        cases.add("2.7.5", "rcv-settle-mode first of a transfer on a link with second", w -> {
            w.begun();
            w.expectReceiverOf(0);
            w.expectFlow();
            w.asSender(0).withRcvSettleMode((byte) 1).now();
            w.sync();
            w.expectAccepted(0);
            w.transfer(0, M).withRcvSettleMode(
                org.apache.qpid.protonj2.test.driver.codec.transport.ReceiverSettleMode.FIRST).now();
        });
    }

    private static void ranges(Case.Cases cases) {
        cases.add("2.7.6", "a disposition settles a range", w -> {
            w.receiver(3);
            for (int n = 0; n < 3; n++) w.expectMessage(M);
            w.feed(M, M, M);
            w.sync();
            w.remoteDisposition().withRole(true).withFirst(0).withLast(2).withSettled(true).withState().accepted()
                .now();
            w.barrier();
            again(w, 3);
        });
        cases.add("2.7.6", "a disposition without last is about one delivery", w -> {
            w.receiver(2);
            w.expectMessage(M);
            w.expectMessage(M);
            w.feed(M, M);
            w.sync();
            w.remoteDisposition().withRole(true).withFirst(0).withSettled(true).withState().released().now();
            w.expectMessage(M);
            w.remoteFlow().withHandle(0).withDeliveryCount(2).withLinkCredit(5).now();
            w.barrier();
        });
        cases.add("2.7.6", "a range that ends before it begins", w -> {
            w.receiver(0);
            w.ends("amqp:invalid-field");
            w.remoteDisposition().withRole(true).withFirst(5).withLast(4).withSettled(true).now();
        });
        cases.add("2.7.6", "a disposition of what never was is passed over", w -> {
            w.receiver(0);
            w.remoteDisposition().withRole(true).withFirst(100).withLast(2000).withSettled(true).withState()
                .accepted().now();
            w.barrier();
        });
        cases.add("2.7.6", "the same twice is passed over", w -> {
            w.receiver(1);
            w.expectMessage(M);
            w.feed(M);
            w.sync();
            for (int n = 0; n < 2; n++) {
                w.remoteDisposition().withRole(true).withFirst(0).withSettled(true).withState().released().now();
            }
            w.expectMessage(M);
            w.remoteFlow().withHandle(0).withDeliveryCount(1).withLinkCredit(5).now();
            w.barrier();
        });
        cases.add("2.7.6", "a range over the highest delivery-id", w -> {
            w.sender();
            w.remoteDisposition().withRole(false).withFirst(0xfffffff0L).withLast(5).withSettled(true).now();
            w.barrier();
        });
        cases.add("2.7.6", "outcomes of a burst come for each delivery once", w -> {
            w.sender();
            java.util.BitSet seen = new java.util.BitSet();
            for (int n = 0; n < 20; n++) {
                w.expectDisposition().withRole(true).withSettled(true).withState().accepted()
                    .withCapture(it -> {
                        int first = it.getFirst().intValue();
                        int last = it.getLast() == null ? first : it.getLast().intValue();
                        seen.flip(first, last + 1);
                    }).optional();
            }
            for (int id = 0; id < 20; id++) w.transfer(id, M).now();
            w.barrier();
            Wire.same(seen.cardinality(), 20, "deliveries with an outcome: " + seen);
        });
        cases.add("2.7.6", "batchable asks for nothing that is answered", w -> {
            w.sender();
            w.expectAccepted(0);
            w.transfer(0, M).withBatchable(true).now();
        });
        cases.add("2.7.6", "a disposition without role", w -> {
            w.receiver(0);
            w.closes("amqp:invalid-field");
            w.raw(performative(0, Amqp.DISPOSITION, null, 0));
        });
        cases.add("2.7.6", "a state that is none", w -> {
            w.receiver(1);
            w.expectMessage(M);
            w.feed(M);
            w.sync();
            w.closes("amqp:decode-error");
            w.raw(performative(0, Amqp.DISPOSITION, true, 0, null, true, "text"));
        });
    }

    /** Nothing comes a second time. */
    private static void again(Wire w, int count) {
        w.expectFlow().withLinkCredit(5);
        w.remoteFlow().withHandle(0).withDeliveryCount(count).withLinkCredit(5).withEcho(true).now();
        w.sync();
    }

    /** A delivery that comes again, and what its header says then. */
    private static void redelivered(Wire w, long count) {
        w.expectPayload(Wire.sections(all -> {
            List<Object> headers = all.stream().filter(Header.class::isInstance).toList();
            Object got = headers.isEmpty() ? null : ((Header) headers.get(0)).getDeliveryCount();
            Wire.same(got == null ? Wire.uint(0) : got, Wire.uint(count), "delivery-count");
        }));
        w.remoteFlow().withHandle(0).withDeliveryCount(1).withLinkCredit(1).now();
        w.sync();
    }

    private static void once(Wire w) throws Exception {
        w.receiver(1);
        w.expectMessage(M);
        w.feed(M);
        w.sync();
    }

    private static void outcomes(Case.Cases cases) {
        cases.add("3.4.1", "received is no outcome: the delivery stays", w -> {
            once(w);
            w.raw(performative(0, Amqp.DISPOSITION, true, 0, null, false, Amqp.composite(0x23, 0, 0L)));
            w.barrier();
            w.remoteDisposition().withRole(true).withFirst(0).withSettled(true).withState().accepted().now();
            again(w, 1);
        });
        cases.add("3.4.2", "accepted: it does not come again", w -> {
            once(w);
            w.remoteDisposition().withRole(true).withFirst(0).withSettled(true).withState().accepted().now();
            again(w, 1);
        });
        cases.add("3.4.2", "accepted and not settled: the broker settles", w -> {
            once(w);
            w.expectDisposition().withRole(false).withFirst(0).withSettled(true).withState().accepted();
            w.remoteDisposition().withRole(true).withFirst(0).withState().accepted().now();
            w.sync();
            again(w, 1);
        });
        cases.add("3.4.3", "rejected: it does not come again", w -> {
            once(w);
            w.remoteDisposition().withRole(true).withFirst(0).withSettled(true).withState()
                .rejected("amqp:internal-error", "poison").now();
            again(w, 1);
        });
        cases.add("3.4.4", "released: it comes again, uncounted", w -> {
            once(w);
            w.remoteDisposition().withRole(true).withFirst(0).withSettled(true).withState().released().now();
            redelivered(w, 0);
        });
        cases.add("3.4.5", "modified, failed: it comes again, counted", w -> {
            once(w);
            w.remoteDisposition().withRole(true).withFirst(0).withSettled(true).withState().modified(true).now();
            redelivered(w, 1);
        });
        cases.add("3.4.5", "modified, not failed: it comes again, uncounted", w -> {
            once(w);
            w.remoteDisposition().withRole(true).withFirst(0).withSettled(true).withState().modified().now();
            redelivered(w, 0);
        });
        cases.add("3.4.5", "modified, undeliverable here: it does not come again on this link", w -> {
            once(w);
            w.remoteDisposition().withRole(true).withFirst(0).withSettled(true).withState().modified(true, true)
                .now();
            again(w, 1);
        });
        cases.add("3.4.5", "modified, with annotations: it comes with them", w -> {
            once(w);
            w.remoteDisposition().withRole(true).withFirst(0).withSettled(true).withState()
                .modified(true, false, java.util.Map.of("x-opt-mark", "seen")).now();
            byte[] marked = Amqp.encode(Amqp.section(Amqp.MESSAGE_ANNOTATIONS,
                java.util.Map.of(Amqp.sym("x-opt-mark"), "seen")));
            w.expectMessage(Amqp.concat(marked, M));
            w.remoteFlow().withHandle(0).withDeliveryCount(1).withLinkCredit(1).now();
        });
        cases.add("3.5.3", "settled without an outcome: the default outcome of the answer", w -> {
            w.begun();
            w.expectSenderOf(0);
            w.asReceiver(0).withSource().withAddress(w.topic).withDefaultOutcome(
                org.apache.qpid.protonj2.test.driver.codec.messaging.Released.getInstance()).and().now();
            w.sync().credit(1);
            w.expectMessage(M);
            w.feed(M);
            w.sync();
            Object said = w.attach.getSource().getDefaultOutcome();
            w.remoteDisposition().withRole(true).withFirst(0).withSettled(true).now();
            if (said instanceof org.apache.qpid.protonj2.test.driver.codec.messaging.Released) {
                redelivered(w, 0);
            } else {
                again(w, 1);
            }
        });
        cases.add("3.4", "an outcome of a sender that settles itself is passed over", w -> {
            w.sender();
            w.expectAccepted(0);
            w.transfer(0, M).now();
            w.sync();
            w.remoteDisposition().withRole(false).withFirst(0).withSettled(true).withState().accepted().now();
            w.barrier();
        });
        cases.add("3.4", "what is unsettled when its link ends does not stop others", w -> {
            once(w);
            w.expectDetach();
            w.remoteDetach().withHandle(0).withClosed(true).now();
            w.sync();
            w.expectSenderOf(1);
            w.asReceiver(1).now();
        });
    }

    private static void resuming(Case.Cases cases) {
        cases.add("2.6.13", "unsettled deliveries that the broker does not know are not in its map", w -> {
            w.begun();
            w.expectAttach().ofReceiver().withUnsettled(nullValue());
            w.expectFlow();
            w.asSender(0).withUnsettled(Wire.unsettled(7, Accepted.getInstance())).now();
        });
        cases.add("2.6.13", "a delivery that is resumed and unknown is passed over", w -> {
            w.begun();
            w.expectReceiverOf(0);
            w.expectFlow();
            w.asSender(0).withUnsettled(Wire.unsettled(0, null)).now();
            w.sync();
            w.transfer(0, M).withResume(true).now();
            w.barrier();
            w.expectAccepted(1);
            w.transfer(1, M).now();
        });
        cases.add("2.6.13", "a resumed sender hears the outcome that it missed", w -> {
            container(w);
            w.session(0);
            durableSender(w, null);
            w.sync();
            w.expectDisposition().withFirst(0).withSettled(Wire.NO).withState().accepted();
            w.transfer(0, M).now();
            w.sync();
            w.expectDetach().withClosed(Wire.NO);
            w.remoteDetach().withHandle(0).now();
            w.sync();
            w.expectAttach().ofReceiver().withUnsettled(notNullValue());
            w.expectFlow();
            sender(w).withUnsettled(Wire.unsettled(0, null)).now();
        });
        cases.add("2.6.13", "a resumed receiver gets what it had not settled", w -> {
            container(w);
            w.session(0);
            w.expectSenderOf(0);
            durable(w).now();
            w.sync().credit(1);
            Map<Binary, DeliveryState> had = new HashMap<>();
            w.expectMessage(M).withCapture(it -> had.put(it.getDeliveryTag(), null));
            w.feed(M);
            w.sync();
            w.expectDetach().withClosed(Wire.NO);
            w.remoteDetach().withHandle(0).now();
            w.sync();
            w.expectAttach().ofSender().withUnsettled(notNullValue());
            durable(w).withUnsettled(had).now();
            w.sync();
            w.expectTransfer().withResume(true).withPayload(anyPayload());
            w.remoteFlow().withHandle(0).withDeliveryCount(1).withLinkCredit(1).now();
        });
        cases.add("2.6.13", "a durable receiver gets what came while it was away", w -> {
            container(w);
            w.session(0);
            w.expectSenderOf(0);
            durable(w).now();
            w.sync();
            w.expectDetach().withClosed(Wire.NO);
            w.remoteDetach().withHandle(0).now();
            w.sync();
            w.feed(M);
            w.expectSenderOf(0);
            durable(w).now();
            w.sync();
            w.expectMessage(M);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(1).now();
        });
        cases.add("2.6.13", "an incomplete map of the client is taken", w -> {
            w.begun();
            w.expectReceiverOf(0);
            w.expectFlow();
            w.asSender(0).withUnsettled(Wire.unsettled(7, null)).withIncompleteUnsettled(true).now();
        });
    }

    @SuppressWarnings("unchecked")
    private static org.hamcrest.Matcher<java.nio.ByteBuffer> anyPayload() {
        return (org.hamcrest.Matcher<java.nio.ByteBuffer>) (org.hamcrest.Matcher<?>) anything();
    }

    private static void container(Wire w) {
        w.openedAs(w.topic);
    }

    private static org.apache.qpid.protonj2.test.driver.actions.AttachInjectAction sender(Wire w) {
        return w.asSender(0).withRcvSettleMode((byte) 1).withTarget().withAddress(w.topic)
            .withDurabilityOfUnsettledState().withExpiryPolicyOfNever().and();
    }

    private static void durableSender(Wire w, Object none) {
        w.expectAttach().withName("s0").ofReceiver();
        w.expectFlow();
        sender(w).now();
    }

    private static org.apache.qpid.protonj2.test.driver.actions.AttachInjectAction durable(Wire w) {
        return w.asReceiver(0).withSource().withAddress(w.topic).withDurabilityOfUnsettledState()
            .withExpiryPolicyOfNever().and();
    }
}
