//! The ProtonJ2 client under the scenarios of scripts/interop/scenarios.py.
package clients;

import static clients.Scenarios.argument;
import static clients.Scenarios.expect;
import static clients.Scenarios.topic;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.ClientOptions;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryMode;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.Session;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.exceptions.ClientException;

final class ProtonJ2 {
    interface Use {
        void with(Connection connection) throws Exception;
    }

    private ProtonJ2() {}

    public static void main(String[] args) {
        Map<String, Scenarios.Body> all = new HashMap<>();
        all.put("settled", () -> through(options(), DeliveryMode.AT_MOST_ONCE));
        all.put("unsettled", () -> through(options(), DeliveryMode.AT_LEAST_ONCE));
        all.put("small-frames", () -> through(options().maxFrameSize(512), DeliveryMode.AT_LEAST_ONCE));
        all.put("sasl", ProtonJ2::sasl);
        all.put("large", () -> using(ProtonJ2::large));
        all.put("wildcard", () -> using(ProtonJ2::wildcard));
        all.put("relay", () -> using(ProtonJ2::relay));
        all.put("properties", () -> using(ProtonJ2::properties));
        all.put("expiry", () -> using(ProtonJ2::expiry));
        all.put("to-mqtt", () -> using(ProtonJ2::toMqtt));
        all.put("from-mqtt", () -> using(ProtonJ2::fromMqtt));
        all.put("outcomes", () -> using(ProtonJ2::outcomes));
        all.put("drain", () -> using(ProtonJ2::drain));
        all.put("burst", () -> using(ProtonJ2::burst));
        all.put("refused", () -> using(ProtonJ2::refused));
        all.put("idle", ProtonJ2::idle);
        all.put("transaction", () -> using(ProtonJ2::transaction));
        Scenarios.main(args, all);
    }

    private static ConnectionOptions options() throws Exception {
        ConnectionOptions options = new ConnectionOptions();
        String transport = argument("transport");
        if (transport.equals("tls") || transport.equals("wss")) {
            options.sslEnabled(true).sslOptions().sslContextOverride(Scenarios.tls());
        }
        if (transport.startsWith("ws")) {
            options.transportOptions().useWebSockets(true).webSocketPath("/mqtt");
        }
        return options.openTimeout(Scenarios.MS_MAX).requestTimeout(Scenarios.MS_MAX).sendTimeout(Scenarios.MS_MAX);
    }

    private static void using(ConnectionOptions options, Use use) throws Exception {
        try (Client client = Client.create(new ClientOptions().id(UUID.randomUUID().toString()));
            Connection connection =
                client.connect(argument("host"), Integer.parseInt(argument("port")), options)) {
            connection.openFuture().get(Scenarios.MS_MAX, TimeUnit.MILLISECONDS);
            use.with(connection);
        }
    }

    private static void using(Use use) throws Exception {
        using(options(), use);
    }

    private static Receiver receiver(Connection connection, String source, int credit) throws Exception {
        Receiver receiver = connection.openReceiver(source, new ReceiverOptions().creditWindow(credit));
        receiver.openFuture().get(Scenarios.MS_MAX, TimeUnit.MILLISECONDS);
        return receiver;
    }

    private static Delivery next(Receiver receiver) throws Exception {
        Delivery delivery = receiver.receive(Scenarios.MS_MAX, TimeUnit.MILLISECONDS);
        expect(delivery != null, true, "a message");
        return delivery;
    }

    private static void send(Sender sender, Message<?> message) throws Exception {
        sender.send(message).awaitAccepted(Scenarios.MS_MAX, TimeUnit.MILLISECONDS);
    }

    private static void through(ConnectionOptions options, DeliveryMode mode) throws Exception {
        using(options, connection -> {
            String at = topic();
            Receiver from = receiver(connection, at, 10);
            Sender to = connection.openSender(at, new SenderOptions().deliveryMode(mode));
            for (String body : List.of("one", "", "drei \u20ac")) {
                to.send(Message.create(body)).awaitSettlement();
                expect(next(from).message().body(), body, "body");
            }
        });
    }

    private static void sasl() throws Exception {
        using(options().user("alice").password("wonderland"), connection -> {});
        ConnectionOptions anonymous = options();
        anonymous.saslOptions().addAllowedMechanism("ANONYMOUS");
        using(anonymous, connection -> {});
        ConnectionOptions without = options();
        without.saslOptions().saslEnabled(false);
        using(without, connection -> {});
        try {
            using(options().user("alice").password("looking-glass"), connection -> {});
        } catch (ClientException | java.util.concurrent.ExecutionException refused) {
            return;
        }
        throw new AssertionError("a wrong password was accepted");
    }

    private static void large(Connection connection) throws Exception {
        String at = topic();
        Receiver from = receiver(connection, at, 1);
        byte[] body = new byte[Scenarios.LARGE_BYTES];
        new java.util.Random(7).nextBytes(body);
        send(connection.openSender(at), Message.create(body));
        expect(java.util.Arrays.equals((byte[]) next(from).message().body(), body), true, "body");
    }

    private static void wildcard(Connection connection) throws Exception {
        String at = topic();
        Receiver from = receiver(connection, at + "/+/c/#", 10);
        for (String tail : List.of("a/x", "a/c", "b/c/d/e", "c")) {
            send(connection.openSender(at + "/" + tail), Message.create(tail));
        }
        Set<Object> got = new TreeSet<>();
        for (int n = 0; n < 2; n++) got.add(next(from).message().body());
        expect(got, Set.of("a/c", "b/c/d/e"), "matches");
    }

    private static void relay(Connection connection) throws Exception {
        String at = topic();
        Receiver from = receiver(connection, at + "/#", 10);
        for (String tail : List.of("a", "b")) {
            Sender to = connection.openAnonymousSender();
            send(to, Message.create(tail).to(at + "/" + tail));
            expect(next(from).message().body(), tail, "body");
        }
    }

    private static void properties(Connection connection) throws Exception {
        String at = topic();
        Receiver from = receiver(connection, at, 1);
        UUID id = UUID.randomUUID();
        Map<String, Object> body = new LinkedHashMap<>();
        body.put("list", List.of(1, "two"));
        Message<Map<String, Object>> sent = Message.create(body);
        sent.messageId(id).correlationId("corr").subject("greeting").replyTo(at + "/reply").contentType("text/plain");
        sent.groupId("group").groupSequence(4).priority((byte) 7).durable(true);
        sent.property("text", "a").property("number", 42).property("flag", true);
        sent.annotation("x-opt-mark", "m");
        send(connection.openSender(at), sent);
        Message<Map<String, Object>> got = next(from).message();
        expect(got.messageId(), id, "message-id");
        expect(got.correlationId(), "corr", "correlation-id");
        expect(got.subject() + got.replyTo() + got.contentType() + got.groupId() + got.groupSequence(),
            "greeting" + at + "/replytext/plaingroup4", "properties");
        expect(got.property("text"), "a", "application property");
        expect(got.property("number"), 42, "application property");
        expect(got.annotation("x-opt-mark"), "m", "annotation");
        expect(got.durable() && got.priority() == 7, true, "header");
        expect(got.body(), body, "body");
    }

    private static void expiry(Connection connection) throws Exception {
        String at = topic();
        Receiver from = receiver(connection, at, 1);
        send(connection.openSender(at), Message.create("x").timeToLive(30_000));
        long left = next(from).message().timeToLive();
        expect(left > 0 && left <= 30_000, true, "time to live is what is left");
    }

    private static void toMqtt(Connection connection) throws Exception {
        String at = topic();
        Sender to = connection.openSender(at);
        String heard = Scenarios.heard(at, () -> send(to, Message.create("payload").durable(true)
            .contentType("text/plain").replyTo("answers").property("k", "v")));
        for (String part : List.of("\"payload\":\"payload\"", "\"qos\":1", "text/plain", "answers")) {
            expect(heard.contains(part), true, part + " in " + heard);
        }
    }

    private static void fromMqtt(Connection connection) throws Exception {
        String at = topic();
        Receiver from = receiver(connection, at, 1);
        Scenarios.publish(at, "payload", "content-type", "text/plain", "user-property", "k=v");
        Message<byte[]> got = next(from).message();
        expect(new String(got.body()), "payload", "body");
        expect(got.to(), at, "to");
        expect(got.contentType(), "text/plain", "content-type");
        expect(got.property("k"), "v", "application property");
        expect(got.durable(), true, "durable");
    }

    private static void outcomes(Connection connection) throws Exception {
        String at = topic();
        Receiver from = connection.openReceiver(at, new ReceiverOptions().autoAccept(false));
        from.openFuture().get(Scenarios.MS_MAX, TimeUnit.MILLISECONDS);
        Sender to = connection.openSender(at);
        send(to, Message.create("first"));
        next(from).release();
        Delivery again = next(from);
        expect(again.message().body(), "first", "again");
        again.modified(true, false);
        again = next(from);
        expect(again.message().deliveryCount(), 1L, "delivery-count");
        again.reject("amqp:internal-error", "poison");
        send(to, Message.create("second"));
        expect(next(from).accept().message().body(), "second", "the next");
    }

    private static void drain(Connection connection) throws Exception {
        String at = topic();
        Receiver from = receiver(connection, at, 0);
        Sender to = connection.openSender(at);
        for (int n = 0; n < 4; n++) send(to, Message.create("x"));
        from.addCredit(10);
        from.drain().get(Scenarios.MS_MAX, TimeUnit.MILLISECONDS);
        expect(from.queuedDeliveries(), 4L, "messages");
    }

    private static void burst(Connection connection) throws Exception {
        String at = topic();
        Receiver from = receiver(connection, at, 100);
        Sender to = connection.openSender(at);
        java.util.ArrayList<Tracker> trackers = new java.util.ArrayList<>();
        for (int n = 0; n < Scenarios.BURST_MESSAGES; n++) trackers.add(to.send(Message.create(n)));
        for (int n = 0; n < Scenarios.BURST_MESSAGES; n++) expect(next(from).message().body(), n, "in order");
        for (Tracker tracker : trackers) tracker.awaitAccepted(Scenarios.MS_MAX, TimeUnit.MILLISECONDS);
    }

    private static void refused(Connection connection) throws Exception {
        for (String address : List.of("a/#/b", "$SYS/x")) {
            try {
                Sender sender = connection.openSender(address);
                sender.openFuture().get(Scenarios.MS_MAX, TimeUnit.MILLISECONDS);
                send(sender, Message.create("x"));
            } catch (ClientException | java.util.concurrent.ExecutionException refused) {
                continue;
            }
            throw new AssertionError(address + " was accepted");
        }
        send(connection.openSender(topic()), Message.create("x"));
    }

    private static void idle() throws Exception {
        using(options().idleTimeout(1000), connection -> {
            String at = topic();
            Receiver from = receiver(connection, at, 1);
            Thread.sleep(4000);
            send(connection.openSender(at), Message.create("still here"));
            expect(next(from).message().body(), "still here", "body");
        });
    }

    private static void transaction(Connection connection) throws Exception {
        String at = topic();
        Receiver from = receiver(connection, at, 10);
        Session session = connection.openSession();
        Sender to = session.openSender(at);
        session.beginTransaction();
        to.send(Message.create("rolled back"));
        session.rollbackTransaction();
        session.beginTransaction();
        to.send(Message.create("committed"));
        expect(from.tryReceive(), null, "nothing before the commit");
        session.commitTransaction();
        expect(next(from).message().body(), "committed", "body");
    }
}
