package peers;

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Debezium's embedded engine, from a live server's log into a Kafka broker as JSON without schemas: ToBroker PORT
 * DATABASE FILE GTIDS ROWS SECONDS BROKER. One line of JSON: rows and wall seconds of the last two thirds, up to where
 * the broker has all.
 */
public final class ToBroker {
    private static final AtomicLong rows = new AtomicLong();
    private static volatile long firstRows, firstWall;

    public static void main(String[] arguments) throws Exception {
        long expected = Long.parseLong(arguments[4]);
        double seconds = Double.parseDouble(arguments[5]);
        Debezium.file = arguments[2];
        Debezium.gtids = arguments[3];
        Properties settings = Debezium.settings(arguments);
        settings.setProperty("converter.schemas.enable", "false");
        KafkaProducer<String, String> producer = producer(arguments[6]);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(settings)
                .using((success, message, error) -> {
                    System.err.println(message);
                    Runtime.getRuntime().halt(1);
                })
                .notifying((events, committer) -> {
                    send(producer, events, expected);
                    for (ChangeEvent<String, String> event : events) {
                        committer.markProcessed(event);
                    }
                    committer.markBatchFinished();
                })
                .build();
        Executors.newSingleThreadExecutor().execute(engine);
        long began = System.nanoTime();
        while (rows.get() < expected && (System.nanoTime() - began) / 1e9 < seconds) {
            TimeUnit.MILLISECONDS.sleep(5);
        }
        producer.flush();
        System.out.printf(
                "{\"rows\": %d, \"wall\": %.4f}%n", rows.get() - firstRows, (System.nanoTime() - firstWall) / 1e9);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void send(
            KafkaProducer<String, String> producer, List<ChangeEvent<String, String>> events, long expected) {
        long sent = 0;
        for (ChangeEvent<String, String> event : events) {
            producer.send(new ProducerRecord<>(event.destination(), event.key(), event.value()));
            if (event.value() != null) {
                sent++;
            }
        }
        long all = rows.addAndGet(sent);
        if (firstWall == 0 && all > expected / 3) {
            firstRows = all;
            firstWall = System.nanoTime();
        }
    }

    private static KafkaProducer<String, String> producer(String broker) {
        Properties told = new Properties();
        told.setProperty("bootstrap.servers", broker);
        told.setProperty("key.serializer", StringSerializer.class.getName());
        told.setProperty("value.serializer", StringSerializer.class.getName());
        told.setProperty("linger.ms", "20");
        told.setProperty("batch.size", "1048576");
        told.setProperty("buffer.memory", "268435456");
        told.setProperty("enable.idempotence", "true");
        return new KafkaProducer<>(told);
    }
}
