-- report https://github.com/apache/flink-cdc/issues/1239
-- report https://github.com/zendesk/maxwell/pull/1358
CREATE TABLE accounts (id INT PRIMARY KEY, age INT);
INSERT INTO accounts VALUES (1, 1);
-- snapshot
XA START 'flink_1239_back';
INSERT INTO accounts VALUES (10, 100);
UPDATE accounts SET age = 2;
XA END 'flink_1239_back';
XA PREPARE 'flink_1239_back';
XA ROLLBACK 'flink_1239_back';
XA START 'flink_1239_done';
INSERT INTO accounts VALUES (11, 110);
XA END 'flink_1239_done';
XA PREPARE 'flink_1239_done';
XA COMMIT 'flink_1239_done';
XA START 'flink_1239_once';
UPDATE accounts SET age = age + 1 WHERE id = 1;
XA END 'flink_1239_once';
XA COMMIT 'flink_1239_once' ONE PHASE;
