//! What the clients in Java share: arguments, lines of answers, TLS, and Debian's
//! mosquitto clients for the other end where a message changes protocol.
package clients;

import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

final class Scenarios {
    static final int MS_MAX = 10_000;
    static final int BURST_MESSAGES = 500;
    static final int LARGE_BYTES = 200_000;

    /** Something that a client does, or is asked to do. */
    interface Body {
        void run() throws Exception;
    }

    private static final Map<String, String> ARGUMENTS = new HashMap<>();

    private Scenarios() {}

    static String argument(String name) {
        return ARGUMENTS.get("--" + name);
    }

    /** A name that nothing else uses. */
    static String topic() {
        return "interop/java/" + argument("transport") + "/" + UUID.randomUUID();
    }

    static void expect(Object got, Object want, String what) {
        if (!Objects.equals(got, want)) {
            throw new AssertionError(what + ": got " + got + ", want " + want);
        }
    }

    /** Runs what INTEROP_SCENARIOS names, and prints a line for each. */
    static void main(String[] args, Map<String, Body> scenarios) {
        ARGUMENTS.put("--host", "localhost");
        for (int n = 0; n + 1 < args.length; n += 2) ARGUMENTS.put(args[n], args[n + 1]);
        for (String name : System.getenv("INTEROP_SCENARIOS").split(" ")) {
            String line = "ok " + name;
            Body body = scenarios.get(name);
            if (body == null) {
                line = "skip " + name + ": not a scenario of this client";
            } else {
                try {
                    body.run();
                } catch (Throwable error) {
                    line = "not ok " + name + ": " + error;
                }
            }
            System.out.println(line.replace('\n', ' '));
        }
        System.exit(0);
    }

    /** TLS that trusts the certificate authority of the tests. */
    static SSLContext tls() throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        try (InputStream pem = Files.newInputStream(Path.of(argument("ca")))) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    static Process mosquitto(String program, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of("mosquitto_" + program, "-h", argument("host"), "-p",
            System.getenv("INTEROP_TCP_PORT"), "-V", "5", "-q", "1"));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    /** Publishes again and again until a client of MQTT has one; what it says. */
    static String heard(String topic, Body publish) throws Exception {
        Process sub = mosquitto("sub", "-t", topic, "-C", "1", "-W", "10", "-F", "%j");
        while (!sub.waitFor(100, TimeUnit.MILLISECONDS)) publish.run();
        return new String(sub.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    }

    static void publish(String topic, String payload, String... properties) throws Exception {
        List<String> all = new ArrayList<>(List.of("-t", topic, "-m", payload));
        for (int n = 0; n < properties.length; n += 2) {
            all.addAll(List.of("-D", "publish", properties[n]));
            all.addAll(List.of(properties[n + 1].split("=")));
        }
        expect(mosquitto("pub", all.toArray(String[]::new)).waitFor(), 0, "mosquitto_pub");
    }
}
