//! Section 2.6, second part, with 2.7.5 and 2.8.7: transfers of one and of many
//! frames, tags, ids, sizes.
package wire;

import static org.hamcrest.Matchers.equalTo;
import static org.hamcrest.Matchers.notNullValue;
import static org.hamcrest.Matchers.nullValue;
import static wire.Amqp.bytes;
import static wire.Amqp.concat;
import static wire.Amqp.encode;
import static wire.Amqp.frame;
import static wire.Amqp.performative;

final class Transfers {
    private Transfers() {}

    static void add(Case.Cases cases) {
        joining(cases);
        aborting(cases);
        names(cases);
        receiving(cases);
        sizes(cases);
    }

    private static byte[] part(byte[] payload, Object... fields) {
        return frame(0, encode(Amqp.composite(Amqp.TRANSFER, fields)), payload);
    }

    private static void joining(Case.Cases cases) {
        byte[] message = Amqp.data("a message in parts");
        byte[] head = java.util.Arrays.copyOfRange(message, 0, 7);
        byte[] tail = java.util.Arrays.copyOfRange(message, 7, message.length);
        cases.add("2.6.14", "a message of two transfers", w -> {
            w.sender();
            w.transfer(0, head).withMore(true).now();
            w.barrier();
            w.expectAccepted(0);
            w.transfer(0, tail).now();
        });
        cases.add("2.6.14", "further transfers need no id and no tag", w -> {
            w.sender();
            w.expectAccepted(0);
            w.raw(part(head, 0, 0, bytes(7), 0, false, true), part(tail, 0));
        });
        cases.add("2.6.14", "a transfer for each byte", w -> {
            w.sender();
            w.expectAccepted(0);
            for (int n = 0; n < message.length; n++) {
                byte[] one = bytes(message[n]);
                boolean more = n + 1 < message.length;
                w.raw(n == 0 ? part(one, 0, 0, bytes(7), 0, false, more) : part(one, 0, null, null, null, false, more));
            }
        });
        cases.add("2.6.14", "transfers without payload between", w -> {
            w.sender();
            w.expectAccepted(0);
            w.raw(part(new byte[0], 0, 0, bytes(7), 0, false, true), part(message, 0, null, null, null, null, true),
                part(new byte[0], 0));
        });
        cases.add("2.6.14", "transfers of two links between each other", w -> {
            w.sender();
            w.attachSender(1);
            w.raw(part(head, 0, 0, bytes(0), 0, false, true), part(head, 1, 1, bytes(1), 0, false, true));
            w.barrier();
            w.expectAccepted(1);
            w.raw(part(tail, 1));
            w.sync();
            w.expectAccepted(0);
            w.raw(part(tail, 0));
        });
        cases.add("2.6.14", "a message in parts arrives whole", w -> {
            w.receiver(5);
            w.expectMessage(message).accept();
            Wire from = w.other().sender();
            from.expectAccepted(0);
            from.raw(part(head, 0, 0, bytes(7), 0, false, true), part(tail, 0));
            from.sync();
        });
        cases.add("2.7.5", "another delivery-id within a delivery", w -> {
            w.sender();
            w.detaches("amqp:invalid-field");
            w.raw(part(head, 0, 0, bytes(7), 0, false, true), part(tail, 0, 1));
        });
        cases.add("2.7.5", "another delivery-tag within a delivery", w -> {
            w.sender();
            w.detaches("amqp:invalid-field");
            w.raw(part(head, 0, 0, bytes(7), 0, false, true), part(tail, 0, 0, bytes(8)));
        });
        cases.add("2.7.5", "another message-format within a delivery", w -> {
            w.sender();
            w.detaches("amqp:invalid-field");
            w.raw(part(head, 0, 0, bytes(7), 0, false, true), part(tail, 0, null, null, 1));
        });
        cases.add("2.7.5", "settled in the last transfer settles the delivery", w -> {
            w.sender();
            w.raw(part(head, 0, 0, bytes(7), 0, false, true), part(tail, 0, null, null, null, true));
            w.barrier();
        });
        cases.add("2.6.14", "a message that never ends is forgotten with its link", w -> {
            w.sender();
            w.raw(part(head, 0, 0, bytes(7), 0, false, true));
            w.barrier();
            w.expectDetach();
            w.remoteDetach().withHandle(0).withClosed(true).now();
            w.sync().attachSender(0);
            w.expectAccepted(1);
            w.transfer(1, message).now();
        });
    }

    private static void aborting(Case.Cases cases) {
        byte[] message = Amqp.data("m");
        cases.add("2.6.14", "an aborted message is not delivered", w -> {
            w.receiver(5);
            Wire from = w.other().sender();
            from.raw(part(message, 0, 0, bytes(7), 0, false, true),
                performative(0, Amqp.TRANSFER, 0, null, null, null, null, null, null, null, null, true));
            from.barrier();
            from.expectAccepted(1);
            from.transfer(1, message).now();
            w.expectMessage(message);
            from.sync();
        });
        cases.add("2.7.5", "an aborted message is settled: its tag is free", w -> {
            w.sender();
            w.raw(part(message, 0, 0, bytes(7), 0, false, true),
                performative(0, Amqp.TRANSFER, 0, null, null, null, null, null, null, null, null, true));
            w.expectAccepted(1);
            w.raw(part(message, 0, 1, bytes(7), 0));
        });
        cases.add("2.7.5", "aborted counts before more and settled", w -> {
            w.sender();
            w.raw(part(message, 0, 0, bytes(7), 0, false, true),
                performative(0, Amqp.TRANSFER, 0, null, null, null, true, true, null, null, null, true));
            w.barrier();
            w.expectAccepted(1);
            w.transfer(1, message).now();
        });
        cases.add("2.7.5", "a first transfer that is aborted", w -> {
            w.sender();
            w.raw(performative(0, Amqp.TRANSFER, 0, 0, bytes(7), 0, null, null, null, null, null, true));
            w.barrier();
            w.expectAccepted(1);
            w.transfer(1, message).now();
        });
    }

    private static void names(Case.Cases cases) {
        byte[] message = Amqp.data("m");
        cases.add("2.7.5", "a delivery without delivery-id", w -> {
            w.sender();
            w.detaches("amqp:invalid-field");
            w.raw(part(message, 0, null, bytes(7)));
        });
        cases.add("2.7.5", "a delivery without delivery-tag", w -> {
            w.sender();
            w.detaches("amqp:invalid-field");
            w.raw(part(message, 0, 0));
        });
        cases.add("2.7.5", "a transfer without handle", w -> {
            w.sender();
            w.closes("amqp:invalid-field");
            w.raw(part(message, null, 0, bytes(7)));
        });
        cases.add("2.8.7", "a delivery-tag of 32 bytes", w -> {
            w.sender();
            w.expectAccepted(0);
            w.raw(part(message, 0, 0, new byte[32], 0));
        });
        cases.add("2.8.7", "a delivery-tag of 33 bytes", w -> {
            w.sender();
            w.closes("amqp:invalid-field");
            w.raw(part(message, 0, 0, new byte[33], 0));
        });
        cases.add("2.8.7", "an empty delivery-tag", w -> {
            w.sender();
            w.expectAccepted(0);
            w.raw(part(message, 0, 0, new byte[0], 0));
        });
        cases.add("2.6.12", "a tag that an unsettled delivery has", w -> {
            w.begun();
            w.expectReceiverOf(0);
            w.expectFlow();
            w.asSender(0).withRcvSettleMode((byte) 1).now();
            w.sync();
            w.expectDisposition().withFirst(0).withSettled(Wire.NO).withState().accepted();
            w.raw(part(message, 0, 0, bytes(7), 0));
            w.sync();
            w.detaches("amqp:invalid-field");
            w.raw(part(message, 0, 1, bytes(7), 0));
        });
        cases.add("2.6.12", "a tag again after it was settled", w -> {
            w.sender();
            for (int id = 0; id < 3; id++) {
                w.expectAccepted(id);
                w.raw(part(message, 0, id, bytes(7), 0));
                w.sync();
            }
        });
        cases.add("2.6.12", "one tag on two links", w -> {
            w.sender();
            w.attachSender(1);
            w.expectAccepted(0);
            w.raw(part(message, 0, 0, bytes(7), 0));
            w.sync();
            w.expectAccepted(1);
            w.raw(part(message, 1, 1, bytes(7), 0));
        });
        cases.add("2.8.6", "delivery-ids pass their highest value", w -> {
            w.sender();
            for (long id : new long[] {0xfffffffeL, 0xffffffffL, 0, 1}) {
                w.expectDisposition().withFirst(id).withSettled(true).withState().accepted();
                w.raw(part(message, 0, (int) id, bytes((int) id), 0));
                w.sync();
            }
        });
        cases.add("2.8.6", "a delivery-id that goes back", w -> {
            w.sender();
            w.expectAccepted(5);
            w.transfer(5, message).now();
            w.sync();
            w.ends("amqp:invalid-field");
            w.raw(part(message, 0, 4, bytes(4), 0));
        });
        cases.add("2.7.5", "a transfer to the end that sends", w -> {
            w.receiver(0);
            w.detaches("amqp:not-allowed");
            w.raw(part(message, 0, 0, bytes(7), 0));
        });
    }

    private static void receiving(Case.Cases cases) {
        byte[] message = Amqp.data("m");
        cases.add("2.7.5", "a transfer of the broker has handle, id, tag and format", w -> {
            w.receiver(5);
            w.expectMessage(message).withHandle(w.attach.getHandle()).withDeliveryId(notNullValue())
                .withNonNullDeliveryTag().withMessageFormat(org.hamcrest.Matchers.anyOf(nullValue(), equalTo(Wire.uint(0))));
            w.feed(message);
        });
        cases.add("2.6.12", "tags of the broker differ", w -> {
            w.receiver(5);
            java.util.Set<Object> tags = new java.util.HashSet<>();
            for (int n = 0; n < 3; n++) {
                w.expectMessage(message).withCapture(it -> tags.add(it.getDeliveryTag()));
            }
            w.feed(message, message, message);
            w.sync();
            Wire.same(tags.size(), 3, "tags");
        });
        cases.add("2.8.6", "delivery-ids of the broker follow each other over all links", w -> {
            w.receiver(5);
            w.expectSenderOf(1);
            w.asReceiver(1).now();
            w.sync();
            w.expectFlow();
            w.remoteFlow().withHandle(1).withDeliveryCount(0).withLinkCredit(5).withEcho(true).now();
            w.sync();
            java.util.List<Long> ids = new java.util.ArrayList<>();
            for (int n = 0; n < 4; n++) {
                w.expectMessage(message).withCapture(it -> ids.add(it.getDeliveryId().longValue()));
            }
            w.feed(message, message);
            w.sync();
            for (int n = 1; n < 4; n++) Wire.same(ids.get(n), ids.get(0) + n & 0xffffffffL, "delivery-id " + ids);
        });
    }

    private static void sizes(Case.Cases cases) {
        cases.add("2.7.3", "a message larger than the broker's max-message-size", w -> {
            w.sender();
            long max = w.attach.getMaxMessageSize().longValue();
            byte[] chunk = new byte[32_000];
            w.expectFlow().optional();
            w.detaches("amqp:link:message-size-exceeded");
            w.raw(part(chunk, 0, 0, bytes(7), 0, false, true));
            for (long sent = chunk.length; sent <= max; sent += chunk.length) {
                w.raw(part(chunk, 0, null, null, null, null, true));
            }
        });
        cases.add("2.7.3", "a message as large as the broker's max-message-size", w -> {
            w.receiver(1);
            Wire from = w.other().sender();
            int max = (int) Math.min(from.attach.getMaxMessageSize().longValue(), 1 << 20);
            byte[] message = Amqp.data("x".repeat(max - 8));
            from.expectFlow().optional();
            from.expectAccepted(0);
            long[] got = {0};
            int frames = (int) w.open.getMaxFrameSize().longValue();
            for (int at = 0; at < message.length; at += 32_000) {
                int end = Math.min(message.length, at + 32_000);
                byte[] payload = java.util.Arrays.copyOfRange(message, at, end);
                from.raw(at == 0 ? part(payload, 0, 0, bytes(7), 0, false, true)
                    : part(payload, 0, null, null, null, false, end < message.length));
            }
            w.expectTransfer().withNonNullPayload();
            from.sync();
        });
        cases.add("2.7.3", "a message larger than the client's max-message-size is not sent", w -> {
            w.begun();
            w.expectSenderOf(0);
            w.asReceiver(0).withMaxMessageSize(
                org.apache.qpid.protonj2.test.driver.codec.primitives.UnsignedLong.valueOf(100)).now();
            w.sync().credit(5);
            byte[] small = Amqp.data("small");
            w.expectMessage(small);
            w.feed(Amqp.data("x".repeat(200)), small);
        });
    }
}
