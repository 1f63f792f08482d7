// ActiveMQ Artemis without persistence, for compare-amqp.sh: `Embedded PORT`; for
// dunlin-lab, with TLS, at every address: `Embedded PORT KEYSTORE`, a PKCS #12 file
// whose password is `artemis`; and for scripts/interop, with TLS, and for one user only:
// `Embedded PORT KEYSTORE USER PASSWORD`.

import java.nio.file.Files;
import java.util.Set;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.config.impl.SecurityConfiguration;
import org.apache.activemq.artemis.core.security.Role;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.spi.core.security.ActiveMQJAASSecurityManager;
import org.apache.activemq.artemis.spi.core.security.jaas.InVMLoginModule;

public final class Embedded {
    public static void main(String[] args) throws Exception {
        var config = new ConfigurationImpl();
        config.setPersistenceEnabled(false);
        var hasUser = args.length > 3;
        config.setSecurityEnabled(hasUser);
        config.setJournalDirectory(Files.createTempDirectory("artemis").toString());
        config.setGlobalMaxSize(512L << 20);
        var acceptor = (args.length == 2 ? "tcp://0.0.0.0:" : "tcp://127.0.0.1:") + args[0] + "?protocols=AMQP";
        if (args.length > 1) {
            acceptor += ";sslEnabled=true;keyStoreType=PKCS12;keyStorePassword=artemis;keyStorePath=" + args[1];
        }
        config.addAcceptorConfiguration("amqp", acceptor);
        var settings = new AddressSettings();
        settings.setDefaultAddressRoutingType(RoutingType.ANYCAST);
        settings.setDefaultQueueRoutingType(RoutingType.ANYCAST);
        config.addAddressSetting("#", settings);
        var broker = new EmbeddedActiveMQ();
        if (hasUser) {
            var users = new SecurityConfiguration();
            users.addUser(args[2], args[3]);
            users.addRole(args[2], "all");
            var role = new Role("all", true, true, true, true, true, true, true, true, true, true, true, true);
            config.putSecurityRoles("#", Set.of(role));
            broker.setSecurityManager(new ActiveMQJAASSecurityManager(InVMLoginModule.class.getName(), users));
        }
        broker.setConfiguration(config);
        broker.start();
        Thread.currentThread().join();
    }
}
