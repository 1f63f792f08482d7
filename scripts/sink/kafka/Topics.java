// Makes a topic, or prints its records, with Kafka's own client. A record is a line:
// partition, key, header `mqtt-topic` and value, with tabs between.
//
//   java -cp 'target/kafka/*' Topics.java SERVER PROPERTIES create TOPIC PARTITIONS [KEY=VALUE]
//   java -cp 'target/kafka/*' Topics.java SERVER PROPERTIES read TOPIC

import java.io.FileInputStream;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public final class Topics {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream file = new FileInputStream(args[1])) {
            properties.load(file);
        }
        properties.put("bootstrap.servers", args[0]);
        if (args[2].equals("create")) {
            create(properties, args);
        } else {
            read(properties, args[3]);
        }
    }

    private static void create(Properties properties, String[] args) throws Exception {
        try (Admin admin = Admin.create(properties)) {
            NewTopic topic = new NewTopic(args[3], Optional.of(Integer.valueOf(args[4])), Optional.empty());
            if (args.length > 5) {
                String[] setting = args[5].split("=", 2);
                topic.configs(Map.of(setting[0], setting[1]));
            }
            admin.createTopics(List.of(topic)).all().get();
        }
    }

    private static void read(Properties properties, String topic) {
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, text, text)) {
            List<TopicPartition> all = consumer.partitionsFor(topic).stream()
                .map(it -> new TopicPartition(topic, it.partition()))
                .collect(Collectors.toList());
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            StringBuilder out = new StringBuilder();
            while (all.stream().anyMatch(it -> consumer.position(it) < ends.get(it))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    var header = record.headers().lastHeader("mqtt-topic");
                    out.append(record.partition()).append('\t').append(record.key()).append('\t')
                        .append(header == null ? "-" : new String(header.value())).append('\t')
                        .append(record.value()).append('\n');
                }
            }
            System.out.print(out);
        }
    }
}
