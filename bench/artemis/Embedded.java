// ActiveMQ Artemis without persistence, for compare-amqp.sh: `Embedded PORT`; and for
// dunlin-lab, with TLS, at every address: `Embedded PORT KEYSTORE`, a PKCS #12 file
// whose password is `artemis`.

import java.nio.file.Files;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;
import org.apache.activemq.artemis.api.core.RoutingType;

public final class Embedded {
    public static void main(String[] args) throws Exception {
        var config = new ConfigurationImpl();
        config.setPersistenceEnabled(false);
        config.setSecurityEnabled(false);
        config.setJournalDirectory(Files.createTempDirectory("artemis").toString());
        config.setGlobalMaxSize(512L << 20);
        var acceptor = (args.length > 1 ? "tcp://0.0.0.0:" : "tcp://127.0.0.1:") + args[0] + "?protocols=AMQP";
        if (args.length > 1) {
            acceptor += ";sslEnabled=true;keyStoreType=PKCS12;keyStorePassword=artemis;keyStorePath=" + args[1];
        }
        config.addAcceptorConfiguration("amqp", acceptor);
        var settings = new AddressSettings();
        settings.setDefaultAddressRoutingType(RoutingType.ANYCAST);
        settings.setDefaultQueueRoutingType(RoutingType.ANYCAST);
        config.addAddressSetting("#", settings);
        var broker = new EmbeddedActiveMQ();
        broker.setConfiguration(config);
        broker.start();
        Thread.currentThread().join();
    }
}
