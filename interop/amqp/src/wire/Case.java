//! One case: a section of the specification, what it says, and a conversation.
package wire;

import java.util.ArrayList;
import java.util.List;

record Case(String section, String name, Body body, boolean slow) {
    /** A conversation on a connection of its own. */
    interface Body {
        void run(Wire w) throws Exception;
    }

    /** A list of cases in the order of the specification. */
    static final class Cases {
        final List<Case> all = new ArrayList<>();

        void add(String section, String name, Body body) {
            all.add(new Case(section, name, body, false));
        }

        /** One that waits for a time-out of the broker. */
        void slow(String section, String name, Body body) {
            all.add(new Case(section, name, body, true));
        }
    }

    String id() {
        return section + " " + name;
    }
}
