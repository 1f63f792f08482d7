//! A server of one connection, and what many cases expect of the client.
package own;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.qpid.protonj2.test.driver.ProtonTestServer;
import org.apache.qpid.protonj2.test.driver.actions.TransferInjectAction;
import org.apache.qpid.protonj2.test.driver.expectations.TransferExpectation;
import org.hamcrest.Description;
import org.hamcrest.Matcher;
import org.hamcrest.TypeSafeMatcher;

final class Server extends ProtonTestServer {
    /** The opening without SASL. */
    Server opened() {
        expectAMQPHeader().respondWithAMQPHeader();
        expectOpen().respond();
        expectBegin().respond();
        return this;
    }

    /** A link on which the client sends, with so much credit. */
    Server sender(int credit) {
        opened().expectAttach().ofSender().respond();
        return credit(credit);
    }

    Server credit(int credit) {
        remoteFlow().withLinkCredit(credit).queue();
        return this;
    }

    /** A link on which the client receives, and its credit. */
    Server receiver() {
        opened().expectAttach().ofReceiver().respond();
        expectFlow().withLinkCredit(256);
        return this;
    }

    /** The next message of the client. */
    TransferExpectation message() {
        return expectTransfer().withNonNullDeliveryTag().withNonNullPayload();
    }

    /** A message of the server whose sections are given. */
    TransferInjectAction sends(int number, byte[] sections) {
        return remoteTransfer()
            .withHandle(0)
            .withDeliveryId(number)
            .withDeliveryTag(new byte[] {(byte) number})
            .withMessageFormat(0)
            .withSettled(false)
            .withPayload(sections);
    }

    /** The client closes the link and then the connection. */
    void closed() {
        expectDetach().withClosed(true).respond();
        expectClose().respond();
    }

    /** One data section. */
    static byte[] data(String text) {
        return section(0x75, 0xa0, text);
    }

    /** A value section with a string. */
    static byte[] value(String text) {
        return section(0x77, 0xa1, text);
    }

    private static byte[] section(int descriptor, int code, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        ByteBuffer all = ByteBuffer.allocate(5 + bytes.length);
        all.put((byte) 0).put((byte) 0x53).put((byte) descriptor);
        return all.put((byte) code).put((byte) bytes.length).put(bytes).array();
    }

    static byte[] join(byte[]... parts) {
        ByteBuffer all = ByteBuffer.allocate(1024);
        for (byte[] part : parts) all.put(part);
        byte[] bytes = new byte[all.flip().remaining()];
        all.get(bytes);
        return bytes;
    }

    /** Bytes that a payload must have somewhere. */
    static Matcher<ByteBuffer> has(byte[] wanted) {
        return new TypeSafeMatcher<>() {
            @Override
            protected boolean matchesSafely(ByteBuffer buffer) {
                byte[] bytes = new byte[buffer.remaining()];
                buffer.duplicate().get(bytes);
                for (int at = 0; at + wanted.length <= bytes.length; at++) {
                    if (ByteBuffer.wrap(bytes, at, wanted.length).equals(ByteBuffer.wrap(wanted))) return true;
                }
                return false;
            }

            @Override
            public void describeTo(Description to) {
                to.appendText("bytes with ").appendValue(new String(wanted, StandardCharsets.ISO_8859_1));
            }
        };
    }

    static Matcher<ByteBuffer> has(String text) {
        return has(text.getBytes(StandardCharsets.UTF_8));
    }
}
