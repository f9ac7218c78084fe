package peers;

import java.util.concurrent.TimeUnit;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Flink CDC into a table of Paimon, as its documentation shows it: FlinkCdc PORT DATABASE WAREHOUSE SECONDS. The table
 * "narrow" is snapshotted, then followed, with a checkpoint (Paimon's commit) every two seconds, until SECONDS are over
 * or the process is ended. Who looks for progress reads the table's snapshots in WAREHOUSE.
 */
public final class FlinkCdc {
    private static final String COLUMNS = " (id DECIMAL(20, 0), k INT, c STRING, pad STRING, PRIMARY KEY (id) NOT ENFORCED) ";

    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "2 s");
        settings.setString("parallelism.default", "2");
        settings.setString("taskmanager.numberOfTaskSlots", "4");
        StreamExecutionEnvironment streams = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        StreamTableEnvironment tables = StreamTableEnvironment.create(streams);
        tables.executeSql("CREATE TEMPORARY TABLE source" + COLUMNS + "WITH ('connector' = 'mysql-cdc',"
                + " 'hostname' = '127.0.0.1', 'port' = '" + arguments[0] + "', 'username' = 'root', 'password' = '',"
                + " 'database-name' = '" + arguments[1] + "', 'table-name' = 'narrow', 'server-id' = '6300-6310',"
                + " 'server-time-zone' = 'UTC')");
        tables.executeSql("CREATE CATALOG lake WITH ('type' = 'paimon', 'warehouse' = '" + arguments[2] + "')");
        tables.executeSql("CREATE TABLE lake.`default`.narrow" + COLUMNS + "WITH ('bucket' = '2')");
        tables.executeSql("INSERT INTO lake.`default`.narrow SELECT * FROM source");
        TimeUnit.SECONDS.sleep(Long.parseLong(arguments[3]));
        Runtime.getRuntime().halt(0);
    }
}
