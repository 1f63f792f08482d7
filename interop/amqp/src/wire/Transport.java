//! Sections 2.2 to 2.4: protocol versions, frames, connections.
package wire;

import static org.hamcrest.Matchers.anything;
import static org.hamcrest.Matchers.equalTo;
import static org.hamcrest.Matchers.notNullValue;
import static wire.Amqp.be32;
import static wire.Amqp.bytes;
import static wire.Amqp.concat;
import static wire.Amqp.encode;
import static wire.Amqp.frame;
import static wire.Amqp.open;
import static wire.Amqp.performative;

import java.util.Map;
import org.apache.qpid.protonj2.test.driver.codec.transport.AMQPHeader;

final class Transport {
    private Transport() {}

    static void add(Case.Cases cases) {
        versions(cases);
        frames(cases);
        opening(cases);
        limits(cases);
        states(cases);
        idle(cases);
        closing(cases);
    }

    private static byte[] header(int id, int major, int minor, int revision) {
        return bytes('A', 'M', 'Q', 'P', id, major, minor, revision);
    }

    private static void versions(Case.Cases cases) {
        cases.add("2.2", "the header of AMQP 1.0.0 is answered with the same", Wire::opened);
        cases.add("2.2", "a header in pieces", w -> {
            w.expectAMQPHeader();
            for (byte piece : header(0, 1, 0, 0)) w.raw(new byte[] {piece});
            w.sync();
            w.expectOpen();
            w.raw(open("c"));
        });
        int[][] others = {{0, 1, 1, 0}, {0, 1, 0, 1}, {0, 2, 0, 0}, {0, 0, 9, 1}, {1, 1, 0, 0}, {2, 1, 0, 0}, {9, 1, 0, 0}};
        for (int[] it : others) {
            String name = it[0] + " " + it[1] + "." + it[2] + "." + it[3];
            cases.add("2.2", "protocol " + name + ": the header that is supported, and the end", w -> {
                w.expectAMQPHeader();
                w.drops();
                w.raw(header(it[0], it[1], it[2], it[3]));
            });
        }
        cases.add("2.2", "the broker waits for the client's header", w -> {
            Thread.sleep(200);
            w.header();
            w.expectOpen();
            w.raw(open("c"));
        });
        cases.add("2.2", "bytes that begin like a header and are none", w -> {
            w.expectAMQPHeader();
            w.drops();
            w.raw(bytes('A', 'M', 'Q', 'X', 0, 1, 0, 0));
        });
    }

    private static void frames(Case.Cases cases) {
        byte[] body = encode(Amqp.composite(Amqp.OPEN, "c"));
        cases.add("2.3.1", "an extended header is passed over", w -> {
            w.header();
            w.expectOpen();
            w.raw(concat(be32(8 + 4 + body.length), bytes(3, 0, 0, 0), bytes(1, 2, 3, 4), body));
        });
        cases.add("2.3.1", "a data offset below two", w -> {
            w.header();
            w.opensAndCloses("amqp:connection:framing-error");
            w.raw(frame(1, 0, 0, body));
        });
        cases.add("2.3.1", "a data offset beyond the frame", w -> {
            w.header();
            w.opensAndCloses("amqp:connection:framing-error");
            w.raw(frame(200, 0, 0, body));
        });
        cases.add("2.3.1", "a frame shorter than its header", w -> {
            w.header();
            w.opensAndCloses("amqp:connection:framing-error");
            w.raw(be32(7), bytes(2, 0, 0));
        });
        cases.add("2.3.1", "a frame of a type that is not known", w -> {
            w.opened();
            w.closes("amqp:connection:framing-error");
            w.raw(frame(2, 9, 0, bytes(0x45)));
        });
        cases.add("2.3.1", "a frame of SASL after open", w -> {
            w.opened();
            w.closes("amqp:connection:framing-error");
            w.raw(Amqp.sasl(encode(Amqp.composite(0x41, Amqp.sym("ANONYMOUS")))));
        });
        cases.add("2.3.2", "an empty frame says nothing", w -> {
            w.opened();
            w.remoteEmptyFrame().now();
            w.raw(frame(0), frame(7));
        });
        cases.add("2.3.2", "a frame in pieces", w -> {
            w.opened();
            w.track(0);
            w.expectBegin().withRemoteChannel(0);
            for (byte piece : performative(0, Amqp.BEGIN, null, 0, 10, 10)) w.raw(new byte[] {piece});
        });
        cases.add("2.3.2", "many frames at once", w -> {
            w.opened();
            w.expectBegin().withRemoteChannel(0);
            w.expectBegin().withRemoteChannel(1);
            w.expectEnd();
            w.track(0);
            w.track(1);
            w.raw(performative(0, Amqp.BEGIN, null, 0, 10, 10),
                performative(1, Amqp.BEGIN, null, 0, 10, 10), performative(0, Amqp.END));
        });
        cases.add("2.3.2", "bytes after the performative of a frame without payload", w -> {
            w.header();
            w.opensAndCloses("amqp:decode-error");
            w.raw(frame(0, body, bytes(1, 2, 3)));
        });
        cases.add("2.3.2", "a frame with a value that is no performative", w -> {
            w.opened();
            w.closes("amqp:decode-error");
            w.raw(frame(0, encode("text")));
        });
    }

    private static void opening(Case.Cases cases) {
        cases.add("2.4.1", "open is answered with open on channel 0", w -> {
            w.header();
            w.expectOpen().withContainerId(notNullValue()).onChannel(0);
            w.raw(open("c"));
        });
        cases.add("2.4.1", "header and open at once", w -> {
            w.expectAMQPHeader();
            w.expectOpen();
            w.raw(AMQPHeader.getAMQPHeader().getBuffer(), open("c"));
        });
        cases.add("2.4.1", "pipelined from header to close", w -> {
            w.expectAMQPHeader();
            w.expectOpen();
            w.expectBegin().withRemoteChannel(0);
            w.expectAttach().withName("n").ofReceiver();
            w.expectFlow().optional();
            w.expectEnd();
            w.expectClose();
            w.drops();
            w.track(0);
            w.raw(AMQPHeader.getAMQPHeader().getBuffer(), open("c"), performative(0, Amqp.BEGIN, null, 0, 10, 10),
                performative(0, Amqp.ATTACH, "n", 0, false, null, null, Amqp.composite(Amqp.SOURCE),
                    Amqp.composite(Amqp.TARGET, w.topic), null, null, 0));
            // What was attached is known before it ends.
            w.raw(performative(0, Amqp.END), performative(0, Amqp.CLOSE));
        });
        cases.add("2.4.1", "open on another channel than 0", w -> {
            w.header();
            w.opensAndCloses("amqp:connection:framing-error");
            w.raw(performative(1, Amqp.OPEN, "c"));
        });
        cases.add("2.4.1", "a second open", w -> {
            w.opened();
            w.closes("amqp:illegal-state");
            w.raw(open("c"));
        });
        cases.add("2.7.1", "a host that the broker does not know is its default one", w -> {
            w.header();
            w.expectOpen();
            w.remoteOpen().withContainerId("c").withHostname("no.such.host").now();
        });
        cases.add("2.7.1", "a container id of 600 bytes", w -> {
            w.header();
            w.expectOpen();
            w.raw(open("c".repeat(600)));
        });
        cases.add("2.7.1", "locales, capabilities and properties are taken", w -> {
            w.header();
            w.expectOpen();
            w.remoteOpen().withContainerId("c").withOutgoingLocales("de-DE", "en-US").withIncomingLocales("en-US")
                .withDesiredCapabilities("ANY").withOfferedCapabilities("NONE")
                .withProperty("product", "wire").now();
        });
        cases.add("2.7.1", "the relay for anonymous senders is offered", w -> {
            w.header();
            w.expectOpen().withOfferedCapability("ANONYMOUS-RELAY");
            w.raw(open("c"));
        });
    }

    private static void limits(Case.Cases cases) {
        cases.add("2.7.1", "a frame of 512 bytes as open", w -> {
            w.header();
            w.expectOpen();
            byte[] small = open("c", "h".repeat(300));
            byte[] whole = open("c", "h".repeat(300 + 512 - small.length));
            Wire.same(whole.length, 512, "bytes of the frame");
            w.raw(whole);
        });
        cases.add("2.7.1", "max-frame-size below 512", w -> {
            w.header();
            w.opensAndCloses("amqp:invalid-field");
            w.raw(open("c", null, 511));
        });
        cases.add("2.7.1", "max-frame-size of 512 holds for what the broker sends", w -> {
            w.header();
            w.expectOpen();
            w.remoteOpen().withContainerId("c").withMaxFrameSize(512).now();
            w.sync();
            w.session(0);
            w.expectSenderOf(0);
            w.asReceiver(0).now();
            w.sync().credit(1);
            byte[] message = Amqp.data("x".repeat(1000));
            int[] got = {0};
            for (int n = 0; n < 3; n++) {
                boolean last = n == 2;
                w.expectTransfer().withMore(last ? Wire.NO : equalTo(true)).withPayload(size(512, got));
            }
            w.feed(message);
            w.sync();
            Wire.same(got[0] >= message.length, true, "all of the message");
        });
        cases.add("2.7.1", "a frame larger than the broker's max-frame-size", w -> {
            w.opened();
            long max = w.open.getMaxFrameSize().longValue();
            w.closes("amqp:connection:framing-error");
            w.raw(be32((int) max + 1), bytes(2, 0, 0, 0));
        });
        cases.add("2.7.1", "a frame as large as the broker's max-frame-size", w -> {
            w.sender();
            int max = (int) w.open.getMaxFrameSize().longValue();
            byte[] head = encode(Amqp.composite(Amqp.TRANSFER, 0, 0, bytes(0), 0));
            byte[] message = Amqp.data("x".repeat(max - 8 - head.length - 8));
            w.expectAccepted(0);
            w.raw(frame(0, head, message));
        });
        cases.add("2.7.1", "channel-max is the highest channel", w -> {
            w.opened();
            w.session(w.open.getChannelMax().intValue());
        });
        cases.add("2.7.1", "begin above channel-max", w -> {
            w.opened();
            w.closes("amqp:connection:framing-error");
            w.raw(performative(w.open.getChannelMax().intValue() + 1, Amqp.BEGIN, null, 0, 10, 10));
        });
        cases.add("2.7.1", "the broker keeps to the client's channel-max", w -> {
            w.header();
            w.expectOpen();
            w.remoteOpen().withContainerId("c").withChannelMax(0).now();
            w.sync();
            w.expectBegin().withRemoteChannel(0).onChannel(0);
            w.remoteBegin().withNextOutgoingId(0).withIncomingWindow(9).withOutgoingWindow(9).onChannel(0).now();
        });
    }

    private static org.hamcrest.Matcher<java.nio.ByteBuffer> size(int max, int[] sum) {
        return new org.hamcrest.BaseMatcher<>() {
            @Override
            public boolean matches(Object payload) {
                int size = ((java.nio.ByteBuffer) payload).remaining();
                sum[0] += size;
                return size < max;
            }

            @Override
            public void describeTo(org.hamcrest.Description text) {
                text.appendText("a payload within the frame");
            }
        };
    }

    private static void states(Case.Cases cases) {
        byte[][] early = {
            performative(0, Amqp.BEGIN, null, 0, 10, 10),
            performative(0, Amqp.FLOW, 0, 1, 0, 1),
            performative(0, Amqp.TRANSFER, 0, 0, bytes(0)),
            performative(0, Amqp.DETACH, 0),
            performative(0, Amqp.END),
            performative(0, Amqp.CLOSE),
        };
        String[] names = {"begin", "flow", "transfer", "detach", "end", "close"};
        for (int n = 0; n < early.length; n++) {
            byte[] frame = early[n];
            cases.add("2.4.6", names[n] + " before open", w -> {
                w.header();
                w.opensAndCloses("amqp:illegal-state");
                w.raw(frame);
            });
        }
        cases.add("2.4.6", "an empty frame before open", w -> {
            w.header();
            w.expectOpen();
            w.raw(frame(0), open("c"));
        });
        cases.add("2.4.6", "a frame on a channel without a session", w -> {
            w.opened();
            w.closes("amqp:illegal-state");
            w.raw(performative(3, Amqp.FLOW, 0, 1, 0, 1));
        });
        cases.add("2.4.6", "frames after the broker's close with an error are passed over", w -> {
            w.opened();
            w.closes("amqp:illegal-state");
            w.raw(performative(3, Amqp.FLOW, 0, 1, 0, 1), performative(0, Amqp.BEGIN, null, 0, 10, 10),
                performative(0, Amqp.FLOW, 0, 1, 0, 1));
        });
    }

    private static void idle(Case.Cases cases) {
        cases.add("2.4.5", "empty frames keep a connection that asks for them", w -> {
            w.header();
            w.expectOpen();
            for (int n = 0; n < 3; n++) w.expectEmptyFrame();
            w.remoteOpen().withContainerId("c").withIdleTimeOut(1000).now();
            long begin = System.nanoTime();
            w.sync();
            long ms = (System.nanoTime() - begin) / 1_000_000;
            Wire.same(ms < 3000, true, "three within three time-outs, after " + ms + " ms");
            w.expectEmptyFrame().optional();
        });
        cases.add("2.4.5", "an idle-time-out of 0 asks for nothing", w -> {
            w.header();
            w.expectOpen();
            w.remoteOpen().withContainerId("c").withIdleTimeOut(0).now();
            w.sync();
            Thread.sleep(300);
        });
        cases.add("2.4.5", "a time-out too short to keep is refused", w -> {
            w.header();
            w.opensAndCloses("amqp:not-allowed");
            w.remoteOpen().withContainerId("c").withIdleTimeOut(1).now();
        });
        cases.add("2.4.5", "the broker says its own time-out", w -> {
            w.header();
            w.expectOpen().withIdleTimeOut(notNullValue());
            w.raw(open("c"));
        });
        cases.slow("2.4.5", "silence for more than the broker's time-out ends the connection", w -> {
            w.opened();
            long announced = w.open.getIdleTimeOut().longValue();
            w.closes("amqp:resource-limit-exceeded");
            long begin = System.nanoTime();
            w.getDriver().waitForScriptToComplete(90, java.util.concurrent.TimeUnit.SECONDS);
            long ms = (System.nanoTime() - begin) / 1_000_000;
            Wire.same(ms >= announced, true, "not before the " + announced + " ms it said, after " + ms);
        });
        cases.slow("2.4.5", "empty frames of the client keep the connection", w -> {
            w.opened();
            for (int n = 0; n < 8; n++) {
                Thread.sleep(10_000);
                w.remoteEmptyFrame().now();
            }
        });
    }

    private static void closing(Case.Cases cases) {
        cases.add("2.4.3", "close is answered with close, and the end", Wire::opened);
        cases.add("2.4.3", "close with an error is answered without one", w -> {
            w.opened();
            w.expectClose().withError(org.hamcrest.Matchers.nullValue());
            w.drops();
            w.remoteClose().withErrorCondition("amqp:internal-error", "enough").now();
        });
        cases.add("2.4.3", "close with sessions and links", w -> {
            w.sender();
            w.attachSender(1);
        });
        cases.add("2.4.3", "close on another channel", w -> {
            w.opened();
            w.expectClose().withError(org.hamcrest.Matchers.nullValue());
            w.drops();
            w.raw(performative(3, Amqp.CLOSE));
        });
        cases.add("2.4.3", "nothing follows the broker's close", w -> {
            w.opened();
            w.expectClose();
            w.drops();
            w.raw(performative(0, Amqp.CLOSE), performative(0, Amqp.BEGIN, null, 0, 10, 10));
        });
        cases.add("2.4.4", "the same container connects twice", w -> {
            w.openedAs(w.topic);
            w.other().openedAs(w.topic);
            w.session(0);
        });
        cases.add("2.4.7", "a connection that the client cuts leaves no link behind", w -> {
            Wire cut = w.other();
            cut.receiver(5);
            cut.close();
            cut.ended();
            w.sender();
            w.expectAccepted(0);
            w.transfer(0, Amqp.data("x")).now();
        });
    }
}
