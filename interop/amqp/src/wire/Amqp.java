//! Values and frames of AMQP 1.0 as bytes, written from part 1 of the
//! specification, so that a case can also say what no library would.
package wire;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

final class Amqp {
    static final int OPEN = 0x10, BEGIN = 0x11, ATTACH = 0x12, FLOW = 0x13, TRANSFER = 0x14;
    static final int DISPOSITION = 0x15, DETACH = 0x16, END = 0x17, CLOSE = 0x18;
    static final int SOURCE = 0x28, TARGET = 0x29, COORDINATOR = 0x30;
    static final int HEADER = 0x70, DELIVERY_ANNOTATIONS = 0x71, MESSAGE_ANNOTATIONS = 0x72;
    static final int PROPERTIES = 0x73, APPLICATION_PROPERTIES = 0x74, DATA = 0x75;
    static final int SEQUENCE = 0x76, VALUE = 0x77, FOOTER = 0x78;

    private Amqp() {}

    /** Bytes that are written as they are. */
    record Raw(byte[] bytes) {}

    record Sym(String name) {}

    record Described(Object descriptor, Object value) {}

    static Sym sym(String name) {
        return new Sym(name);
    }

    static Raw raw(int... bytes) {
        return new Raw(bytes(bytes));
    }

    static byte[] bytes(int... bytes) {
        byte[] out = new byte[bytes.length];
        for (int n = 0; n < bytes.length; n++) out[n] = (byte) bytes[n];
        return out;
    }

    /** A composite value: a described list. */
    static Described composite(long code, Object... fields) {
        return new Described(code, new Fields(fields));
    }

    /** Fields of a list, of which some are null. */
    private record Fields(Object[] all) {}

    /** Concatenates the encodings of several values. */
    static byte[] encode(Object... values) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (Object value : values) out.writeBytes(one(value));
        return out.toByteArray();
    }

    private static byte[] one(Object value) {
        if (value == null) return bytes(0x40);
        if (value instanceof Raw it) return it.bytes();
        if (value instanceof Boolean flag) return bytes(flag ? 0x41 : 0x42);
        if (value instanceof Byte number) return bytes(0x50, number);
        if (value instanceof Short number) return bytes(0x60, number >> 8, number);
        if (value instanceof Integer number) return uint(number);
        if (value instanceof Long number) return ulong(number);
        if (value instanceof String text) {
            return sized(0xa1, 0xb1, text.getBytes(StandardCharsets.UTF_8));
        }
        if (value instanceof Sym it) {
            return sized(0xa3, 0xb3, it.name().getBytes(StandardCharsets.US_ASCII));
        }
        if (value instanceof byte[] data) return sized(0xa0, 0xb0, data);
        if (value instanceof Described it) {
            return concat(bytes(0), one(it.descriptor()), one(it.value()));
        }
        if (value instanceof Fields fields) {
            return counted(0xc0, 0xd0, fields.all().length, encode(fields.all()));
        }
        if (value instanceof List<?> list) {
            return counted(0xc0, 0xd0, list.size(), encode(list.toArray()));
        }
        if (value instanceof Map<?, ?> map) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            map.forEach((key, entry) -> out.writeBytes(encode(key, entry)));
            return counted(0xc1, 0xd1, 2 * map.size(), out.toByteArray());
        }
        throw new IllegalArgumentException(value.getClass().getName());
    }

    private static byte[] uint(int number) {
        if (number == 0) return bytes(0x43);
        if (number > 0 && number < 256) return bytes(0x52, number);
        return ByteBuffer.allocate(5).put((byte) 0x70).putInt(number).array();
    }

    private static byte[] ulong(long number) {
        if (number == 0) return bytes(0x44);
        if (number > 0 && number < 256) return bytes(0x53, (int) number);
        return ByteBuffer.allocate(9).put((byte) 0x80).putLong(number).array();
    }

    private static byte[] sized(int small, int large, byte[] data) {
        if (data.length < 256) return concat(bytes(small, data.length), data);
        return concat(bytes(large), be32(data.length), data);
    }

    private static byte[] counted(int small, int large, int count, byte[] data) {
        if (data.length < 255 && count < 256) {
            return concat(bytes(small, data.length + 1, count), data);
        }
        return concat(bytes(large), be32(data.length + 4), be32(count), data);
    }

    static byte[] be32(int number) {
        return ByteBuffer.allocate(4).putInt(number).array();
    }

    static byte[] concat(byte[]... parts) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (byte[] part : parts) out.writeBytes(part);
        return out.toByteArray();
    }

    /** A frame of AMQP on a channel. */
    static byte[] frame(int channel, byte[]... body) {
        return frame(2, 0, channel, body);
    }

    static byte[] sasl(byte[]... body) {
        return frame(2, 1, 0, body);
    }

    static byte[] frame(int doff, int type, int channel, byte[]... body) {
        byte[] rest = concat(body);
        byte[] head = bytes(doff, type, channel >> 8, channel);
        return concat(be32(8 + rest.length), head, rest);
    }

    /** The frame of a performative. */
    static byte[] performative(int channel, int code, Object... fields) {
        return frame(channel, encode(composite(code, fields)));
    }

    static byte[] open(Object... fields) {
        return performative(0, OPEN, fields);
    }

    /** A section whose value is not a list of fields. */
    static Described section(long code, Object value) {
        return new Described(code, value);
    }

    /** A message with one section of data. */
    static byte[] data(String text) {
        return encode(section(DATA, text.getBytes(StandardCharsets.UTF_8)));
    }
}
