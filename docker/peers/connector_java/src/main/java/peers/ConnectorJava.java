package peers;

import com.github.shyiko.mysql.binlog.BinaryLogFileReader;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.Event;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.event.deserialization.ChecksumType;
import com.github.shyiko.mysql.binlog.event.deserialization.EventDeserializer;
import java.io.BufferedInputStream;
import java.io.FileInputStream;
import java.io.InputStream;
import java.lang.management.ManagementFactory;

/**
 * Reads a binlog file with mysql-binlog-connector-java, rows decoded (it steps over checksums); several passes in one
 * process, so that the later ones are warm: ConnectorJava FILE PASSES SECONDS. A line of JSON for each pass.
 */
public final class ConnectorJava {
    public static void main(String[] arguments) throws Exception {
        int passes = Integer.parseInt(arguments[1]);
        double seconds = Double.parseDouble(arguments[2]);
        long began = System.nanoTime();
        for (int number = 0; number < passes; number++) {
            if (number > 1 && (System.nanoTime() - began) / 1e9 > seconds) {
                break;
            }
            long start = System.nanoTime();
            long used = cpu();
            long rows = pass(arguments[0]);
            System.out.printf(
                    "{\"rows\": %d, \"wall\": %.4f, \"cpu\": %.4f}%n",
                    rows, (System.nanoTime() - start) / 1e9, (cpu() - used) / 1e9);
        }
    }

    private static long cpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }

    private static long pass(String file) throws Exception {
        EventDeserializer deserializer = new EventDeserializer();
        deserializer.setChecksumType(ChecksumType.CRC32);
        long rows = 0;
        try (InputStream stream = new BufferedInputStream(new FileInputStream(file), 1 << 20);
                BinaryLogFileReader reader = new BinaryLogFileReader(stream, deserializer)) {
            for (Event event = reader.readEvent(); event != null; event = reader.readEvent()) {
                EventData data = event.getData();
                if (data instanceof WriteRowsEventData written) {
                    rows += written.getRows().size();
                } else if (data instanceof UpdateRowsEventData updated) {
                    rows += updated.getRows().size();
                } else if (data instanceof DeleteRowsEventData deleted) {
                    rows += deleted.getRows().size();
                }
            }
        }
        return rows;
    }
}
