//! One connection to the broker under test, driven by protonj2-test-driver: what
//! arrives must be what the script expects, in its order, and nothing else.
package wire;

import static org.hamcrest.Matchers.anyOf;
import static org.hamcrest.Matchers.anything;
import static org.hamcrest.Matchers.equalTo;
import static org.hamcrest.Matchers.is;
import static org.hamcrest.Matchers.notNullValue;
import static org.hamcrest.Matchers.nullValue;

import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.qpid.protonj2.test.driver.ProtonTestClient;
import org.apache.qpid.protonj2.test.driver.actions.AttachInjectAction;
import org.apache.qpid.protonj2.test.driver.actions.TransferInjectAction;
import org.apache.qpid.protonj2.test.driver.codec.Codec;
import org.apache.qpid.protonj2.test.driver.codec.primitives.Binary;
import org.apache.qpid.protonj2.test.driver.codec.transport.Attach;
import org.apache.qpid.protonj2.test.driver.codec.transport.Begin;
import org.apache.qpid.protonj2.test.driver.codec.transport.Open;
import org.apache.qpid.protonj2.test.driver.expectations.AttachExpectation;
import org.apache.qpid.protonj2.test.driver.expectations.DispositionExpectation;
import org.apache.qpid.protonj2.test.driver.expectations.TransferExpectation;
import org.apache.qpid.protonj2.test.driver.netty.NettyClient;
import org.hamcrest.BaseMatcher;
import org.hamcrest.Description;
import org.hamcrest.Matcher;

final class Wire extends ProtonTestClient implements AutoCloseable {
    /** Longest that one expected answer may take. */
    static final long SECONDS_MAX = 20;

    /** A flag that is left out where it is false. */
    static final Matcher<?> NO = anyOf(nullValue(), is(false));

    /** An address of this case's own. */
    final String topic;

    private final int port;
    private final List<Wire> others = new ArrayList<>();
    /** The connection ends as the case says, without the runner's help. */
    private boolean over;
    /** The broker is to end the connection. */
    private boolean drops;

    /** What the broker said last. */
    Open open;
    Begin begin;
    Attach attach;

    Wire(int port, String topic) throws Exception {
        this.port = port;
        this.topic = topic;
        connect("127.0.0.1", port);
    }

    static Wire dial(int port) throws Exception {
        return new Wire(port, "wire/" + UUID.randomUUID());
    }

    /** Another connection of the same case. */
    Wire other() throws Exception {
        Wire wire = new Wire(port, topic);
        others.add(wire);
        return wire;
    }

    /** Waits for all that the script expects. */
    Wire sync() {
        getDriver().waitForScriptToComplete(SECONDS_MAX, TimeUnit.SECONDS);
        if (drops) {
            drops = false;
            awaitDrop();
            // Something may have come before the end.
            getDriver().waitForScriptToComplete();
        }
        return this;
    }

    /** The driver does not tell of the end of a connection that it dialled. */
    private void awaitDrop() {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS_MAX);
        try {
            Field field = ProtonTestClient.class.getDeclaredField("client");
            field.setAccessible(true);
            NettyClient client = (NettyClient) field.get(this);
            while (client.isConnected()) {
                if (System.nanoTime() > end) throw new AssertionError("the connection goes on");
                Thread.sleep(2);
            }
        } catch (ReflectiveOperationException | InterruptedException error) {
            throw new AssertionError(error);
        }
    }

    /** The connection is to end here, without the runner's help. */
    void ended() {
        over = true;
    }

    /** All is as expected, and the broker closes as the client asks. */
    void finish() {
        sync();
        if (!over) {
            expectClose().withError(nullValue());
            drops();
            remoteClose().now();
            sync();
        }
        others.forEach(Wire::finish);
    }

    @Override
    public void close() {
        others.forEach(Wire::close);
        super.close();
    }

    /** Bytes as they are. */
    void raw(byte[]... parts) {
        remoteBytes().withBytes(Amqp.concat(parts)).now();
    }

    /** The broker closes with an error, once asked wrongly. */
    void closes(String condition) {
        expectClose().withError(condition, anything()).respond();
        drops();
    }

    /** The broker opens and closes with an error. */
    void opensAndCloses(String condition) {
        expectOpen();
        closes(condition);
    }

    /** The broker just ends the connection. */
    void drops() {
        over = true;
        drops = true;
    }

    /** The broker ends the session with an error. */
    void ends(String condition) {
        expectEnd().withError(condition, anything()).respond();
    }

    /** The broker detaches the link with an error. */
    void detaches(String condition) {
        expectDetach().withClosed(true).withError(condition, anything()).respond();
    }

    /** The broker answers `attach` without a terminus and detaches. */
    void refuses(String condition) {
        expectAttach();
        detaches(condition);
    }

    Wire header() {
        expectAMQPHeader();
        remoteAMQPHeader().now();
        return sync();
    }

    /** A bare connection that is open. */
    Wire opened() {
        return openedAs(UUID.randomUUID().toString());
    }

    Wire openedAs(String container) {
        header();
        expectOpen().withCapture(it -> open = it);
        remoteOpen().withContainerId(container).now();
        return sync();
    }

    /** Tells the driver of a session that raw bytes begin. */
    void track(int channel) {
        getDriver().sessions().handleLocalBegin(new Begin(),
            org.apache.qpid.protonj2.test.driver.codec.primitives.UnsignedShort.valueOf((short) channel));
    }

    /** With a session on channel 0. */
    Wire begun() {
        return opened().session(0);
    }

    Wire session(int channel) {
        expectBegin().withRemoteChannel(channel);
        remoteBegin().withNextOutgoingId(0).withIncomingWindow(2048).withOutgoingWindow(2048)
            .onChannel(channel).now();
        return noteBegin();
    }

    /** Waits for the broker's `begin`; its expectation cannot capture it. */
    Wire noteBegin() {
        sync();
        begin = getDriver().sessions().getLastRemotelyOpenedSession().getRemoteBegin();
        return this;
    }

    /** `attach` of a sender to the address of this case. */
    AttachInjectAction asSender(int handle) {
        return remoteAttach().withName("s" + handle).withHandle(handle).ofSender()
            .withInitialDeliveryCount(0).withSource().withAddress("me").and()
            .withTarget().withAddress(topic).and();
    }

    AttachInjectAction asReceiver(int handle) {
        return remoteAttach().withName("r" + handle).withHandle(handle).ofReceiver()
            .withSource().withAddress(topic).and().withTarget().withAddress("me").and();
    }

    AttachExpectation expectReceiverOf(int handle) {
        return expectAttach().withName("s" + handle).ofReceiver().withCapture(it -> attach = it);
    }

    AttachExpectation expectSenderOf(int handle) {
        return expectAttach().withName("r" + handle).ofSender()
            .withInitialDeliveryCount(notNullValue()).withCapture(it -> attach = it);
    }

    /** A session with a sender at handle 0, which has credit. */
    Wire sender() {
        return begun().attachSender(0);
    }

    Wire attachSender(int handle) {
        expectReceiverOf(handle);
        expectFlow().withLinkCredit(notNullValue());
        asSender(handle).now();
        return sync();
    }

    /** A session with a receiver at handle 0. */
    Wire receiver(int credit) {
        begun();
        expectSenderOf(0);
        asReceiver(0).now();
        sync();
        return credit == 0 ? this : credit(credit);
    }

    /** Gives credit, counted from the first delivery, and waits until it is known. */
    Wire credit(int credit) {
        expectFlow().withLinkCredit(credit);
        remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(credit).withEcho(true).now();
        return sync();
    }

    /** What comes before the answer to this has come. */
    Wire barrier() {
        expectFlow();
        remoteFlow().withNullHandle().withEcho(true).now();
        return sync();
    }

    /** The same, with the window of the session as it stands. */
    Wire barrierAt(long nextIncomingId, long window) {
        expectFlow();
        remoteFlow().withNullHandle().withEcho(true).withNextIncomingId(nextIncomingId)
            .withIncomingWindow(window).now();
        return sync();
    }

    TransferInjectAction transfer(int id) {
        return remoteTransfer().withHandle(0).withDeliveryId(id)
            .withDeliveryTag(new byte[] {(byte) id}).withMessageFormat(0);
    }

    TransferInjectAction transfer(int id, byte[] message) {
        return transfer(id).withPayload(message);
    }

    /** An outcome of the broker that settles. */
    DispositionExpectation expectSettled(int id) {
        return expectDisposition().withRole(true).withFirst(id).withSettled(true)
            .withLast(anyOf(nullValue(), equalTo(uint(id))));
    }

    void expectAccepted(int id) {
        expectSettled(id).withState().accepted();
    }

    void expectRejected(int id, String condition) {
        expectSettled(id).withState(new Rejection(condition));
    }

    /** A whole message of the broker whose bare message and footer are these bytes. */
    TransferExpectation expectMessage(byte[] bare) {
        return expectPayload(new EndsWith(bare));
    }

    TransferExpectation expectPayload(Matcher<ByteBuffer> payload) {
        return expectTransfer().withMore(NO).withAborted(NO).withPayload(payload);
    }

    /** Messages from another connection to the address of this case. */
    Wire feed(byte[]... messages) throws Exception {
        Wire from = other().sender();
        for (int id = 0; id < messages.length; id++) {
            from.expectAccepted(id);
            from.transfer(id, messages[id]).now();
            from.sync();
        }
        return from;
    }

    /** What the broker makes of a message on its way to a receiver. */
    void passes(byte[] message, Matcher<ByteBuffer> arrives) throws Exception {
        receiver(10);
        expectPayload(arrives).accept();
        feed(message);
        sync();
    }

    /** What the broker answers to a message that it does not take. */
    void rejects(byte[] message, String condition) {
        sender();
        expectRejected(0, condition);
        transfer(0, message).now();
        sync();
    }

    static Object uint(long number) {
        return org.apache.qpid.protonj2.test.driver.codec.primitives.UnsignedInteger.valueOf(number);
    }

    static Map<Binary, org.apache.qpid.protonj2.test.driver.codec.transport.DeliveryState> unsettled(
        int tag, org.apache.qpid.protonj2.test.driver.codec.transport.DeliveryState state) {
        Map<Binary, org.apache.qpid.protonj2.test.driver.codec.transport.DeliveryState> map =
            new java.util.HashMap<>();
        map.put(new Binary(new byte[] {(byte) tag}), state);
        return map;
    }

    /** `rejected` with a condition, whatever it says for people. */
    static final class Rejection extends BaseMatcher<Object> {
        private final String condition;

        Rejection(String condition) {
            this.condition = condition;
        }

        @Override
        public boolean matches(Object state) {
            return state instanceof org.apache.qpid.protonj2.test.driver.codec.messaging.Rejected it
                && it.getError() != null
                && it.getError().getCondition().toString().equals(condition);
        }

        @Override
        public void describeTo(Description text) {
            text.appendText("rejected with " + condition);
        }
    }

    /** Takes anything and keeps the last. */
    static final class Seen extends BaseMatcher<Object> {
        Object last;

        @Override
        public boolean matches(Object value) {
            last = value;
            return true;
        }

        @Override
        public void describeTo(Description text) {
            text.appendText("anything");
        }
    }

    static final class EndsWith extends BaseMatcher<ByteBuffer> {
        private final byte[] bare;

        EndsWith(byte[] bare) {
            this.bare = bare;
        }

        @Override
        public boolean matches(Object payload) {
            ByteBuffer all = ((ByteBuffer) payload).duplicate();
            if (all.remaining() < bare.length) return false;
            all.position(all.limit() - bare.length);
            return all.equals(ByteBuffer.wrap(bare));
        }

        @Override
        public void describeTo(Description text) {
            text.appendText("a message that ends with ").appendValue(ByteBuffer.wrap(bare));
        }
    }

    /** Decodes the sections and looks at them. */
    static Matcher<ByteBuffer> sections(Consumer<List<Object>> look) {
        return new BaseMatcher<>() {
            private String why = "";

            @Override
            public boolean matches(Object payload) {
                ByteBuffer rest = ((ByteBuffer) payload).duplicate();
                List<Object> found = new ArrayList<>();
                while (rest.hasRemaining()) {
                    Codec codec = Codec.Factory.create();
                    codec.decode(rest);
                    found.add(codec.getDescribedType());
                }
                try {
                    look.accept(found);
                    return true;
                } catch (AssertionError | RuntimeException error) {
                    why = error + " in " + found;
                    return false;
                }
            }

            @Override
            public void describeTo(Description text) {
                text.appendText("the sections as they should be: " + why);
            }
        };
    }

    /** The only section of a type. */
    static <T> T only(List<Object> sections, Class<T> type) {
        List<T> found = sections.stream().filter(type::isInstance).map(type::cast).toList();
        if (found.size() != 1) {
            throw new AssertionError(found.size() + " sections " + type.getSimpleName());
        }
        return found.get(0);
    }

    static void same(Object got, Object want, String what) {
        if (!java.util.Objects.equals(got, want)) {
            throw new AssertionError(what + ": got " + got + ", want " + want);
        }
    }
}
