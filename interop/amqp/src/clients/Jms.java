//! Qpid JMS under the scenarios of scripts/interop/scenarios.py.
package clients;

import static clients.Scenarios.argument;
import static clients.Scenarios.expect;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSRuntimeException;
import jakarta.jms.Message;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.qpid.jms.JmsConnectionFactory;

final class Jms {
    interface Use {
        void with(JMSContext context) throws Exception;
    }

    private Jms() {}

    public static void main(String[] args) {
        Map<String, Scenarios.Body> all = new HashMap<>();
        all.put("unsettled", () -> using(Jms::through));
        all.put("sasl", Jms::sasl);
        all.put("large", () -> using(Jms::large));
        all.put("wildcard", () -> using(Jms::wildcard));
        all.put("properties", () -> using(Jms::properties));
        all.put("expiry", () -> using(Jms::expiry));
        all.put("priority", () -> using(Jms::priority));
        all.put("to-mqtt", () -> using(Jms::toMqtt));
        all.put("from-mqtt", () -> using(Jms::fromMqtt));
        all.put("recover", () -> using(JMSContext.CLIENT_ACKNOWLEDGE, Jms::recover));
        all.put("drain", Jms::drain);
        all.put("burst", () -> using(Jms::burst));
        all.put("refused", () -> using(Jms::refused));
        all.put("idle", Jms::idle);
        all.put("no-local", () -> using(Jms::noLocal));
        all.put("selector", () -> using(Jms::selector));
        all.put("durable", Jms::durable);
        all.put("shared", () -> using(Jms::shared));
        all.put("queue", () -> using(Jms::queue));
        all.put("plain-queue", Jms::plainQueue);
        all.put("delay", () -> using(Jms::delay));
        all.put("browse", () -> using(Jms::browse));
        all.put("temporary-queue", () -> using(Jms::temporaryQueue));
        all.put("temporary-topic", () -> using(Jms::temporaryTopic));
        all.put("transaction", () -> using(JMSContext.SESSION_TRANSACTED, Jms::transaction));
        Scenarios.main(args, all);
    }

    private static JmsConnectionFactory factory(String options) throws Exception {
        String transport = argument("transport");
        String scheme = switch (transport) {
            case "tls" -> "amqps";
            case "ws" -> "amqpws";
            case "wss" -> "amqpwss";
            default -> "amqp";
        };
        String path = transport.startsWith("ws") ? "/mqtt" : "";
        String url = scheme + "://" + argument("host") + ":" + argument("port") + path
            + "?jms.connectTimeout=10000&jms.requestTimeout=10000&jms.sendTimeout=10000" + options;
        JmsConnectionFactory factory = new JmsConnectionFactory(url);
        if (transport.endsWith("s") && !transport.equals("ws")) factory.setSslContext(Scenarios.tls());
        return factory;
    }

    private static void using(int mode, Use use) throws Exception {
        try (JMSContext context = factory("").createContext(mode)) {
            use.with(context);
        }
    }

    private static void using(Use use) throws Exception {
        using(JMSContext.AUTO_ACKNOWLEDGE, use);
    }

    private static Topic topic(JMSContext context) {
        return context.createTopic(Scenarios.topic());
    }

    private static String text(JMSConsumer consumer) throws Exception {
        Message message = consumer.receive(Scenarios.MS_MAX);
        expect(message instanceof TextMessage, true, "a message of text, not " + message);
        return ((TextMessage) message).getText();
    }

    private static void through(JMSContext context) throws Exception {
        Topic at = topic(context);
        JMSConsumer from = context.createConsumer(at);
        for (String body : List.of("one", "", "drei \u20ac")) {
            context.createProducer().send(at, body);
            expect(text(from), body, "body");
        }
    }

    private static void sasl() throws Exception {
        factory("").createContext("alice", "wonderland").close();
        using(context -> context.createQueue("any"));
        try (JMSContext context = factory("").createContext("alice", "looking-glass")) {
            context.start();
        } catch (JMSRuntimeException refused) {
            return;
        }
        throw new AssertionError("a wrong password was accepted");
    }

    private static void large(JMSContext context) throws Exception {
        Topic at = topic(context);
        JMSConsumer from = context.createConsumer(at);
        byte[] body = new byte[Scenarios.LARGE_BYTES];
        new java.util.Random(7).nextBytes(body);
        context.createProducer().send(at, body);
        byte[] got = from.receive(Scenarios.MS_MAX).getBody(byte[].class);
        expect(java.util.Arrays.equals(got, body), true, "body");
    }

    private static void wildcard(JMSContext context) throws Exception {
        String at = Scenarios.topic();
        JMSConsumer from = context.createConsumer(context.createTopic(at + "/+/c/#"));
        for (String tail : List.of("a/x", "a/c")) {
            context.createProducer().send(context.createTopic(at + "/" + tail), tail);
        }
        expect(text(from), "a/c", "the match");
    }

    private static void properties(JMSContext context) throws Exception {
        Topic at = topic(context);
        JMSConsumer from = context.createConsumer(at);
        TextMessage sent = context.createTextMessage("body");
        sent.setJMSCorrelationID("corr");
        sent.setJMSType("greeting");
        sent.setJMSReplyTo(at);
        sent.setIntProperty("number", 42);
        sent.setStringProperty("text", "a");
        sent.setBooleanProperty("flag", true);
        context.createProducer().setDeliveryMode(DeliveryMode.PERSISTENT).send(at, sent);
        Message got = from.receive(Scenarios.MS_MAX);
        expect(got.getJMSCorrelationID(), "corr", "correlation-id");
        expect(got.getJMSType(), "greeting", "subject");
        expect(got.getJMSReplyTo(), at, "reply-to");
        expect(got.getJMSDestination(), at, "to");
        expect(got.getJMSMessageID(), sent.getJMSMessageID(), "message-id");
        expect(got.getIntProperty("number"), 42, "application property");
        expect(got.getBooleanProperty("flag"), true, "application property");
        expect(got.getJMSDeliveryMode(), DeliveryMode.PERSISTENT, "durable");
    }

    private static void expiry(JMSContext context) throws Exception {
        Topic at = topic(context);
        JMSConsumer from = context.createConsumer(at);
        context.createProducer().setTimeToLive(30_000).send(at, "x");
        long left = from.receive(Scenarios.MS_MAX).getJMSExpiration() - System.currentTimeMillis();
        expect(left > 0 && left <= 30_000, true, "what is left, " + left);
    }

    private static void priority(JMSContext context) throws Exception {
        Topic at = topic(context);
        JMSConsumer from = context.createConsumer(at);
        for (int priority : new int[] {0, 4, 9}) {
            context.createProducer().setPriority(priority).send(at, "x");
            expect(from.receive(Scenarios.MS_MAX).getJMSPriority(), priority, "priority");
        }
    }

    private static void toMqtt(JMSContext context) throws Exception {
        Topic at = topic(context);
        String heard = Scenarios.heard(at.getTopicName(),
            () -> context.createProducer().setProperty("k", "v").send(at, "payload"));
        for (String part : List.of("\"payload\":\"payload\"", "\"qos\":1", "\"k\"")) {
            expect(heard.contains(part), true, part + " in " + heard);
        }
    }

    private static void fromMqtt(JMSContext context) throws Exception {
        Topic at = topic(context);
        JMSConsumer from = context.createConsumer(at);
        Scenarios.publish(at.getTopicName(), "payload", "user-property", "k=v");
        Message got = from.receive(Scenarios.MS_MAX);
        expect(got instanceof BytesMessage, true, "a message of bytes");
        expect(new String(got.getBody(byte[].class)), "payload", "body");
        expect(got.getStringProperty("k"), "v", "application property");
    }

    private static void recover(JMSContext context) throws Exception {
        Topic at = topic(context);
        JMSConsumer from = context.createConsumer(at);
        for (String body : List.of("one", "two")) context.createProducer().send(at, body);
        expect(text(from) + text(from), "onetwo", "bodies");
        context.recover();
        Message again = from.receive(Scenarios.MS_MAX);
        expect(again.getJMSRedelivered(), true, "redelivered");
        expect(again.getBody(String.class) + text(from), "onetwo", "again");
        context.acknowledge();
        context.recover();
        expect(from.receive(300), null, "nothing after the acknowledgement");
    }

    private static void drain() throws Exception {
        try (JMSContext context = factory("&jms.prefetchPolicy.all=0").createContext()) {
            Topic at = topic(context);
            JMSConsumer from = context.createConsumer(at);
            expect(from.receiveNoWait(), null, "nothing yet");
            context.createProducer().send(at, "one");
            expect(text(from), "one", "body");
            expect(from.receiveNoWait(), null, "nothing more");
        }
    }

    private static void burst(JMSContext context) throws Exception {
        Topic at = topic(context);
        JMSConsumer from = context.createConsumer(at);
        for (int n = 0; n < Scenarios.BURST_MESSAGES; n++) {
            context.createProducer().setDeliveryMode(DeliveryMode.NON_PERSISTENT).send(at, "" + n);
        }
        for (int n = 0; n < Scenarios.BURST_MESSAGES; n++) expect(text(from), "" + n, "in order");
    }

    private static void refused(JMSContext context) throws Exception {
        for (String address : List.of("a/#/b", "$SYS/x")) {
            try {
                context.createProducer().send(context.createTopic(address), "x");
            } catch (JMSRuntimeException refused) {
                continue;
            }
            throw new AssertionError(address + " was accepted");
        }
        context.createProducer().send(topic(context), "x");
    }

    private static void idle() throws Exception {
        try (JMSContext context = factory("&amqp.idleTimeout=1000").createContext()) {
            Topic at = topic(context);
            JMSConsumer from = context.createConsumer(at);
            Thread.sleep(4000);
            context.createProducer().send(at, "still here");
            expect(text(from), "still here", "body");
        }
    }

    private static void noLocal(JMSContext context) throws Exception {
        Topic at = topic(context);
        JMSConsumer from = context.createConsumer(at, null, true);
        context.createProducer().send(at, "x");
        expect(from.receive(300), null, "nothing of the same connection");
    }

    private static void selector(JMSContext context) throws Exception {
        Topic at = topic(context);
        JMSConsumer from = context.createConsumer(at, "colour = 'red' AND size > 2");
        for (String colour : List.of("blue", "red")) {
            for (int size : new int[] {1, 3}) {
                context.createProducer().setProperty("colour", colour).setProperty("size", size)
                    .send(at, colour + size);
            }
        }
        expect(text(from), "red3", "what is selected");
        expect(from.receive(300), null, "nothing else");
        Queue queue = queue("s", context);
        JMSConsumer odd = context.createConsumer(queue, "number = 1 OR number = 3");
        for (int n = 0; n < 4; n++) {
            context.createProducer().setProperty("number", n).send(queue, "" + n);
        }
        expect(text(odd) + text(odd), "13", "what is selected at the queue");
        expect(odd.receive(300), null, "nothing else at the queue");
        try (QueueBrowser browser = context.createBrowser(queue, "number = 2")) {
            expect(Collections.list(browser.getEnumeration()).size(), 1, "what is browsed");
        }
        odd.close();
        JMSConsumer rest = context.createConsumer(queue);
        expect(text(rest) + text(rest), "02", "the rest in its order");
    }

    private static void delay(JMSContext context) throws Exception {
        Queue queue = queue("d", context);
        JMSConsumer from = context.createConsumer(queue);
        long begin = System.currentTimeMillis();
        context.createProducer().setDeliveryDelay(700).send(queue, "late");
        context.createProducer().send(queue, "soon");
        expect(text(from), "soon", "what is not delayed");
        expect(text(from), "late", "what is delayed");
        long took = System.currentTimeMillis() - begin;
        expect(took >= 700, true, "a delay of 700 ms, not " + took);
    }

    private static void durable() throws Exception {
        String client = UUID.randomUUID().toString();
        String at = Scenarios.topic();
        try (JMSContext context = factory("&jms.clientID=" + client).createContext()) {
            context.createDurableConsumer(context.createTopic(at), "sub", "n > 1", false).close();
        }
        using(context -> {
            for (int n = 1; n < 3; n++) {
                context.createProducer().setProperty("n", n).send(context.createTopic(at), "" + n);
            }
        });
        try (JMSContext context = factory("&jms.clientID=" + client).createContext()) {
            JMSConsumer from =
                context.createDurableConsumer(context.createTopic(at), "sub", "n > 1", false);
            expect(text(from), "2", "what was selected while away");
            expect(from.receive(300), null, "nothing else");
            from.close();
            context.unsubscribe("sub");
        }
        using(context -> context.createProducer().send(context.createTopic(at), "after"));
        try (JMSContext context = factory("&jms.clientID=" + client).createContext()) {
            JMSConsumer from = context.createDurableConsumer(context.createTopic(at), "sub");
            expect(from.receive(300), null, "nothing after the end of the subscription");
        }
    }

    private static void shared(JMSContext context) throws Exception {
        Topic at = topic(context);
        JMSConsumer first = context.createSharedConsumer(at, "sub");
        JMSConsumer second = context.createSharedConsumer(at, "sub");
        for (int n = 0; n < 10; n++) context.createProducer().send(at, "" + n);
        int got = 0;
        while (first.receive(300) != null) got++;
        while (second.receive(300) != null) got++;
        expect(got, 10, "messages at both together");
    }

    private static Queue queue(String name, JMSContext context) {
        return context.createQueue("/queues/" + name + "-" + UUID.randomUUID());
    }

    private static void queue(JMSContext context) throws Exception {
        Queue at = queue("q", context);
        context.createProducer().send(at, "one");
        expect(text(context.createConsumer(at)), "one", "body");
    }

    /** Queues by plain names, whose first message comes before a consumer. */
    private static void plainQueue() throws Exception {
        String name = "orders-" + UUID.randomUUID();
        using(context -> {
            Queue at = context.createQueue(name);
            context.createProducer().setJMSReplyTo(at).send(at, "one");
            Queue same = context.createQueue("/queues/" + name);
            context.createProducer().send(same, "two");
        });
        try (Connection connection = factory("").createConnection()) {
            Session session = connection.createSession();
            Queue at = session.createQueue(name);
            // The anonymous producer of JMS 1.1, and one for the queue.
            session.createProducer(null).send(at, session.createTextMessage("three"));
            session.createProducer(at).send(session.createTextMessage("four"));
        }
        using(JMSContext.SESSION_TRANSACTED, context -> {
            context.createProducer().send(context.createQueue(name), "five");
            context.commit();
        });
        using(context -> {
            Queue at = context.createQueue(name);
            JMSConsumer from = context.createConsumer(at);
            JMSConsumer topic = context.createConsumer(context.createTopic(name));
            Message first = from.receive(Scenarios.MS_MAX);
            expect(first.getBody(String.class), "one", "body");
            expect(first.getJMSDestination(), at, "to");
            expect(first.getJMSReplyTo(), at, "reply-to");
            for (String body : List.of("two", "three", "four", "five")) {
                expect(text(from), body, "body");
            }
            context.createProducer().send(first.getJMSReplyTo(), "answer");
            expect(text(from), "answer", "what is sent to reply-to");
            expect(topic.receive(300), null, "nothing at the topic of that name");
        });
    }

    private static void browse(JMSContext context) throws Exception {
        Queue at = queue("b", context);
        for (int n = 0; n < 3; n++) context.createProducer().send(at, "" + n);
        try (QueueBrowser browser = context.createBrowser(at)) {
            expect(Collections.list(browser.getEnumeration()).size(), 3, "messages seen");
        }
        expect(text(context.createConsumer(at)), "0", "all are still there");
    }

    private static void temporaryQueue(JMSContext context) throws Exception {
        Queue at = context.createTemporaryQueue();
        JMSConsumer from = context.createConsumer(at);
        context.createProducer().send(at, "x");
        expect(text(from), "x", "body");
    }

    private static void temporaryTopic(JMSContext context) throws Exception {
        Topic at = context.createTemporaryTopic();
        JMSConsumer from = context.createConsumer(at);
        context.createProducer().send(at, "x");
        expect(text(from), "x", "body");
    }

    private static void transaction(JMSContext context) throws Exception {
        Topic at = topic(context);
        try (JMSContext other = factory("").createContext()) {
            JMSConsumer from = other.createConsumer(at);
            context.createProducer().send(at, "rolled back");
            context.rollback();
            context.createProducer().send(at, "committed");
            expect(from.receive(300), null, "nothing before the commit");
            context.commit();
            expect(text(from), "committed", "body");
        }
    }
}
