//! Section 2.6, first part: links come, go and are stolen; their flow state.
package wire;

import static org.hamcrest.Matchers.equalTo;
import static org.hamcrest.Matchers.greaterThan;
import static org.hamcrest.Matchers.notNullValue;
import static org.hamcrest.Matchers.nullValue;
import static wire.Amqp.performative;

final class Links {
    private Links() {}

    static void add(Case.Cases cases) {
        names(cases);
        attaching(cases);
        detaching(cases);
        credit(cases);
        draining(cases);
    }

    private static void names(Case.Cases cases) {
        cases.add("2.6.1", "a sender is answered by a receiver of the same name", w -> {
            w.begun();
            w.expectReceiverOf(3);
            w.expectFlow();
            w.asSender(3).now();
        });
        cases.add("2.6.1", "a receiver is answered by a sender of the same name", w -> w.receiver(0));
        cases.add("2.6.1", "two receivers with two names get the same message each", w -> {
            w.receiver(5);
            w.expectSenderOf(1);
            w.asReceiver(1).now();
            w.sync();
            w.expectFlow();
            w.remoteFlow().withHandle(1).withDeliveryCount(0).withLinkCredit(5).withEcho(true).now();
            w.sync();
            byte[] message = Amqp.data("m");
            w.expectMessage(message);
            w.expectMessage(message);
            w.feed(message);
        });
        cases.add("2.6.1", "a name that is attached is stolen on another handle", w -> {
            w.sender();
            w.expectDetach().withHandle(w.attach.getHandle()).withClosed(true)
                .withError("amqp:link:stolen", org.hamcrest.Matchers.anything());
            w.expectReceiverOf(0);
            w.expectFlow();
            w.asSender(5).withName("s0").now();
            w.sync();
            w.remoteDetach().withHandle(0).withClosed(true).now();
        });
        cases.add("2.6.1", "a name that is attached is stolen on another session", w -> {
            w.sender();
            w.session(1);
            w.expectDetach().onChannel(0);
            w.expectAttach().withName("s0").ofReceiver().onChannel(1);
            w.expectFlow().onChannel(1);
            w.asSender(0).onChannel(1).now();
            w.sync();
            w.remoteDetach().withHandle(0).withClosed(true).onChannel(0).now();
        });
        cases.add("2.6.1", "a stolen receiver goes on with its new link", w -> {
            w.receiver(5);
            w.expectDetach().withClosed(true).withError("amqp:link:stolen", org.hamcrest.Matchers.anything());
            w.expectSenderOf(0);
            w.asReceiver(1).withName("r0").now();
            w.sync();
            w.remoteDetach().withHandle(0).withClosed(true).now();
            w.expectFlow();
            w.remoteFlow().withHandle(1).withDeliveryCount(0).withLinkCredit(5).withEcho(true).now();
            w.sync();
            byte[] message = Amqp.data("m");
            w.expectMessage(message).withHandle(w.attach.getHandle());
            w.feed(message);
        });
        cases.add("2.6.1", "the same container steals from its other connection", w -> {
            Wire first = w.other();
            first.openedAs(w.topic).session(0).attachSender(0);
            w.openedAs(w.topic).session(0);
            first.expectDetach().withClosed(true).withError("amqp:link:stolen", org.hamcrest.Matchers.anything())
                .respond();
            w.attachSender(0);
            first.sync();
        });
    }

    private static void attaching(Case.Cases cases) {
        cases.add("2.6.3", "attach and detach in one flight", w -> {
            w.begun();
            w.expectReceiverOf(0);
            w.expectFlow().optional();
            w.expectDetach().withClosed(true).withError(nullValue());
            w.raw(performative(0, Amqp.ATTACH, "s0", 0, false, null, null, Amqp.composite(Amqp.SOURCE),
                Amqp.composite(Amqp.TARGET, w.topic), null, null, 0), performative(0, Amqp.DETACH, 0, true));
        });
        cases.add("2.6.3", "the target of the answer is the one that is in force", w -> {
            w.begun();
            w.expectAttach().ofReceiver().withTarget().withAddress(w.topic);
            w.expectFlow();
            w.asSender(0).now();
        });
        cases.add("2.6.3", "the source of the answer is the one that is in force", w -> {
            w.begun();
            w.expectAttach().ofSender().withSource().withAddress(w.topic);
            w.asReceiver(0).now();
        });
        cases.add("2.6.3", "a refused sender: attach without target, then detach", w -> {
            w.begun();
            w.expectAttach().ofReceiver().withNullTarget();
            w.detaches("amqp:invalid-field");
            w.asSender(0).withTarget().withAddress("a/#/b").and().now();
        });
        cases.add("2.6.3", "a refused receiver: attach without source, then detach", w -> {
            w.begun();
            w.expectAttach().ofSender().withNullSource();
            w.detaches("amqp:invalid-field");
            w.asReceiver(0).withSource().withAddress("a/#/b").and().now();
        });
        cases.add("2.6.3", "the handle of a refused link is used again", w -> {
            w.begun();
            for (int n = 0; n < 2; n++) {
                w.refuses("amqp:invalid-field");
                w.asSender(0).withTarget().withAddress("a/#/b").and().now();
                w.sync();
            }
            w.attachSender(0);
        });
        cases.add("2.6.3", "frames for a link that is being refused are passed over", w -> {
            w.begun();
            w.expectAttach().ofReceiver().withNullTarget();
            w.expectDetach().withClosed(true).withError("amqp:invalid-field", org.hamcrest.Matchers.anything());
            // In one flight: a flow behind the answer to the refusal is for no link.
            w.raw(performative(0, Amqp.ATTACH, "s0", 0, false, null, null, Amqp.composite(Amqp.SOURCE),
                Amqp.composite(Amqp.TARGET, "a/#/b"), null, null, 0),
                performative(0, Amqp.FLOW, 0, 9, 0, 9, 0, 0, 5));
        });
        cases.add("2.7.3", "a sender without initial-delivery-count", w -> {
            w.begun();
            w.ends("amqp:invalid-field");
            w.asSender(0).withNullInitialDeliveryCount().now();
        });
        cases.add("2.7.3", "attach without a name", w -> {
            w.begun();
            w.closes("amqp:invalid-field");
            w.raw(performative(0, Amqp.ATTACH, null, 0, false));
        });
        cases.add("2.7.3", "attach without a role", w -> {
            w.begun();
            w.closes("amqp:invalid-field");
            w.raw(performative(0, Amqp.ATTACH, "n", 0, null));
        });
        cases.add("2.7.3", "a settle mode that is none", w -> {
            w.begun();
            w.closes("amqp:invalid-field");
            w.raw(performative(0, Amqp.ATTACH, "n", 0, true, (byte) 3));
        });
        cases.add("2.7.3", "properties and capabilities of a link are taken", w -> {
            w.begun();
            w.expectReceiverOf(0);
            w.expectFlow();
            w.asSender(0).withProperty("product", "wire").withDesiredCapabilities("ANY")
                .withOfferedCapabilities("NONE").now();
        });
        cases.add("2.7.3", "the largest message is said to a sender", w -> {
            w.begun();
            w.expectAttach().ofReceiver().withMaxMessageSize(notNullValue());
            w.expectFlow();
            w.asSender(0).now();
        });
    }

    private static void detaching(Case.Cases cases) {
        cases.add("2.6.5", "detach is answered with detach", w -> {
            w.sender();
            w.expectDetach().withHandle(w.attach.getHandle()).withClosed(Wire.NO).withError(nullValue());
            w.remoteDetach().withHandle(0).now();
        });
        cases.add("2.6.6", "close of a link is answered with close", w -> {
            w.receiver(0);
            w.expectDetach().withClosed(true).withError(nullValue());
            w.remoteDetach().withHandle(0).withClosed(true).now();
        });
        cases.add("2.6.5", "detach with an error is answered without one", w -> {
            w.sender();
            w.expectDetach().withClosed(true).withError(nullValue());
            w.remoteDetach().withHandle(0).withClosed(true).withErrorCondition("amqp:internal-error", "x").now();
        });
        cases.add("2.6.4", "a link is attached again after detach", w -> {
            w.sender();
            for (int n = 0; n < 3; n++) {
                w.expectDetach();
                w.remoteDetach().withHandle(0).now();
                w.sync().attachSender(0);
            }
            w.expectAccepted(0);
            w.transfer(0, Amqp.data("x")).now();
        });
        cases.add("2.6.5", "no transfer comes after detach", w -> {
            w.receiver(9);
            w.expectDetach();
            w.remoteDetach().withHandle(0).withClosed(true).now();
            w.sync();
            w.feed(Amqp.data("m"));
            w.barrier();
        });
        cases.add("2.6.5", "a link in error leaves the others of its session", w -> {
            w.sender();
            w.attachSender(1);
            w.detaches("amqp:invalid-field");
            w.raw(performative(0, Amqp.TRANSFER, 0, 0));
            w.sync();
            w.expectAccepted(1);
            w.transfer(1, Amqp.data("x")).withHandle(1).now();
        });
        cases.add("2.6.5", "an answer to detach frees the handle of a link in error", w -> {
            w.sender();
            w.detaches("amqp:invalid-field");
            w.raw(performative(0, Amqp.TRANSFER, 0, 0));
            w.sync().attachSender(0);
            w.expectAccepted(1);
            w.transfer(1, Amqp.data("x")).now();
        });
    }

    private static void credit(Case.Cases cases) {
        cases.add("2.6.7", "a sender gets credit with its delivery-count", w -> {
            w.begun();
            w.expectReceiverOf(0);
            w.expectFlow().withDeliveryCount(0xfffffffeL).withDrain(Wire.NO)
                .withLinkCredit(notNullValue());
            w.asSender(0).withInitialDeliveryCount(0xfffffffeL).now();
        });
        cases.add("2.6.7", "delivery-count passes its highest value", w -> {
            w.begun();
            w.expectReceiverOf(0);
            w.expectFlow();
            w.asSender(0).withInitialDeliveryCount(0xffffffffL).now();
            w.sync();
            w.expectAccepted(0);
            w.transfer(0, Amqp.data("a")).now();
            w.sync();
            w.expectAccepted(1);
            w.transfer(1, Amqp.data("b")).now();
            w.sync();
            w.expectFlow().withDeliveryCount(1);
            w.remoteFlow().withHandle(0).withDeliveryCount(1).withLinkCredit(9).withEcho(true).now();
        });
        cases.add("2.6.7", "nothing is sent without credit", w -> {
            w.receiver(0);
            w.feed(Amqp.data("m"));
            w.barrier();
        });
        cases.add("2.6.7", "as many are sent as there is credit", w -> {
            w.receiver(2);
            byte[] message = Amqp.data("m");
            w.expectMessage(message);
            w.expectMessage(message);
            w.feed(message, message, message);
            w.barrier();
            w.expectMessage(message);
            w.remoteFlow().withHandle(0).withDeliveryCount(2).withLinkCredit(1).now();
        });
        cases.add("2.6.7", "credit is counted from the receiver's delivery-count", w -> {
            w.receiver(2);
            byte[] message = Amqp.data("m");
            w.expectMessage(message);
            w.feed(message);
            w.sync();
            // One of three has come already.
            w.expectFlow().withLinkCredit(2).withDeliveryCount(1);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(3).withEcho(true).now();
        });
        cases.add("2.6.7", "credit is taken back", w -> {
            w.receiver(5);
            w.expectFlow().withLinkCredit(0);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(0).withEcho(true).now();
            w.sync();
            w.feed(Amqp.data("m"));
            w.barrier();
        });
        cases.add("2.6.7", "flow with echo is answered with the state of the link", w -> {
            w.sender();
            w.expectFlow().withHandle(w.attach.getHandle().intValue()).withLinkCredit(notNullValue())
                .withDeliveryCount(0);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withEcho(true).now();
        });
        cases.add("2.6.7", "flow without echo is not answered", w -> {
            w.receiver(0);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(5).now();
        });
        cases.add("2.6.7", "a sender's credit is renewed before it is used up", w -> {
            w.begun();
            w.expectReceiverOf(0);
            long[] credit = {0};
            w.expectFlow().withCapture(it -> credit[0] = it.getLinkCredit().longValue());
            w.asSender(0).now();
            w.sync();
            int half = (int) credit[0] / 2;
            for (int id = 0; id <= half; id++) {
                w.remoteTransfer().withHandle(0).withDeliveryId(id).withSettled(true)
                    .withDeliveryTag(Amqp.be32(id)).withPayload(Amqp.data("m")).now();
            }
            // Some may have come since it was given.
            w.expectFlow().withPredicate(it -> it.getLinkCredit().longValue() > half);
        });
        cases.add("2.6.7", "a delivery without credit", w -> {
            w.begun();
            w.expectReceiverOf(0);
            long[] credit = {0};
            w.expectFlow().withCapture(it -> credit[0] = it.getLinkCredit().longValue());
            w.asSender(0).now();
            w.sync();
            // The sender says that it has used up its credit.
            w.remoteFlow().withHandle(0).withDeliveryCount(credit[0]).withLinkCredit(0).now();
            w.detaches("amqp:link:transfer-limit-exceeded");
            w.transfer(0, Amqp.data("m")).now();
        });
        cases.add("2.6.10", "a receiver that attaches later gets what comes later", w -> {
            w.feed(Amqp.data("early"));
            w.receiver(5);
            byte[] message = Amqp.data("late");
            w.expectMessage(message);
            w.feed(message);
        });
    }

    /** A receiver for which messages wait: they have come on its connection. */
    private static byte[] waiting(Wire w, int count) {
        byte[] message = Amqp.data("m");
        w.receiver(0).attachSender(1);
        for (int id = 0; id < count; id++) {
            w.expectAccepted(id);
            w.transfer(id, message).withHandle(1).now();
            w.sync();
        }
        return message;
    }

    private static void draining(Case.Cases cases) {
        cases.add("2.6.7", "drain without messages uses up the credit at once", w -> {
            w.receiver(0);
            w.expectFlow().withHandle(w.attach.getHandle().intValue()).withDrain(true).withLinkCredit(0)
                .withDeliveryCount(10);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(10).withDrain(true).now();
        });
        cases.add("2.6.7", "drain sends what there is, then uses up the credit", w -> {
            byte[] message = waiting(w, 2);
            w.expectMessage(message);
            w.expectMessage(message);
            w.expectFlow().withDrain(true).withLinkCredit(0).withDeliveryCount(10);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(10).withDrain(true).now();
        });
        cases.add("2.6.7", "drain with less credit than messages", w -> {
            byte[] message = waiting(w, 2);
            w.expectMessage(message);
            w.expectFlow().withDrain(true).withLinkCredit(0).withDeliveryCount(1);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(1).withDrain(true).now();
            w.sync();
            w.expectFlow().withDrain(true).withLinkCredit(0).withDeliveryCount(1);
            w.remoteFlow().withHandle(0).withDeliveryCount(1).withLinkCredit(0).withDrain(true).now();
        });
        cases.add("2.6.7", "after drain, credit works as before", w -> {
            w.receiver(0);
            w.expectFlow().withLinkCredit(0).withDeliveryCount(3);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(3).withDrain(true).now();
            w.sync();
            w.expectFlow().withLinkCredit(1).withDrain(Wire.NO);
            w.remoteFlow().withHandle(0).withDeliveryCount(3).withLinkCredit(1).withEcho(true).now();
            w.sync();
            byte[] message = Amqp.data("m");
            w.expectMessage(message);
            w.feed(message);
        });
        cases.add("2.6.7", "drain of no credit", w -> {
            w.receiver(0);
            w.expectFlow().withLinkCredit(0).withDeliveryCount(0);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(0).withDrain(true).withEcho(true).now();
        });
    }
}
