//! Section 2.5: sessions, their windows, and what ends them.
package wire;

import static org.hamcrest.Matchers.anyOf;
import static org.hamcrest.Matchers.equalTo;
import static org.hamcrest.Matchers.greaterThan;
import static org.hamcrest.Matchers.notNullValue;
import static org.hamcrest.Matchers.nullValue;
import static wire.Amqp.bytes;
import static wire.Amqp.performative;

final class Sessions {
    private Sessions() {}

    static void add(Case.Cases cases) {
        beginAndEnd(cases);
        windows(cases);
        errors(cases);
    }

    private static void beginAndEnd(Case.Cases cases) {
        cases.add("2.5.1", "begin is answered with the channel it came on", w -> {
            w.opened();
            w.expectBegin().withRemoteChannel(7).withNextOutgoingId(notNullValue())
                .withIncomingWindow(notNullValue()).withOutgoingWindow(notNullValue());
            w.remoteBegin().withNextOutgoingId(0).withIncomingWindow(1).withOutgoingWindow(1).onChannel(7).now();
        });
        cases.add("2.5.1", "several sessions of a connection", w -> {
            w.opened();
            for (int channel = 0; channel < 8; channel++) w.session(channel);
        });
        cases.add("2.5.1", "a second begin on a channel", w -> {
            w.begun();
            w.closes("amqp:illegal-state");
            w.raw(performative(0, Amqp.BEGIN, null, 0, 10, 10));
        });
        cases.add("2.5.1", "begin that answers a begin that was not sent", w -> {
            w.opened();
            w.closes("amqp:illegal-state");
            w.raw(performative(0, Amqp.BEGIN, (short) 5, 0, 10, 10));
        });
        cases.add("2.5.2", "end is answered with end", w -> {
            w.begun();
            w.expectEnd().withError(nullValue());
            w.remoteEnd().now();
        });
        cases.add("2.5.2", "end with an error is answered without one", w -> {
            w.begun();
            w.expectEnd().withError(nullValue());
            w.remoteEnd().withErrorCondition("amqp:internal-error", "enough").now();
        });
        cases.add("2.5.2", "a channel is used again after end", w -> {
            w.begun();
            for (int n = 0; n < 3; n++) {
                w.expectEnd();
                w.remoteEnd().now();
                w.sync().session(0);
            }
        });
        cases.add("2.5.2", "end takes the links along", w -> {
            w.sender();
            w.expectEnd();
            w.remoteEnd().now();
            // A name that is free is not stolen.
            w.sync().session(1);
            w.attachSender(0);
        });
        cases.add("2.5.2", "end of one session leaves the others", w -> {
            w.opened();
            w.session(0).session(1);
            w.expectEnd();
            w.remoteEnd().onChannel(0).now();
            w.sync();
            w.expectReceiverOf(0);
            w.expectFlow();
            w.asSender(0).onChannel(1).now();
        });
        cases.add("2.5.2", "end without begin", w -> {
            w.opened();
            w.closes("amqp:illegal-state");
            w.raw(performative(0, Amqp.END));
        });
        cases.add("2.5.3", "links with one name in both directions do not meet", w -> {
            w.begun();
            w.expectAttach().withName("one").ofReceiver();
            w.expectFlow();
            w.asSender(0).withName("one").now();
            w.sync();
            w.expectAttach().withName("one").ofSender();
            w.asReceiver(1).withName("one").now();
        });
    }

    private static void windows(Case.Cases cases) {
        cases.add("2.5.6", "no more transfers than the client's incoming window", w -> {
            w.opened();
            w.expectBegin();
            w.remoteBegin().withNextOutgoingId(0).withIncomingWindow(2).withOutgoingWindow(9).onChannel(0).now();
            w.noteBegin();
            w.expectSenderOf(0);
            w.asReceiver(0).now();
            w.sync();
            w.expectFlow();
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(9).withEcho(true)
                .withNextIncomingId(w.begin.getNextOutgoingId()).withIncomingWindow(2).now();
            w.sync();
            byte[] message = Amqp.data("m");
            w.expectMessage(message);
            w.expectMessage(message);
            w.feed(message, message, message);
            w.sync();
            Thread.sleep(100);
            w.expectMessage(message);
            w.remoteFlow().withNullHandle().withIncomingWindow(5)
                .withNextIncomingId(w.begin.getNextOutgoingId().longValue() + 2).now();
        });
        cases.add("2.5.6", "a transfer of many frames stops at the window and goes on", w -> {
            w.header();
            w.expectOpen();
            w.remoteOpen().withContainerId("c").withMaxFrameSize(512).now();
            w.sync();
            w.expectBegin();
            w.remoteBegin().withNextOutgoingId(0).withIncomingWindow(1).withOutgoingWindow(9).onChannel(0).now();
            w.noteBegin();
            w.expectSenderOf(0);
            w.asReceiver(0).now();
            w.sync();
            long first = w.begin.getNextOutgoingId().longValue();
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(9)
                .withNextIncomingId(first).withIncomingWindow(1).now();
            w.barrierAt(first, 1);
            w.expectTransfer().withMore(true).withNonNullPayload();
            w.feed(Amqp.data("x".repeat(900)));
            w.sync();
            w.expectTransfer().withMore(Wire.NO).withNonNullPayload();
            w.remoteFlow().withNullHandle().withIncomingWindow(9).withNextIncomingId(first + 1).now();
        });
        cases.add("2.5.6", "the broker opens its window again", w -> {
            w.sender();
            long window = w.begin.getIncomingWindow().longValue();
            Wire.same(window > 0, true, "an open window");
            int sent = (int) Math.min(window, 40);
            for (int id = 0; id < sent; id++) w.transfer(id, Amqp.data("m")).withSettled(true).now();
            w.expectFlow().withIncomingWindow((org.hamcrest.Matcher<?>) equalTo(Wire.uint(window)))
                .withNextIncomingId(sent);
            w.remoteFlow().withNullHandle().withEcho(true).withNextOutgoingId(sent).now();
        });
        cases.add("2.5.6", "flow with echo for the session is answered", w -> {
            w.begun();
            w.expectFlow().withHandle(nullValue()).withIncomingWindow(notNullValue())
                .withNextOutgoingId(notNullValue()).withNextIncomingId(notNullValue());
            w.remoteFlow().withNullHandle().withEcho(true).now();
        });
        cases.add("2.5.6", "flow without echo for the session is not answered", w -> {
            w.begun();
            w.remoteFlow().withNullHandle().now();
        });
        cases.add("2.5.6", "next-incoming-id follows what came", w -> {
            w.opened();
            w.expectBegin();
            w.remoteBegin().withNextOutgoingId(0xffffffffL).withIncomingWindow(9).withOutgoingWindow(9)
                .onChannel(0).now();
            w.sync();
            w.attachSender(0);
            w.transfer(0, Amqp.data("a")).withSettled(true).now();
            w.transfer(1, Amqp.data("b")).withSettled(true).now();
            w.expectFlow().withNextIncomingId(1);
            w.remoteFlow().withNullHandle().withEcho(true).withNextOutgoingId(1).now();
        });
        cases.add("2.5.6", "more transfers than the broker's window", w -> {
            w.sender();
            int window = (int) w.begin.getIncomingWindow().longValue();
            byte[] one = performative(0, Amqp.TRANSFER, 0, null, null, null, null, true);
            byte[] first = performative(0, Amqp.TRANSFER, 0, 0, bytes(0), 0, null, true);
            byte[][] all = new byte[window + 2][];
            java.util.Arrays.fill(all, one);
            all[0] = first;
            // How much it reads at once is up to the transport: it may open the window
            // before the last two arrive. Then they are within it.
            Wire.Seen opened = new Wire.Seen();
            Wire.Seen ended = new Wire.Seen();
            for (int flows = 0; flows < 3; flows++) {
                w.expectFlow().withIncomingWindow((org.hamcrest.Matcher<?>) equalTo(Wire.uint(window)))
                    .withNextIncomingId(opened).optional();
            }
            w.expectDetach().withClosed(true).optional();
            w.expectEnd().withError(allOf(anyError("amqp:session:window-violation",
                "amqp:session:errant-link", "amqp:link:transfer-limit-exceeded"), ended)).optional();
            w.expectClose().withError(nullValue());
            w.drops();
            w.raw(all);
            w.remoteClose().now();
            w.sync();
            boolean within = opened.last instanceof Number read && read.longValue() >= 2;
            Wire.same(ended.last != null, !within, "the session ends unless the window was opened");
        });
    }

    @SuppressWarnings("unchecked")
    private static org.hamcrest.Matcher<?> allOf(org.hamcrest.Matcher<?>... all) {
        return org.hamcrest.Matchers.allOf((org.hamcrest.Matcher[]) all);
    }

    private static org.hamcrest.Matcher<?> anyError(String... conditions) {
        org.hamcrest.Matcher<?>[] all = new org.hamcrest.Matcher<?>[conditions.length];
        for (int n = 0; n < conditions.length; n++) {
            all[n] = new org.apache.qpid.protonj2.test.driver.matchers.transport.ErrorConditionMatcher()
                .withCondition(conditions[n]);
        }
        return anyOf((org.hamcrest.Matcher[]) all);
    }

    private static void errors(Case.Cases cases) {
        cases.add("2.5.5", "a transfer on a handle without a link", w -> {
            w.begun();
            w.ends("amqp:session:unattached-handle");
            w.raw(performative(0, Amqp.TRANSFER, 4, 0, bytes(0)));
        });
        cases.add("2.5.5", "a flow for a handle without a link", w -> {
            w.begun();
            w.ends("amqp:session:unattached-handle");
            w.raw(performative(0, Amqp.FLOW, 0, 1, 0, 1, 4, 0, 1));
        });
        cases.add("2.5.5", "a detach of a handle without a link", w -> {
            w.begun();
            w.ends("amqp:session:unattached-handle");
            w.raw(performative(0, Amqp.DETACH, 4, true));
        });
        cases.add("2.5.5", "frames after the broker's end with an error are passed over", w -> {
            w.begun();
            w.ends("amqp:session:unattached-handle");
            w.raw(performative(0, Amqp.DETACH, 4, true), performative(0, Amqp.DETACH, 4, true),
                performative(0, Amqp.FLOW, 0, 1, 0, 1, null, null, null, null, null, true));
        });
        cases.add("2.5.5", "a session that failed leaves the others", w -> {
            w.begun();
            w.session(1);
            w.ends("amqp:session:unattached-handle");
            w.raw(performative(0, Amqp.DETACH, 4, true));
            w.sync();
            w.expectReceiverOf(0);
            w.expectFlow();
            w.asSender(0).onChannel(1).now();
        });
        cases.add("2.8.17", "a handle that is in use", w -> {
            w.sender();
            w.ends("amqp:session:handle-in-use");
            w.raw(performative(0, Amqp.ATTACH, "other", 0, false, null, null,
                Amqp.composite(Amqp.SOURCE), Amqp.composite(Amqp.TARGET, w.topic), null, null, 0));
        });
        cases.add("2.8.17", "a transfer to a link that was detached with an error", w -> {
            w.sender();
            // Without a delivery-tag the link is in error.
            w.expectDetach().withClosed(true).withError("amqp:invalid-field", org.hamcrest.Matchers.anything());
            w.raw(performative(0, Amqp.TRANSFER, 0, 0));
            w.sync();
            w.ends("amqp:session:errant-link");
            w.raw(performative(0, Amqp.TRANSFER, 0, 1, bytes(1)));
        });
        cases.add("2.8.17", "a flow for a link that was detached with an error", w -> {
            w.sender();
            w.expectDetach().withClosed(true).withError("amqp:invalid-field", org.hamcrest.Matchers.anything());
            w.raw(performative(0, Amqp.TRANSFER, 0, 0));
            w.sync();
            w.ends("amqp:session:errant-link");
            w.raw(performative(0, Amqp.FLOW, 0, 1, 0, 1, 0, 0, 1));
        });
        cases.add("2.7.2", "handle-max is the highest handle", w -> {
            w.begun();
            w.attachSender((int) w.begin.getHandleMax().longValue());
        });
        cases.add("2.7.2", "attach above handle-max", w -> {
            w.begun();
            w.closes("amqp:connection:framing-error");
            int handle = (int) w.begin.getHandleMax().longValue() + 1;
            w.raw(performative(0, Amqp.ATTACH, "n", handle, false, null, null,
                Amqp.composite(Amqp.SOURCE), Amqp.composite(Amqp.TARGET, w.topic), null, null, 0));
        });
        cases.add("2.7.2", "the broker keeps to the client's handle-max", w -> {
            w.opened();
            w.expectBegin();
            w.remoteBegin().withNextOutgoingId(0).withIncomingWindow(9).withOutgoingWindow(9).withHandleMax(0)
                .onChannel(0).now();
            w.sync();
            w.attachSender(0);
            w.ends("amqp:resource-limit-exceeded");
            w.asSender(1).now();
        });
        cases.add("2.7.2", "begin without next-outgoing-id", w -> {
            w.opened();
            w.closes("amqp:invalid-field");
            w.raw(performative(0, Amqp.BEGIN, null, null, 10, 10));
        });
    }
}
