//! Part 5: SASL.
package wire;

import static org.hamcrest.Matchers.hasItemInArray;
import static wire.Amqp.bytes;
import static wire.Amqp.encode;
import static wire.Amqp.sasl;
import static wire.Amqp.sym;

import java.nio.charset.StandardCharsets;
import org.apache.qpid.protonj2.test.driver.codec.primitives.Symbol;
import org.apache.qpid.protonj2.test.driver.codec.transport.AMQPHeader;

final class Security {
    private static final byte OK = 0, AUTH = 1;

    private Security() {}

    static void add(Case.Cases cases) {
        layers(cases);
        mechanisms(cases);
        order(cases);
    }

    private static Wire offered(Wire w) {
        w.expectSASLHeader();
        w.expectSaslMechanisms();
        w.remoteSASLHeader().now();
        return w.sync();
    }

    private static byte[] init(String mechanism, Object response) {
        return sasl(encode(Amqp.composite(0x41, sym(mechanism), response)));
    }

    private static byte[] plain(String identity, String user, String password) {
        return (identity + "\0" + user + "\0" + password).getBytes(StandardCharsets.UTF_8);
    }

    /** The exchange succeeds, and AMQP follows. */
    private static Case.Body enters(String mechanism, Object response) {
        return w -> {
            offered(w);
            w.expectSaslOutcome().withCode(OK);
            w.raw(init(mechanism, response));
            w.sync();
            w.opened();
        };
    }

    private static Case.Body refused(String mechanism, Object response) {
        return w -> {
            offered(w);
            w.expectSaslOutcome().withCode(AUTH);
            w.drops();
            w.raw(init(mechanism, response));
        };
    }

    private static void layers(Case.Cases cases) {
        cases.add("5.3", "the header of SASL is answered with it and the mechanisms", Security::finishPlain);
        cases.add("5.3.3.1", "the mechanisms have PLAIN, here on loopback, and ANONYMOUS", w -> {
            w.expectSASLHeader();
            w.expectSaslMechanisms().withSaslServerMechanisms(org.hamcrest.Matchers.allOf(
                hasItemInArray(Symbol.valueOf("PLAIN")), hasItemInArray(Symbol.valueOf("ANONYMOUS"))));
            w.remoteSASLHeader().now();
            w.sync();
            w.close();
            w.ended();
        });
        cases.add("5.3", "another version of SASL: the header that is supported, and the end", w -> {
            w.expectAMQPHeader();
            w.drops();
            w.raw(bytes('A', 'M', 'Q', 'P', 3, 1, 1, 0));
        });
        cases.add("5.3", "AMQP without SASL is not refused where no password is asked", Wire::opened);
        cases.add("5.3", "everything in one flight", w -> {
            w.expectSASLHeader();
            w.expectSaslMechanisms();
            w.expectSaslOutcome().withCode(OK);
            w.expectAMQPHeader();
            w.expectOpen();
            w.raw(AMQPHeader.getSASLHeader().getBuffer(), init("ANONYMOUS", null),
                AMQPHeader.getAMQPHeader().getBuffer(), Amqp.open("c"));
        });
        cases.add("5.3", "after SASL comes the header of AMQP, not again of SASL", w -> {
            offered(w);
            w.expectSaslOutcome().withCode(OK);
            w.raw(init("ANONYMOUS", null));
            w.sync();
            w.expectAMQPHeader();
            w.drops();
            w.raw(AMQPHeader.getSASLHeader().getBuffer());
        });
    }

    private static void finishPlain(Wire w) throws Exception {
        enters("PLAIN", plain("", "alice", "wonderland")).run(w);
    }

    private static void mechanisms(Case.Cases cases) {
        cases.add("5.3.3.2", "ANONYMOUS with a trace", enters("ANONYMOUS", bytes('m', 'e')));
        cases.add("5.3.3.2", "ANONYMOUS without a response", enters("ANONYMOUS", null));
        cases.add("5.3.3.2", "PLAIN with user and password", enters("PLAIN", plain("", "alice", "wonderland")));
        cases.add("5.3.3.6", "PLAIN with a wrong password: code 1, and the end",
            refused("PLAIN", plain("", "alice", "looking-glass")));
        cases.add("5.3.3.6", "PLAIN with a user that there is not", refused("PLAIN", plain("", "mallory", "x")));
        cases.add("5.3.3.6", "PLAIN with an empty response", refused("PLAIN", new byte[0]));
        cases.add("5.3.3.6", "PLAIN without its separators", refused("PLAIN", bytes('a', 'b')));
        cases.add("5.3.3.6", "PLAIN as another than oneself", refused("PLAIN", plain("root", "alice", "wonderland")));
        cases.add("5.3.3.6", "EXTERNAL without a certificate", refused("EXTERNAL", new byte[0]));
        cases.add("5.3.3.6", "a mechanism that was not offered", refused("NO-SUCH", null));
        cases.add("5.3.3.6", "an empty mechanism", refused("", null));
    }

    private static void order(Case.Cases cases) {
        cases.add("5.3.2", "a response before init", w -> {
            offered(w);
            w.drops();
            w.raw(sasl(encode(Amqp.composite(0x43, (Object) bytes('x')))));
        });
        cases.add("5.3.2", "a frame that only a server sends", w -> {
            offered(w);
            w.drops();
            w.raw(sasl(encode(Amqp.composite(0x44, (byte) 0))));
        });
        cases.add("5.3.1", "a frame of AMQP before the outcome", w -> {
            offered(w);
            w.drops();
            w.raw(Amqp.open("c"));
        });
        cases.add("5.3.1", "the channel of a SASL frame means nothing", w -> {
            offered(w);
            w.expectSaslOutcome().withCode(OK);
            w.raw(Amqp.frame(2, 1, 77, encode(Amqp.composite(0x41, sym("ANONYMOUS")))));
            w.sync();
            w.opened();
        });
        cases.add("5.3.1", "an empty frame of SASL", w -> {
            offered(w);
            w.drops();
            w.raw(sasl());
        });
        cases.add("5.3.1", "a frame far above the largest", w -> {
            offered(w);
            w.drops();
            w.raw(Amqp.be32(1 << 20), bytes(2, 1, 0, 0));
        });
        cases.add("5.3.1", "a frame of 512 bytes", w -> {
            offered(w);
            w.expectSaslOutcome().withCode(OK);
            byte[] small = init("ANONYMOUS", new byte[0]);
            w.raw(init("ANONYMOUS", new byte[512 - small.length - 3]));
            w.sync();
            w.opened();
        });
        cases.add("5.3.3.2", "init without a mechanism", w -> {
            offered(w);
            w.drops();
            w.raw(sasl(encode(Amqp.composite(0x41))));
        });
    }
}
