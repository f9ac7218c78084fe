package peers;

import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;

/**
 * Reads a live server's log from its beginning with Debezium's embedded engine, big batches, records counted and
 * dropped: Debezium PORT DATABASE FILE GTIDS ROWS SECONDS. One line of JSON: rows, wall and CPU seconds of the last
 * two thirds; the first third warms it up.
 */
public final class Debezium {
    private static final AtomicLong rows = new AtomicLong();
    static volatile String file, gtids;
    private static volatile long expected, firstRows, firstWall, firstCpu, lastWall, lastCpu;

    public static void main(String[] arguments) throws Exception {
        expected = Long.parseLong(arguments[4]);
        double seconds = Double.parseDouble(arguments[5]);
        file = arguments[2];
        gtids = arguments[3];
        long began = System.nanoTime();
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine = DebeziumEngine
                .create(ChangeEventFormat.of(Connect.class))
                .using(settings(arguments))
                .using((success, message, error) -> {
                    if (!success) {
                        System.err.println(message);
                        if (error != null) {
                            error.printStackTrace();
                        }
                        System.exit(1);
                    }
                })
                .notifying((records, committer) -> {
                    count(records);
                    for (RecordChangeEvent<SourceRecord> record : records) {
                        committer.markProcessed(record);
                    }
                    committer.markBatchFinished();
                })
                .build();
        ExecutorService executor = Executors.newSingleThreadExecutor();
        executor.execute(engine);
        while (rows.get() < expected && (System.nanoTime() - began) / 1e9 < seconds) {
            TimeUnit.MILLISECONDS.sleep(20);
        }
        System.out.printf(
                "{\"rows\": %d, \"wall\": %.4f, \"cpu\": %.4f}%n",
                rows.get() - firstRows, (lastWall - firstWall) / 1e9, (lastCpu - firstCpu) / 1e9);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void count(List<RecordChangeEvent<SourceRecord>> records) {
        long counted = 0;
        for (RecordChangeEvent<SourceRecord> record : records) {
            if (record.record().value() instanceof Struct value && value.schema().field("op") != null) {
                counted++;
            }
        }
        if (counted == 0) {
            return;
        }
        lastWall = System.nanoTime();
        lastCpu = cpu();
        long all = rows.addAndGet(counted);
        if (firstWall == 0 && all > expected / 3) {
            firstRows = all;
            firstWall = lastWall;
            firstCpu = lastCpu;
        }
    }

    /** The offset of a run that ended when the database was new; "recovery" then takes the tables as they are. */
    public static final class FromTheBeginning extends MemoryOffsetBackingStore {
        @Override
        public void start() {
            super.start();
            String offset = "{\"file\":\"%s\",\"pos\":4,\"gtids\":\"%s\"}".formatted(file, gtids);
            data.put(bytes("[\"bench\",{\"server\":\"bench\"}]"), bytes(offset));
        }

        @Override
        public Set<Map<String, Object>> connectorPartitions(String connector) {
            return Set.of();
        }

        private static ByteBuffer bytes(String text) {
            return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
        }
    }

    static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.setProperty("name", "bench");
        settings.setProperty("topic.prefix", "bench");
        settings.setProperty("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        settings.setProperty("offset.storage", FromTheBeginning.class.getName());
        settings.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        settings.setProperty("snapshot.mode", "recovery");
        settings.setProperty("database.hostname", "127.0.0.1");
        settings.setProperty("database.port", arguments[0]);
        settings.setProperty("database.user", "root");
        settings.setProperty("database.password", "");
        settings.setProperty("database.server.id", "6198");
        settings.setProperty("database.ssl.mode", "disabled");
        settings.setProperty("database.include.list", arguments[1]);
        settings.setProperty("include.schema.changes", "false");
        settings.setProperty("max.batch.size", "20480");
        settings.setProperty("max.queue.size", "81920");
        return settings;
    }

    private static long cpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }
}
