-- report https://github.com/zendesk/maxwell/issues/1705
-- report https://github.com/apache/flink-cdc/issues/467
-- report https://github.com/bakwc/mysql_ch_replicator/issues/155
CREATE TABLE readings (id INT AUTO_INCREMENT PRIMARY KEY, v INT);
INSERT INTO readings (v) VALUES (1), (2);
-- snapshot
/* Query from a console, key_548 by user 227 */
truncate`readings`;
INSERT INTO readings VALUES (1, 10);
DELETE FROM readings WHERE id = 1;
INSERT INTO readings VALUES (2, 20);
TRUNCATE TABLE readings;
INSERT INTO readings (v) VALUES (30);
