-- report https://github.com/Altinity/clickhouse-sink-connector/issues/9
-- report https://github.com/apache/hudi/issues/9186
-- report https://github.com/estuary/connectors/pull/2185
CREATE TABLE slots (id INT, part INT, v INT, PRIMARY KEY (id, part));
INSERT INTO slots VALUES (1, 1, 11), (2, 1, 21), (3, 1, 31), (4, 1, 41);
-- snapshot
UPDATE slots SET id = id + 1 ORDER BY id DESC;
UPDATE slots SET id = 100 WHERE id = 2;
UPDATE slots SET id = 2 WHERE id = 3;
UPDATE slots SET id = 3 WHERE id = 100;
INSERT INTO slots VALUES (1, 1, 0);
UPDATE slots SET part = 2, v = v + 1 WHERE id IN (1, 5);
DELETE FROM slots WHERE id = 4;
