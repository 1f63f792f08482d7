//! Section 3.5, and the companion specifications for anonymous termini and
//! filters: sources and targets.
package wire;

import static org.hamcrest.Matchers.equalTo;
import static org.hamcrest.Matchers.hasKey;
import static org.hamcrest.Matchers.notNullValue;
import static org.hamcrest.Matchers.nullValue;
import static wire.Amqp.encode;
import static wire.Amqp.section;

import java.util.Map;
import org.apache.qpid.protonj2.test.driver.codec.messaging.TerminusDurability;
import org.apache.qpid.protonj2.test.driver.codec.messaging.TerminusExpiryPolicy;
import org.apache.qpid.protonj2.test.driver.codec.primitives.Symbol;

final class Termini {
    private static final byte[] BODY = Amqp.data("m");

    private Termini() {}

    static void add(Case.Cases cases) {
        addresses(cases);
        relay(cases);
        durability(cases);
        nodes(cases);
        filters(cases);
    }

    private static void addresses(Case.Cases cases) {
        cases.add("3.5.3", "a source without an address", w -> {
            w.begun();
            w.refuses("amqp:invalid-field");
            w.remoteAttach().withName("r0").withHandle(0).ofReceiver().withSource().and().withTarget().and().now();
        });
        cases.add("3.5.3", "a receiver without a source, of no subscription", w -> {
            w.begun();
            w.refuses("amqp:not-found");
            w.remoteAttach().withName("r0").withHandle(0).ofReceiver().withNullSource().withTarget().and().now();
        });
        cases.add("3.5.4", "a sender without a target", w -> {
            w.begun();
            w.refuses("amqp:invalid-field");
            w.remoteAttach().withName("s0").withHandle(0).ofSender().withInitialDeliveryCount(0).withSource().and()
                .withNullTarget().now();
        });
        cases.add("3.5.4", "a target that no client may send to", w -> {
            w.begun();
            w.refuses("amqp:unauthorized-access");
            w.asSender(0).withTarget().withAddress("$SYS/x").and().now();
        });
        cases.add("3.5.3", "a message waits in a queue for its receiver", w -> {
            String queue = "/queues/" + w.topic.replace('/', '-');
            w.begun();
            w.expectReceiverOf(0);
            w.expectFlow();
            w.asSender(0).withTarget().withAddress(queue).and().now();
            w.sync();
            w.expectAccepted(0);
            w.transfer(0, BODY).now();
            w.sync();
            w.expectSenderOf(1);
            w.asReceiver(1).withSource().withAddress(queue).and().now();
            w.sync();
            w.expectMessage(BODY).accept();
            w.remoteFlow().withHandle(1).withDeliveryCount(0).withLinkCredit(1).now();
        });
        cases.add("3.5.7", "a queue gives a message to one receiver only", w -> {
            String queue = "/queues/" + w.topic.replace('/', '-');
            w.begun();
            for (int handle = 1; handle < 3; handle++) {
                w.expectSenderOf(handle);
                w.asReceiver(handle).withSource().withAddress(queue).and().now();
                w.sync();
                w.expectFlow();
                w.remoteFlow().withHandle(handle).withDeliveryCount(0).withLinkCredit(5).withEcho(true).now();
                w.sync();
            }
            w.expectMessage(BODY).accept();
            Wire from = w.other().begun();
            from.expectReceiverOf(0);
            from.expectFlow();
            from.asSender(0).withTarget().withAddress(queue).and().now();
            from.sync();
            from.expectAccepted(0);
            from.transfer(0, BODY).now();
            from.sync();
            w.sync().barrier();
        });
        cases.add("3.5.3", "an address with wildcards of topics", w -> {
            w.begun();
            String filter = w.topic + "/+/c/#";
            w.expectSenderOf(0);
            w.asReceiver(0).withSource().withAddress(filter).and().now();
            w.sync();
            Wire.same(w.attach.getSource().getAddress(), filter, "the address of the answer");
        });
        cases.add("3.5.3", "an address that begins with /topics/", w -> {
            w.begun();
            w.expectSenderOf(0);
            w.asReceiver(0).withSource().withAddress("/topics/" + w.topic).and().now();
            w.sync().credit(1);
            w.expectMessage(BODY);
            w.feed(BODY);
        });
        cases.add("3.5.3", "the capability topic", w -> {
            w.begun();
            w.expectSenderOf(0);
            w.asReceiver(0).withSource().withAddress(w.topic).withCapabilities("topic").and().now();
        });
    }

    private static void relay(Case.Cases cases) {
        cases.add("anonterm 2", "a target without an address: each message says where it goes", w -> {
            w.receiver(1);
            w.expectMessage(to(w.topic));
            Wire from = anonymous(w.other());
            from.expectAccepted(0);
            from.transfer(0, to(w.topic)).now();
            from.sync();
        });
        cases.add("anonterm 2.2.2", "a message that says nothing", w -> {
            anonymous(w).expectRejected(0, "amqp:not-found");
            w.transfer(0, BODY).now();
        });
        cases.add("anonterm 2.2.2", "a message to what cannot be", w -> {
            anonymous(w).expectRejected(0, "amqp:not-found");
            w.transfer(0, to("a/+/b")).now();
        });
        cases.add("anonterm 2.2.2", "a message to where this client may not send", w -> {
            anonymous(w).expectRejected(0, "amqp:unauthorized-access");
            w.transfer(0, to("$SYS/x")).now();
        });
    }

    private static byte[] to(String address) {
        return encode(Amqp.composite(Amqp.PROPERTIES, null, null, address), section(Amqp.DATA, new byte[1]));
    }

    private static Wire anonymous(Wire w) {
        w.begun();
        w.expectReceiverOf(0);
        w.expectFlow();
        w.remoteAttach().withName("s0").withHandle(0).ofSender().withInitialDeliveryCount(0).withSource().and()
            .withTarget().and().now();
        return w.sync();
    }

    private static void durability(Case.Cases cases) {
        cases.add("3.5.5", "durability configuration is granted", w -> {
            w.begun();
            w.expectAttach().ofSender().withSource().withDurable(TerminusDurability.CONFIGURATION);
            w.asReceiver(0).withSource().withAddress(w.topic).withDurabilityOfConfiguration()
                .withExpiryPolicyOfNever().and().now();
        });
        cases.add("3.5.6", "expiry policy never is granted to a durable source", w -> {
            w.begun();
            w.expectAttach().ofSender().withSource().withExpiryPolicy(TerminusExpiryPolicy.NEVER);
            w.asReceiver(0).withSource().withAddress(w.topic).withDurabilityOfUnsettledState()
                .withExpiryPolicyOfNever().and().now();
        });
        cases.add("3.5.5", "a durable source is there for its container's next connection", w -> {
            Wire first = w.other();
            durable(first);
            first.finish();
            w.feed(BODY);
            durable(w);
            w.expectMessage(BODY);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(1).now();
        });
        cases.add("3.5.5", "the close of a durable source ends it", w -> {
            Wire first = w.other();
            durable(first);
            first.expectDetach().withClosed(true);
            first.remoteDetach().withHandle(0).withClosed(true).now();
            first.finish();
            w.feed(BODY);
            durable(w);
            w.credit(1);
        });
        cases.add("3.5.6", "a source with policy link-detach ends with its link", w -> {
            w.begun();
            w.expectSenderOf(0);
            w.asReceiver(0).withSource().withAddress(w.topic).withExpiryPolicyOnLinkDetach().and().now();
            w.sync();
            w.expectDetach();
            w.remoteDetach().withHandle(0).now();
            w.sync();
            w.feed(BODY);
            w.expectSenderOf(0);
            w.asReceiver(0).withSource().withAddress(w.topic).withExpiryPolicyOnLinkDetach().and().now();
            w.sync().credit(1);
        });
    }

    private static void durable(Wire w) {
        w.openedAs(w.topic);
        w.session(0);
        w.expectSenderOf(0);
        w.asReceiver(0).withSource().withAddress(w.topic).withDurabilityOfUnsettledState().withExpiryPolicyOfNever()
            .and().now();
        w.sync();
    }

    private static void nodes(Case.Cases cases) {
        cases.add("3.5.9", "a dynamic source gets an address", w -> {
            w.begun();
            w.expectAttach().ofSender().withSource().withAddress(notNullValue());
            w.remoteAttach().withName("d").withHandle(0).ofReceiver().withSource().withDynamic(true)
                .withLifetimePolicyOfDeleteOnClose().and().withTarget().and().now();
        });
        cases.add("3.5.9", "a dynamic target gets an address", w -> {
            w.begun();
            w.expectAttach().ofReceiver().withTarget().withAddress(notNullValue());
            w.expectFlow();
            w.remoteAttach().withName("d").withHandle(0).ofSender().withInitialDeliveryCount(0).withSource().and()
                .withTarget().withDynamic(true).withLifetimePolicyOfDeleteOnNoLinks().and().now();
        });
        cases.add("3.5.7", "distribution mode copy of a topic: others get the message too", w -> {
            w.begun();
            w.expectSenderOf(0);
            w.asReceiver(0).withSource().withAddress(w.topic).withDistributionMode("copy").and().now();
            w.sync().credit(1);
            Wire second = w.other().receiver(1);
            w.expectMessage(BODY);
            second.expectMessage(BODY);
            w.feed(BODY);
            second.sync();
        });
        cases.add("3.5.8", "outcomes of a source are those that the client knows", w -> {
            w.begun();
            w.expectSenderOf(0);
            w.asReceiver(0).withSource().withAddress(w.topic)
                .withOutcomes("amqp:accepted:list", "amqp:released:list").and().now();
        });
    }

    private static void filters(Case.Cases cases) {
        cases.add("3.5.8", "a filter that the broker does not know is not in its answer", w -> {
            w.begun();
            w.expectAttach().ofSender().withSource().withFilter(
                org.hamcrest.Matchers.anyOf(nullValue(), org.hamcrest.Matchers.not(hasKey(Symbol.valueOf("no:such")))));
            w.asReceiver(0).withSource().withAddress(w.topic).withFilterMap("no:such", "x").and().now();
        });
        cases.add("3.5.8", "a selector is in the answer", w -> {
            w.begun();
            w.expectAttach().ofSender().withSource().withFilter(notNullValue());
            w.asReceiver(0).withSource().withAddress(w.topic).withJMSSelector("colour = 'red'").and().now();
        });
        cases.add("3.5.8", "a selector selects", w -> {
            w.begun();
            w.expectSenderOf(0);
            w.asReceiver(0).withSource().withAddress(w.topic).withJMSSelector("colour = 'red'").and().now();
            w.sync().credit(5);
            byte[] red = coloured("red");
            w.expectMessage(red);
            w.feed(coloured("blue"), red, coloured("green"));
            w.barrier();
        });
        cases.add("3.5.8", "a selector that cannot be read is refused", w -> {
            w.begun();
            w.refuses("amqp:invalid-field");
            w.asReceiver(0).withSource().withAddress(w.topic).withJMSSelector("colour = = 'red'").and().now();
        });
        cases.add("3.5.8", "no-local: nothing of the same connection", w -> {
            w.begun();
            w.expectSenderOf(0);
            w.asReceiver(0).withSource().withAddress(w.topic).withNoLocal().and().now();
            w.sync().credit(5);
            w.attachSender(1);
            w.expectAccepted(0);
            w.transfer(0, BODY).withHandle(1).now();
            w.barrier();
        });
    }

    private static byte[] coloured(String colour) {
        return encode(section(Amqp.APPLICATION_PROPERTIES, Map.of("colour", colour)),
            section(Amqp.DATA, new byte[1]));
    }
}
