//! Part 1: encodings of types, in `open` and in the body of a message.
package wire;

import static wire.Amqp.bytes;
import static wire.Amqp.concat;
import static wire.Amqp.encode;
import static wire.Amqp.frame;
import static wire.Amqp.raw;
import static wire.Amqp.section;
import static wire.Amqp.sym;

import java.util.Map;

final class Types {
    private Types() {}

    static void add(Case.Cases cases) {
        described(cases);
        composites(cases);
        broken(cases);
        values(cases);
        constructors(cases);
    }

    /** The broker takes this as `open`. */
    private static Case.Body takes(byte[] body) {
        return w -> {
            w.header();
            w.expectOpen();
            w.raw(frame(0, body));
        };
    }

    private static Case.Body refuses(byte[] body, String condition) {
        return w -> {
            w.header();
            w.opensAndCloses(condition);
            w.raw(frame(0, body));
        };
    }

    private static byte[] open(Object... fields) {
        return encode(Amqp.composite(Amqp.OPEN, fields));
    }

    /** `open` whose list is given as it is. */
    private static byte[] list(int... encoded) {
        return concat(bytes(0, 0x53, 0x10), bytes(encoded));
    }

    private static void described(Case.Cases cases) {
        byte[] fields = bytes(0xc0, 4, 1, 0xa1, 1, 'c');
        cases.add("1.2", "a descriptor as a symbol",
            takes(concat(bytes(0), encode(sym("amqp:open:list")), fields)));
        cases.add("1.2", "a descriptor as a ulong of eight bytes",
            takes(concat(bytes(0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x10), fields)));
        cases.add("1.2", "a value of a type that nobody knows, in a map of properties",
            takes(open("c", null, null, null, null, null, null, null, null,
                Map.of(sym("x"), new Amqp.Described(sym("no:such:type"), "value")))));
        cases.add("1.3.4", "a performative that nobody knows is refused", w -> {
            w.opened();
            w.closes("amqp:not-implemented");
            w.raw(frame(0, encode(Amqp.composite(0x99, "x"))));
        });
    }

    private static void composites(Case.Cases cases) {
        cases.add("1.4", "fields at the end are left out", takes(open("c")));
        cases.add("1.4", "fields at the end are null",
            takes(open("c", null, null, null, null, null, null, null, null, null)));
        cases.add("1.4", "a mandatory field is null", refuses(open((Object) null), "amqp:invalid-field"));
        cases.add("1.4", "a mandatory field is left out", refuses(list(0x45), "amqp:invalid-field"));
        cases.add("1.4", "a field of another type", refuses(open(7), "amqp:decode-error"));
        cases.add("1.4", "more fields than the type has",
            refuses(open("c", null, null, null, null, null, null, null, null, null, 1), "amqp:decode-error"));
        cases.add("1.4", "a composite value that is a map",
            refuses(concat(bytes(0, 0x53, 0x10), encode(Map.of("container-id", "c"))), "amqp:decode-error"));
        cases.add("1.4", "one value where several may be",
            takes(open("c", null, null, null, null, null, null, null, sym("ANY"))));
        cases.add("1.4", "an array where several may be",
            takes(open("c", null, null, null, null, null, null, null,
                raw(0xe0, 8, 2, 0xa3, 2, 'A', 'A', 2, 'B', 'B'))));
    }

    private static void broken(Case.Cases cases) {
        cases.add("1.6.20", "a string that is not UTF-8",
            refuses(open(raw(0xa1, 2, 0xc3, 0x28)), "amqp:decode-error"));
        cases.add("1.6.20", "a string that is longer than its frame",
            refuses(list(0xc0, 4, 1, 0xa1, 200, 'c'), "amqp:decode-error"));
        cases.add("1.6.21", "a symbol that is not ASCII",
            refuses(open("c", null, null, null, null, null, null, raw(0xa3, 1, 0xe4)), "amqp:decode-error"));
        cases.add("1.6.22", "a list with more elements than bytes",
            refuses(list(0xc0, 4, 9, 0xa1, 1, 'c'), "amqp:decode-error"));
        cases.add("1.6.23", "a map with a key that has no value",
            refuses(open("c", null, null, null, null, null, null, null, null,
                raw(0xc1, 4, 1, 0xa3, 1, 'k')), "amqp:decode-error"));
        cases.add("1.6", "a constructor that no type has",
            refuses(open("c", raw(0x3f)), "amqp:decode-error"));
        cases.add("1.6.22", "values nested two hundred deep", w -> {
            w.header();
            Object deep = "x";
            for (int n = 0; n < 200; n++) deep = java.util.List.of(deep);
            w.opensAndCloses("amqp:resource-limit-exceeded");
            w.raw(frame(0, open("c", null, null, null, null, null, null, null, null, Map.of(sym("d"), deep))));
        });
    }

    /** Each encoding of each type as the body of a message: it arrives as it was. */
    private static void values(Case.Cases cases) {
        value(cases, "1.6.1", "null", 0x40);
        value(cases, "1.6.2", "boolean, true", 0x41);
        value(cases, "1.6.2", "boolean, one byte", 0x56, 0);
        value(cases, "1.6.3", "ubyte", 0x50, 0xff);
        value(cases, "1.6.4", "ushort", 0x60, 0xff, 0xfe);
        value(cases, "1.6.5", "uint, four bytes", 0x70, 0xff, 0, 0, 1);
        value(cases, "1.6.5", "uint, small", 0x52, 9);
        value(cases, "1.6.5", "uint, zero", 0x43);
        value(cases, "1.6.6", "ulong, eight bytes", 0x80, 1, 2, 3, 4, 5, 6, 7, 8);
        value(cases, "1.6.6", "ulong, zero", 0x44);
        value(cases, "1.6.7", "byte", 0x51, 0x80);
        value(cases, "1.6.8", "short", 0x61, 0x80, 0);
        value(cases, "1.6.9", "int, small", 0x54, 0xff);
        value(cases, "1.6.10", "long, eight bytes", 0x81, 0x80, 0, 0, 0, 0, 0, 0, 0);
        value(cases, "1.6.11", "float", 0x72, 0x7f, 0xc0, 0, 0);
        value(cases, "1.6.12", "double", 0x82, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0);
        value(cases, "1.6.13", "decimal32", 0x74, 0x22, 0x50, 0, 1);
        value(cases, "1.6.15", "decimal128", 0x94, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
        value(cases, "1.6.16", "char", 0x73, 0, 1, 0xf6, 0);
        value(cases, "1.6.17", "timestamp", 0x83, 0, 0, 1, 0x90, 0, 0, 0, 0);
        value(cases, "1.6.18", "uuid", 0x98, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
        value(cases, "1.6.19", "binary, long length", 0xb0, 0, 0, 0, 1, 0xff);
        value(cases, "1.6.20", "string, long length", 0xb1, 0, 0, 0, 2, 0xc3, 0xa4);
        value(cases, "1.6.22", "list, empty", 0x45);
        value(cases, "1.6.23", "map, long size", 0xd1, 0, 0, 0, 8, 0, 0, 0, 2, 0x52, 1, 0x52, 2);
        value(cases, "1.6.24", "array of described values", 0xe0, 7, 2, 0, 0x53, 9, 0x50, 1, 2);
    }

    private static void value(Case.Cases cases, String section, String name, int... encoded) {
        byte[] message = encode(section(Amqp.VALUE, raw(encoded)));
        cases.add(section, name + " passes as it is", w -> w.passes(message, new Wire.EndsWith(message)));
    }

    private static void constructors(Case.Cases cases) {
        byte[] broken = concat(bytes(0, 0x53, Amqp.VALUE), bytes(0xa1, 9, 'x'));
        cases.add("1.6", "a body that ends within its value is rejected",
            w -> w.rejects(broken, "amqp:decode-error"));
        byte[] unknown = concat(bytes(0, 0x53, Amqp.VALUE), bytes(0x3f));
        cases.add("1.6", "a body of no type is rejected", w -> w.rejects(unknown, "amqp:decode-error"));
    }
}
