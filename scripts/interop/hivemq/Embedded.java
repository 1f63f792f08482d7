// HiveMQ CE for anyone, with the files of a folder: `Embedded FOLDER`. Its configuration is
// FOLDER/config.xml; sessions are in FOLDER/data and outlive SIGTERM.

import com.hivemq.embedded.EmbeddedHiveMQ;
import java.nio.file.Files;
import java.nio.file.Path;

public final class Embedded {
    public static void main(String[] args) throws Exception {
        var folder = Path.of(args[0]);
        var broker = EmbeddedHiveMQ.builder()
                .withConfigurationFolder(folder)
                .withDataFolder(Files.createDirectories(folder.resolve("data")))
                .withExtensionsFolder(Files.createDirectories(folder.resolve("extensions")))
                .build();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> broker.stop().join()));
        broker.start().join();
        Thread.currentThread().join();
    }
}
