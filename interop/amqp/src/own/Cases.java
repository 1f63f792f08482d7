//! The cases, in the order of the specification.
package own;

import static own.Server.data;
import static own.Server.has;
import static own.Server.join;
import static own.Server.value;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.qpid.protonj2.test.driver.codec.primitives.UnsignedLong;
import org.apache.qpid.protonj2.test.driver.codec.security.SaslCode;
import org.hamcrest.Matcher;
import org.hamcrest.Matchers;

final class Cases {
    private static final String SEND = "send --sasl off -t a -m hello";
    private static final String RECEIVE = "receive --sasl off -t a -C 1";

    /** A flag that is left out where it is false. */
    private static final Matcher<?> NO = Matchers.anyOf(Matchers.nullValue(), Matchers.is(false));

    private static final Matcher<?> SELECTOR = Matchers.hasToString(
        Matchers.allOf(Matchers.containsString("selector-filter"), Matchers.containsString("colour='blue'")));

    private final List<Case> all = new ArrayList<>();

    private Cases() {}

    static List<Case> all() {
        Cases cases = new Cases();
        cases.connections();
        cases.sessions();
        cases.links();
        cases.transfers();
        cases.settling();
        cases.messages();
        cases.outcomes();
        cases.termini();
        cases.security();
        return cases.all;
    }

    private Case add(String section, String name, String command, Case.Script script) {
        Case it = new Case(section, name, command, script);
        all.add(it);
        return it;
    }

    private void connections() {
        add("2.2", "the header of AMQP, without SASL", SEND, s -> {
            s.sender(1).message().accept();
            s.closed();
        });
        add("2.2", "a server of another version", SEND, s -> {
            s.expectAMQPHeader();
            s.remoteBytes().withBytes(new byte[] {'A', 'M', 'Q', 'P', 0, 0, 9, 1}).queue();
            // It may have said that before it read the answer.
            s.expectOpen().optional();
            s.dropAfterLastHandler();
        }).fails(1, "another protocol than expected");
        add("2.4.1", "open has the container id and the host", SEND + " -i me", s -> {
            s.expectAMQPHeader().respondWithAMQPHeader();
            s.expectOpen().withContainerId("me").withHostname("127.0.0.1").respond();
            s.expectBegin().respond();
            s.expectAttach().ofSender().respond();
            s.credit(1).message().accept();
            s.closed();
        });
        add("2.4.3", "close is answered", RECEIVE + " -W 2", s -> {
            s.receiver().remoteClose().withErrorCondition("amqp:connection:forced", "gone").queue();
            s.expectClose();
        }).fails(27, "Timed out").once();
        add("2.4.5", "empty frames while the server wants signs of life", RECEIVE + " -W 2", s -> {
            s.expectAMQPHeader().respondWithAMQPHeader();
            s.expectOpen().respond().withIdleTimeOut(600);
            s.expectBegin().respond();
            s.expectAttach().ofReceiver().respond();
            s.expectFlow().withLinkCredit(256);
            for (int beat = 0; beat < 3; beat++) s.expectEmptyFrame();
            s.sends(0, data("x")).queue();
            s.expectDisposition().withSettled(true).withState().accepted();
            s.closed();
        }).prints("x\n");
    }

    private void sessions() {
        add("2.5.1", "begin asks for a session of its own", SEND, s -> {
            s.expectAMQPHeader().respondWithAMQPHeader();
            s.expectOpen().respond();
            s.expectBegin().withRemoteChannel(Matchers.nullValue()).respond();
            s.expectAttach().ofSender().respond();
            s.credit(1).message().accept();
            s.closed();
        });
        add("2.5.6", "a window of one transfer is not overrun", SEND + " -C 2 --settled", s -> {
            s.expectAMQPHeader().respondWithAMQPHeader();
            s.expectOpen().respond();
            s.expectBegin().respond().withIncomingWindow(1);
            s.expectAttach().ofSender().respond();
            s.remoteFlow().withIncomingWindow(1).withNextIncomingId(0).withLinkCredit(5).queue();
            s.message();
            s.remoteFlow().withIncomingWindow(1).withNextIncomingId(1).withLinkCredit(4)
                .withDeliveryCount(1).queue();
            s.message();
            s.closed();
        });
        add("2.5.4", "end is answered, and the connection closed", RECEIVE + " -W 2", s -> {
            s.receiver().remoteEnd().withErrorCondition("amqp:internal-error", "no").queue();
            s.expectEnd();
            s.expectClose().respond();
        }).fails(27, "Timed out").once();
    }

    private void links() {
        add("2.6.3", "a sender says its name, role and target", SEND, s -> {
            s.opened().expectAttach().ofSender().withName(Matchers.notNullValue())
                .withTarget().withAddress("a").and().withInitialDeliveryCount(0).respond();
            s.credit(1).message().accept();
            s.closed();
        });
        add("2.6.3", "a receiver says its source and gives credit", RECEIVE + " --credit 7", s -> {
            s.opened().expectAttach().ofReceiver().withSource().withAddress("a").and().respond();
            s.expectFlow().withLinkCredit(7);
            s.sends(0, data("x")).queue();
            s.expectDisposition().withSettled(true).withState().accepted();
            s.closed();
        }).prints("x\n");
        add("2.6.3", "a sender that is refused", SEND, s -> {
            s.opened().expectAttach().ofSender().reject(true, "amqp:not-found", "no such node");
            s.expectDetach().withClosed(true);
            s.expectClose().respond();
        }).fails(1, "amqp:not-found");
        add("2.6.3", "a receiver that is refused", RECEIVE, s -> {
            s.opened().expectAttach().ofReceiver().reject(true, "amqp:unauthorized-access", "no");
            s.expectFlow().withLinkCredit(256);
            s.expectDetach().withClosed(true);
            s.expectClose().respond();
        }).fails(1, "amqp:unauthorized-access");
        add("2.6.4", "a link that the server closes", SEND, s -> {
            s.opened().expectAttach().ofSender().respond();
            s.remoteDetach().withClosed(true).withErrorCondition("amqp:resource-deleted", "gone")
                .queue();
            s.expectDetach().withClosed(true);
            s.expectClose().respond();
        }).fails(1, "amqp:resource-deleted");
        add("2.6.7", "nothing is sent without credit", SEND, s -> {
            s.opened().expectAttach().ofSender().respond();
            s.execute(Cases::pause).queue();
            s.credit(1);
            s.message().accept();
            s.closed();
        });
        add("2.6.7", "one message for each credit", SEND + " -C 3", s -> {
            s.sender(1);
            for (int number = 0; number < 3; number++) {
                s.message().withDeliveryId(number).accept();
                if (number < 2) {
                    s.remoteFlow().withLinkCredit(1).withDeliveryCount(number + 1).queue();
                }
            }
            s.closed();
        });
        add("2.6.7", "a sender that is drained gives the credit back", SEND, s -> {
            s.sender(1).message();
            s.remoteFlow().withLinkCredit(5).withDeliveryCount(1).withDrain(true).queue();
            s.expectFlow().withLinkCredit(0).withDeliveryCount(6).withDrain(true);
            accepted(s);
            s.closed();
        });
        add("2.6.7", "a receiver drains", "receive --sasl off -t a --drain", s -> {
            s.receiver();
            s.expectFlow().withDrain(true).respond().withLinkCredit(0).withDeliveryCount(256)
                .withDrain(true);
            s.closed();
        }).prints("");
    }

    private void transfers() {
        add("2.6.12", "settled messages leave and nothing comes back", SEND + " --settled", s -> {
            s.opened().expectAttach().ofSender().withSenderSettleModeSettled().respond();
            s.credit(1).message().withSettled(true);
            s.closed();
        });
        add("2.6.12", "messages that come settled are not answered", RECEIVE + " --settled", s -> {
            s.opened().expectAttach().ofReceiver().withSenderSettleModeSettled().respond();
            s.expectFlow().withLinkCredit(256);
            s.sends(0, data("x")).withSettled(true).queue();
            s.closed();
        }).prints("x\n");
        add("2.6.14", "a message larger than a frame is cut", SEND.replace("hello", "x".repeat(1200)), s -> {
            s.expectAMQPHeader().respondWithAMQPHeader();
            s.expectOpen().respond().withMaxFrameSize(512);
            s.expectBegin().respond();
            s.expectAttach().ofSender().respond();
            s.credit(1).expectTransfer().withMore(true);
            s.expectTransfer().withMore(true);
            s.expectTransfer().withMore(NO);
            accepted(s);
            s.closed();
        });
        add("2.6.14", "a message of two frames is put together", RECEIVE, s -> {
            byte[] whole = data("abcdef");
            s.receiver().sends(0, Arrays.copyOf(whole, 7)).withMore(true).queue();
            s.sends(0, Arrays.copyOfRange(whole, 7, whole.length)).queue();
            s.expectDisposition().withSettled(true).withState().accepted();
            s.closed();
        }).prints("abcdef\n");
        add("2.6.14", "an aborted message is forgotten", RECEIVE, s -> {
            s.receiver().sends(0, Arrays.copyOf(data("abcdef"), 7)).withMore(true).queue();
            s.sends(0, new byte[0]).withMore(false).withAborted(true).queue();
            s.sends(1, data("next")).queue();
            s.expectDisposition().withFirst(1).withSettled(true).withState().accepted();
            s.closed();
        }).prints("next\n");
        add("2.7.3", "nothing larger than the receiver takes", SEND.replace("hello", "y".repeat(100)), s -> {
            s.opened().expectAttach().ofSender().respond().withMaxMessageSize(UnsignedLong.valueOf(50));
            s.credit(1).closed();
        }).fails(1, "larger than the receiver takes");
    }

    private void settling() {
        add("2.8.3", "second: the sender settles after the receiver's outcome", SEND + " --exactly-once", s -> {
            s.opened().expectAttach().ofSender().withSenderSettleModeUnsettled()
                .withReceiverSettlesSecond().respond();
            s.credit(1).message().withSettled(NO);
            s.remoteDisposition().withRole(true).withFirst(0).withSettled(false)
                .withState().accepted().queue();
            s.expectDisposition().withRole(false).withFirst(0).withSettled(true);
            s.closed();
        });
        add("2.8.3", "second: the receiver settles after the sender", RECEIVE + " --exactly-once", s -> {
            s.opened().expectAttach().ofReceiver().withReceiverSettlesSecond().respond();
            s.expectFlow().withLinkCredit(256);
            s.sends(0, data("x")).queue();
            s.expectDisposition().withRole(true).withSettled(NO).withState().accepted();
            s.remoteDisposition().withRole(false).withFirst(0).withSettled(true)
                .withState().accepted().queue();
            s.closed();
        }).prints("x\n");
    }

    private void messages() {
        add("3.2.1", "a header with what is not usual", SEND + " --durable --priority 7 --ttl 5", s -> {
            // List of durable, priority and ttl in milliseconds.
            byte[] header = {0, 0x53, 0x70, (byte) 0xc0, 9, 3, 0x41, 0x50, 7, 0x70, 0, 0, 0x13, (byte) 0x88};
            s.sender(1).message().withPayload(has(header)).accept();
            s.closed();
        });
        add("3.2.4", "properties", SEND + " --subject about --message-id id1 --reply-to back", s -> {
            s.sender(1).message().withPayload(Matchers.allOf(has("about"), has("id1"), has("back"))).accept();
            s.closed();
        });
        add("3.2.5", "application properties", SEND + " --property colour=blue", s -> {
            s.sender(1).message().withPayload(Matchers.allOf(has("colour"), has("blue"))).accept();
            s.closed();
        });
        add("3.2.6", "one data section goes out", SEND, s -> {
            s.sender(1).message().withPayload(has(data("hello"))).accept();
            s.closed();
        });
        add("3.2.6", "data sections are joined", RECEIVE, s -> {
            s.receiver().sends(0, join(data("ab"), data("cd"))).queue();
            s.expectDisposition().withSettled(true).withState().accepted();
            s.closed();
        }).prints("abcd\n");
        add("3.2.8", "a string is a payload", RECEIVE, s -> {
            s.receiver().sends(0, value("text")).queue();
            s.expectDisposition().withSettled(true).withState().accepted();
            s.closed();
        }).prints("text\n");
    }

    private void outcomes() {
        add("3.4.2", "accepted", SEND, s -> {
            s.sender(1).message().accept();
            s.closed();
        });
        add("3.4.3", "rejected, with a condition", SEND, s -> {
            s.sender(1).message().reject("amqp:decode-error", "not so");
            s.closed();
        }).fails(1, "amqp:decode-error");
        add("3.4.4", "released", SEND, s -> {
            s.sender(1).message().release();
            s.closed();
        }).fails(1, "released");
        add("3.4.4", "a receiver releases", RECEIVE + " --release", s -> {
            s.receiver().sends(0, data("x")).queue();
            s.expectDisposition().withSettled(true).withState().released();
            s.closed();
        }).prints("x\n");
        add("3.4.5", "modified", SEND, s -> {
            s.sender(1).message().modify(true, true);
            s.closed();
        }).fails(1, "modified");
    }

    private void termini() {
        add("3.5.3", "a source to browse", RECEIVE + " --browse", s -> {
            s.opened().expectAttach().ofReceiver().withSource().withDistributionMode("copy").and().respond();
            s.expectFlow().withLinkCredit(256);
            s.sends(0, data("x")).queue();
            s.expectDisposition().withSettled(true).withState().accepted();
            s.closed();
        }).prints("x\n");
        add("3.5.3", "a source with a selector", RECEIVE + " --selector colour='blue'", s -> {
            s.opened().expectAttach().ofReceiver().withSource().withFilter(SELECTOR).and().respond();
            s.expectFlow().withLinkCredit(256);
            s.sends(0, data("x")).queue();
            s.expectDisposition().withSettled(true).withState().accepted();
            s.closed();
        }).prints("x\n");
        add("3.5.3", "a source with a capability", RECEIVE + " --capability queue", s -> {
            s.opened().expectAttach().ofReceiver().withSource().withCapabilities("queue").and().respond();
            s.expectFlow().withLinkCredit(256);
            s.sends(0, data("x")).queue();
            s.expectDisposition().withSettled(true).withState().accepted();
            s.closed();
        }).prints("x\n");
        add("3.5.6", "a durable subscription stays", RECEIVE + " -i me --subscription sub", s -> {
            s.opened().expectAttach().ofReceiver().withName("sub").respond();
            s.expectFlow().withLinkCredit(256);
            s.sends(0, data("x")).queue();
            s.expectDisposition().withSettled(true).withState().accepted();
            s.expectDetach().withClosed(NO).respond();
            s.expectClose().respond();
        }).prints("x\n");
        add("3.5.6", "a durable subscription is ended", RECEIVE + " -i me --subscription sub --unsubscribe", s -> {
            s.opened().expectAttach().ofReceiver().withName("sub").respond();
            s.expectFlow().withLinkCredit(256);
            s.sends(0, data("x")).queue();
            s.expectDisposition().withSettled(true).withState().accepted();
            s.closed();
        }).prints("x\n");
        add("anonterm", "each message says where it goes", "send --sasl off --to b -m hello", s -> {
            s.opened().expectAttach().ofSender().withTarget()
                .withAddress(Matchers.nullValue()).and().respond();
            s.credit(1).message().withPayload(has(new byte[] {(byte) 0xa1, 1, 'b'})).accept();
            s.closed();
        });
    }

    private void security() {
        add("5.3", "ANONYMOUS", "send -t a -m hello", s -> {
            s.expectSASLAnonymousConnect();
            afterSasl(s);
        });
        add("5.3", "PLAIN", "send -t a -m hello -u user --pw secret", s -> {
            s.expectSASLPlainConnect("user", "secret");
            afterSasl(s);
        });
        add("5.3", "EXTERNAL", "send -t a -m hello --sasl external", s -> {
            s.expectSaslExternalConnect();
            afterSasl(s);
        });
        add("5.3", "wrong credentials", "send -t a -m hello -u user --pw wrong", s -> {
            s.expectSASLHeader().respondWithSASLHeader();
            s.remoteSaslMechanisms().withMechanisms("PLAIN").queue();
            s.expectSaslInit().withMechanism("PLAIN");
            s.remoteSaslOutcome().withCode(SaslCode.AUTH).queue();
            // They left in the same flight.
            s.expectAMQPHeader();
            s.expectOpen();
            s.expectBegin();
            s.expectAttach();
        }).fails(1, "refused the credentials");
    }

    /** The first message is. */
    private static void accepted(Server s) {
        s.remoteDisposition().withRole(true).withFirst(0).withSettled(true)
            .withState().accepted().queue();
    }

    private static void pause() {
        try {
            Thread.sleep(300);
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
    }

    private static void afterSasl(Server s) {
        s.expectOpen().respond();
        s.expectBegin().respond();
        s.expectAttach().ofSender().respond();
        s.credit(1).message().accept();
        s.closed();
    }
}
