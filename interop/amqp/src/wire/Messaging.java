//! Section 3.2: the sections of a message and what a node does with each.
package wire;

import static wire.Amqp.bytes;
import static wire.Amqp.concat;
import static wire.Amqp.encode;
import static wire.Amqp.section;
import static wire.Amqp.sym;

import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.qpid.protonj2.test.driver.codec.messaging.DeliveryAnnotations;
import org.apache.qpid.protonj2.test.driver.codec.messaging.Header;

final class Messaging {
    private static final byte[] BODY = Amqp.data("body");

    private Messaging() {}

    static void add(Case.Cases cases) {
        order(cases);
        headers(cases);
        annotations(cases);
        properties(cases);
        bodies(cases);
        formats(cases);
    }

    private static byte[] of(Object... sections) {
        return encode(sections);
    }

    private static Amqp.Described header(Object... fields) {
        return Amqp.composite(Amqp.HEADER, fields);
    }

    private static final Amqp.Described DATA = section(Amqp.DATA, bytes('b'));
    private static final Amqp.Described PROPS = Amqp.composite(Amqp.PROPERTIES, "id");
    private static final Amqp.Described APP = section(Amqp.APPLICATION_PROPERTIES, Map.of("k", "v"));
    private static final Amqp.Described NOTES = section(Amqp.MESSAGE_ANNOTATIONS, Map.of(sym("x-opt-n"), "v"));
    private static final Amqp.Described HINTS = section(Amqp.DELIVERY_ANNOTATIONS, Map.of(sym("x-opt-d"), "v"));
    private static final Amqp.Described FOOTER = section(Amqp.FOOTER, Map.of(sym("x-opt-f"), "v"));

    private static void order(Case.Cases cases) {
        cases.add("3.2", "all sections in their order", w -> {
            byte[] rest = of(NOTES, PROPS, APP, DATA, FOOTER);
            w.passes(concat(of(header(true), HINTS), rest), new Wire.EndsWith(rest));
        });
        wrong(cases, "a header after the annotations", of(NOTES, header(true), DATA));
        wrong(cases, "delivery annotations after message annotations", of(NOTES, HINTS, DATA));
        wrong(cases, "properties after the application properties", of(APP, PROPS, DATA));
        wrong(cases, "properties after the body", of(DATA, PROPS));
        wrong(cases, "a footer before the body", of(FOOTER, DATA));
        wrong(cases, "two headers", of(header(true), header(true), DATA));
        wrong(cases, "two sections of properties", of(PROPS, PROPS, DATA));
        wrong(cases, "a section of no kind", of(section(0x79, Map.of()), DATA));
        wrong(cases, "a section that is not described", of("text"));
        wrong(cases, "data and a value", of(DATA, section(Amqp.VALUE, "v")));
        wrong(cases, "two values", of(section(Amqp.VALUE, "v"), section(Amqp.VALUE, "v")));
        wrong(cases, "a sequence and data", of(section(Amqp.SEQUENCE, List.of(1)), DATA));
        wrong(cases, "application properties that are a list", of(section(Amqp.APPLICATION_PROPERTIES, List.of(1)), DATA));
        wrong(cases, "data that is a string", of(section(Amqp.DATA, "text")));
        wrong(cases, "a sequence that is a map", of(section(Amqp.SEQUENCE, Map.of())));
        cases.add("3.2", "a message that is wrong leaves its link", w -> {
            w.rejects(of(DATA, PROPS), "amqp:decode-error");
            w.expectAccepted(1);
            w.transfer(1, BODY).now();
        });
        cases.add("3.2", "a section with a symbol as its descriptor", w -> {
            byte[] message = encode(new Amqp.Described(sym("amqp:data:binary"), bytes('b')));
            w.passes(message, new Wire.EndsWith(message));
        });
    }

    private static void wrong(Case.Cases cases, String name, byte[] message) {
        cases.add("3.2", name, w -> w.rejects(message, "amqp:decode-error"));
    }

    /** What the header of a message becomes on its way. */
    private static void header(Case.Cases cases, String name, Amqp.Described sent, Consumer<Header> look) {
        cases.add("3.2.1", name, w -> w.passes(of(sent, DATA), Wire.sections(all -> {
            List<Header> found = all.stream().filter(Header.class::isInstance).map(Header.class::cast).toList();
            look.accept(found.isEmpty() ? new Header() : found.get(0));
        })));
    }

    private static void headers(Case.Cases cases) {
        header(cases, "durable is kept", header(true), it -> Wire.same(it.getDurable(), true, "durable"));
        header(cases, "without durable it is not", header(),
            it -> Wire.same(Boolean.TRUE.equals(it.getDurable()), false, "durable"));
        header(cases, "priority is kept", header(null, (byte) 9),
            it -> Wire.same(it.getPriority().intValue(), 9, "priority"));
        header(cases, "the priority without a word is 4", header(), it -> {
            Object got = it.getPriority() == null ? 4 : it.getPriority().intValue();
            Wire.same(got, 4, "priority");
        });
        header(cases, "ttl is what is left of it", header(null, null, 60_000), it -> {
            long left = it.getTtl().longValue();
            Wire.same(left > 0 && left <= 60_000, true, "ttl " + left);
        });
        header(cases, "no ttl stays none", header(true), it -> Wire.same(it.getTtl(), null, "ttl"));
        header(cases, "delivery-count begins with 0 for each link", header(null, null, null, null, 5), it -> {
            Object got = it.getDeliveryCount() == null ? 0L : it.getDeliveryCount().longValue();
            Wire.same(got, 0L, "delivery-count");
        });
        cases.add("3.2.1", "a message whose ttl is over is not delivered", w -> {
            w.receiver(0);
            w.feed(of(header(null, null, 50), DATA), BODY);
            Thread.sleep(200);
            w.expectMessage(BODY);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(5).now();
            w.barrier();
        });
        cases.add("3.2.1", "a header with a field of another type", w ->
            w.rejects(of(header("text"), DATA), "amqp:decode-error"));
    }

    private static void annotations(Case.Cases cases) {
        cases.add("3.2.2", "delivery annotations are for the next node only", w ->
            w.passes(of(HINTS, DATA), Wire.sections(all ->
                Wire.same(all.stream().anyMatch(DeliveryAnnotations.class::isInstance), false, "annotations"))));
        cases.add("3.2.3", "message annotations go on", w ->
            w.passes(of(NOTES, DATA), new Wire.EndsWith(of(NOTES, DATA))));
        cases.add("3.2.3", "annotations of every type go on", w -> {
            byte[] message = of(section(Amqp.MESSAGE_ANNOTATIONS, new java.util.TreeMap<>(Map.of(
                1L, 2, 2L, true, 3L, List.of("x"), 4L, Map.of("k", 7L)))), DATA);
            w.passes(message, new Wire.EndsWith(message));
        });
        cases.add("3.2.8", "the footer goes on", w -> {
            byte[] message = of(DATA, FOOTER);
            w.passes(message, new Wire.EndsWith(message));
        });
        cases.add("3.2.3", "annotations that are not a map", w ->
            w.rejects(of(section(Amqp.MESSAGE_ANNOTATIONS, List.of(1)), DATA), "amqp:decode-error"));
    }

    private static void properties(Case.Cases cases) {
        same(cases, "3.2.4", "all properties", of(Amqp.composite(Amqp.PROPERTIES, "id", bytes('u'), "to", "subject",
            "reply", 7L, sym("text/plain"), sym("gzip"), new Amqp.Raw(bytes(0x83, 0, 0, 1, 0xff, 0, 0, 0, 0)),
            new Amqp.Raw(bytes(0x83, 0, 0, 1, 0x90, 0, 0, 0, 0)), "group", 3, "reply-group"), DATA));
        same(cases, "3.2.11", "a message-id that is a ulong", of(Amqp.composite(Amqp.PROPERTIES, 7L), DATA));
        same(cases, "3.2.12", "a message-id that is a uuid", of(Amqp.composite(Amqp.PROPERTIES,
            Amqp.raw(0x98, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)), DATA));
        same(cases, "3.2.13", "a message-id that is binary", of(Amqp.composite(Amqp.PROPERTIES, (Object) bytes(1)), DATA));
        same(cases, "3.2.14", "a message-id that is a string", of(Amqp.composite(Amqp.PROPERTIES, "id"), DATA));
        cases.add("3.2.4", "a message-id of another type", w ->
            w.rejects(of(Amqp.composite(Amqp.PROPERTIES, true), DATA), "amqp:decode-error"));
        same(cases, "3.2.5", "application properties", of(section(Amqp.APPLICATION_PROPERTIES,
            new java.util.TreeMap<>(Map.of("a", 1, "b", "text", "c", true, "d", 5L))), DATA));
        cases.add("3.2.4", "an absolute expiry that is over: not delivered", w -> {
            w.receiver(0);
            byte[] old = of(Amqp.composite(Amqp.PROPERTIES, "id", null, null, null, null, null, null, null,
                new Amqp.Raw(bytes(0x83, 0, 0, 0, 0, 0, 0, 0x10, 0))), DATA);
            w.feed(old, BODY);
            w.expectMessage(BODY);
            w.remoteFlow().withHandle(0).withDeliveryCount(0).withLinkCredit(5).now();
            w.barrier();
        });
    }

    private static void same(Case.Cases cases, String section, String name, byte[] message) {
        cases.add(section, name + " arrive as they were", w -> w.passes(message, new Wire.EndsWith(message)));
    }

    private static void bodies(Case.Cases cases) {
        same(cases, "3.2.6", "several sections of data", of(DATA, DATA, section(Amqp.DATA, new byte[300])));
        same(cases, "3.2.6", "data without bytes", of(section(Amqp.DATA, new byte[0])));
        same(cases, "3.2.7", "several sequences", of(section(Amqp.SEQUENCE, List.of(1, "two")),
            section(Amqp.SEQUENCE, List.of())));
        same(cases, "3.2.8", "a value that is a map", of(section(Amqp.VALUE, Map.of("k", List.of(1, 2L)))));
        same(cases, "3.2.8", "a value that is described", of(section(Amqp.VALUE,
            new Amqp.Described(sym("own:type"), List.of("a")))));
        cases.add("3.2", "a message without a body", w -> {
            byte[] message = of(PROPS);
            w.passes(message, new Wire.EndsWith(message));
        });
    }

    private static void formats(Case.Cases cases) {
        cases.add("2.8.11", "a message format that the broker does not know", w -> {
            w.sender();
            w.expectRejected(0, "amqp:not-implemented");
            w.transfer(0, BODY).withMessageFormat(77).now();
        });
        cases.add("2.8.11", "a message without its format is one of format 0", w -> {
            w.sender();
            w.expectAccepted(0);
            w.raw(Amqp.frame(0, encode(Amqp.composite(Amqp.TRANSFER, 0, 0, bytes(7))), BODY));
        });
    }
}
