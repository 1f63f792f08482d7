//! One case: what the server expects and does, the command that talks to it, and
//! how that is to end.
package own;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;

final class Case {
    /** Longest that a command may take, and that the server waits afterwards. */
    private static final long SECONDS_MAX = 20;

    /** What the server expects and does. */
    interface Script {
        void write(Server server) throws Exception;
    }

    private final String id;
    private final Script script;
    private final List<String> command;
    private int exit;
    private String says = "";
    private String prints;
    private boolean isOnce;

    Case(String section, String name, String command, Script script) {
        id = section + " " + name;
        this.command = Arrays.asList(command.split(" "));
        this.script = script;
    }

    /** It ends with this code, and this text among what it complains about. */
    Case fails(int code, String text) {
        exit = code;
        says = text;
        return this;
    }

    /** The server ends with the conversation: the client comes back in vain. */
    Case once() {
        isOnce = true;
        return this;
    }

    /** It prints exactly this. */
    Case prints(String text) {
        prints = text;
        return this;
    }

    String id() {
        return id;
    }

    void run(String dunlin) throws Exception {
        try (Server server = new Server()) {
            script.write(server);
            server.start();
            List<String> all = new ArrayList<>(List.of(dunlin));
            all.addAll(command);
            all.addAll(List.of("--url", "amqp://127.0.0.1:" + server.getServerURI().getPort()));
            Process process = new ProcessBuilder(all).start();
            String out;
            String err;
            try {
                process.getOutputStream().close();
                if (isOnce) {
                    server.waitForScriptToComplete(SECONDS_MAX, TimeUnit.SECONDS);
                    server.close();
                }
                if (!process.waitFor(SECONDS_MAX, TimeUnit.SECONDS)) {
                    server.waitForScriptToComplete(1, TimeUnit.SECONDS);
                    throw new AssertionError("the command does not end");
                }
                out = text(process.getInputStream().readAllBytes());
                err = text(process.getErrorStream().readAllBytes());
            } finally {
                process.destroyForcibly();
            }
            if (!isOnce) server.waitForScriptToComplete(SECONDS_MAX, TimeUnit.SECONDS);
            if (process.exitValue() != exit) {
                throw new AssertionError("exit code " + process.exitValue() + ": " + err);
            }
            if (!err.contains(says)) throw new AssertionError("it says " + err);
            if (prints != null && !out.equals(prints)) throw new AssertionError("prints " + out);
        }
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
