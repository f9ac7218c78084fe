package peers;

import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.Header;
import io.debezium.engine.format.Json;
import java.io.PrintStream;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

/**
 * What Debezium's embedded engine makes of a live server, as its JSON converter writes it: Messages PROPERTIES prints a
 * line for each message, {"topic": …, "key": …, "value": …, "headers": {…}}, until it is killed.
 */
public final class Messages {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(reader);
        }
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine
                .create(Json.class, Json.class, Json.class)
                .using(settings)
                .using((success, message, error) -> {
                    System.err.println(message);
                    if (error != null) {
                        error.printStackTrace();
                    }
                    Runtime.getRuntime().halt(success ? 0 : 1);
                })
                .notifying((records, committer) -> {
                    for (ChangeEvent<String, String> record : records) {
                        out.println(line(record));
                        committer.markProcessed(record);
                    }
                    out.flush();
                    committer.markBatchFinished();
                })
                .build();
        engine.run();
    }

    private static String line(ChangeEvent<String, String> record) {
        StringBuilder headers = new StringBuilder();
        for (Header<String> header : record.<String>headers()) {
            headers.append(headers.isEmpty() ? "" : ",").append('"').append(header.getKey()).append("\":");
            headers.append(header.getValue());
        }
        String names = "{\"topic\":\"%s\",\"key\":%s,\"value\":%s,\"headers\":{%s}}";
        return names.formatted(record.destination(), record.key(), record.value(), headers);
    }
}
