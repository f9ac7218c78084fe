package peers;

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;

/**
 * What Debezium's embedded engine says of a database, from its snapshot on: Messages PORT DATABASE PREFIX SCHEMAS.
 * A line of three fields apart by tabs for each message: topic, key and value as JSON, "null" where there is none.
 * Ends behind the first row that is inserted into the table "done".
 */
public final class Messages {
    private static final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] arguments) {
        String done = "%s.%s.done".formatted(arguments[2], arguments[1]);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(settings(arguments))
                .using((success, message, error) -> {
                    System.err.println(message);
                    Runtime.getRuntime().halt(1);
                })
                .notifying(event -> {
                    out.println(event.destination() + "\t" + event.key() + "\t" + event.value());
                    if (done.equals(event.destination()) && event.value().contains("\"op\":\"c\"")) {
                        Runtime.getRuntime().halt(0);
                    }
                })
                .build();
        engine.run();
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.setProperty("name", "messages");
        settings.setProperty("topic.prefix", arguments[2]);
        settings.setProperty("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        settings.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        settings.setProperty("snapshot.mode", "initial");
        settings.setProperty("database.hostname", "127.0.0.1");
        settings.setProperty("database.port", arguments[0]);
        settings.setProperty("database.user", "root");
        settings.setProperty("database.password", "");
        settings.setProperty("database.server.id", "6199");
        settings.setProperty("database.ssl.mode", "disabled");
        settings.setProperty("database.include.list", arguments[1]);
        settings.setProperty("provide.transaction.metadata", "true");
        settings.setProperty("skipped.operations", "none");
        for (String side : new String[] {"key", "value"}) {
            settings.setProperty(side + ".converter.schemas.enable", arguments[3]);
            settings.setProperty("converter." + side + ".schemas.enable", arguments[3]);
        }
        return settings;
    }
}
