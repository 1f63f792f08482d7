//! Part 4: the coordinator.
package wire;

import static org.hamcrest.Matchers.notNullValue;
import static wire.Amqp.encode;
import static wire.Amqp.section;

final class Transactions {
    private static final byte[] BODY = Amqp.data("m");

    private Transactions() {}

    static void add(Case.Cases cases) {
        cases.add("4.1", "a coordinator grants local transactions", w -> coordinator(w.begun()));
        cases.add("4.2", "declare is answered with an id", w -> {
            coordinator(w.begun());
            declare(w, 0);
        });
        cases.add("4.2", "several transactions of a session have several ids", w -> {
            coordinator(w.begun());
            Object first = java.util.Arrays.toString(declare(w, 0));
            Object second = java.util.Arrays.toString(declare(w, 1));
            Wire.same(first.equals(second), false, "the same id");
        });
        cases.add("4.3", "discharge commits", w -> {
            coordinator(w.begun());
            byte[] id = declare(w, 0);
            w.expectAccepted(1);
            w.raw(message(9, 1, encode(Amqp.composite(0x32, id, false))));
        });
        cases.add("4.3", "discharge of a transaction that there is not", w -> {
            coordinator(w.begun());
            w.expectRejected(0, "amqp:transaction:unknown-id");
            w.raw(message(9, 0, encode(Amqp.composite(0x32, new byte[] {1, 2, 3}, false))));
        });
        cases.add("4.4.1", "a message of a transaction is delivered with its commit", w -> {
            w.receiver(5);
            Wire from = w.other().sender();
            coordinator(from);
            byte[] id = declare(from, 0);
            from.expectDisposition().withFirst(1).withSettled(true)
                .withState(org.hamcrest.Matchers.instanceOf(
                    org.apache.qpid.protonj2.test.driver.codec.transactions.TransactionalState.class));
            from.raw(posted(0, 1, id));
            from.sync();
            w.barrier();
            w.expectMessage(BODY);
            from.expectAccepted(2);
            from.raw(message(9, 2, encode(Amqp.composite(0x32, id, false))));
            from.sync();
        });
        cases.add("4.4.1", "a message of a transaction that is rolled back is not delivered", w -> {
            w.receiver(5);
            Wire from = w.other().sender();
            coordinator(from);
            byte[] id = declare(from, 0);
            from.expectDisposition().withFirst(1).withSettled(true);
            from.raw(posted(0, 1, id));
            from.sync();
            from.expectAccepted(2);
            from.raw(message(9, 2, encode(Amqp.composite(0x32, id, true))));
            from.sync();
            w.barrier();
        });
        cases.add("4.4", "a message of a transaction that there is not", w -> {
            w.sender();
            w.detaches("amqp:transaction:unknown-id");
            w.raw(posted(0, 0, new byte[] {1, 2, 3}));
        });
        cases.add("4.5.1", "a message to the coordinator that is neither declare nor discharge", w -> {
            coordinator(w.begun());
            w.detaches("amqp:decode-error");
            w.raw(message(9, 0, BODY));
        });
        cases.add("4.5.1", "a settled message to the coordinator", w -> {
            coordinator(w.begun());
            w.detaches("amqp:not-allowed");
            w.raw(Amqp.frame(0, encode(Amqp.composite(Amqp.TRANSFER, 9, 0, new byte[1], 0, true)),
                encode(section(Amqp.VALUE, Amqp.composite(0x31)))));
        });
    }

    private static void coordinator(Wire w) {
        w.expectAttach().ofReceiver().withCoordinator();
        w.expectFlow();
        w.remoteAttach().withName("txn").withHandle(9).ofSender().withInitialDeliveryCount(0).withSource().and()
            .withCoordinator().withCapabilities("amqp:local-transactions").and().now();
        w.sync();
    }

    private static byte[] message(int handle, int id, byte[] value) {
        byte[] body = Amqp.concat(Amqp.bytes(0, 0x53, Amqp.VALUE), value);
        return Amqp.frame(0, encode(Amqp.composite(Amqp.TRANSFER, handle, id, Amqp.bytes(id), 0)),
            value == BODY ? BODY : body);
    }

    private static byte[] declare(Wire w, int id) {
        byte[][] got = {null};
        w.expectDisposition().withRole(true).withFirst(id).withSettled(true).withCapture(it -> {
            Object state = it.getState();
            if (state instanceof org.apache.qpid.protonj2.test.driver.codec.transactions.Declared declared) {
                got[0] = declared.getTxnId().getArray();
            }
        });
        w.raw(message(9, id, encode(Amqp.composite(0x31))));
        w.sync();
        Wire.same(got[0] != null, true, "declared");
        return got[0];
    }

    private static byte[] posted(int handle, int id, byte[] txn) {
        return Amqp.frame(0, encode(Amqp.composite(Amqp.TRANSFER, handle, id, Amqp.bytes(id), 0, false, false, null,
            Amqp.composite(0x34, (Object) txn))), BODY);
    }
}
