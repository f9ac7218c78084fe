-- report https://github.com/zendesk/maxwell/issues/463
-- report https://github.com/Altinity/clickhouse-sink-connector/issues/928
-- report https://github.com/apache/flink-cdc/pull/4502
CREATE TABLE template (id INT PRIMARY KEY, v VARCHAR(10) CHARACTER SET latin1 DEFAULT 'ä', e ENUM('x', 'y'));
CREATE TABLE target (e VARCHAR(5), id BIGINT PRIMARY KEY);
INSERT INTO target VALUES ('keep', 1);
-- snapshot
CREATE TABLE copy LIKE template;
INSERT INTO copy (id, e) VALUES (1, 'y');
CREATE TABLE IF NOT EXISTS target LIKE template;
INSERT INTO target VALUES ('still', 2);
CREATE TABLE IF NOT EXISTS second (LIKE copy);
ALTER TABLE template MODIFY e ENUM('y', 'x'), ADD n INT;
INSERT INTO second VALUES (2, 'ö', 'x');
CREATE TABLE third LIKE template;
INSERT INTO third VALUES (3, 'ü', 'x', 3);
