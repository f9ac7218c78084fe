-- report https://github.com/zendesk/maxwell/issues/1216
-- servers mysql
CREATE TABLE tasks (id INT PRIMARY KEY, item_id INT, title VARCHAR(20));
CREATE TABLE t (a INT, c VARCHAR(20), d VARCHAR(20), id INT PRIMARY KEY);
INSERT INTO tasks VALUES (1, 10, 'a');
INSERT INTO t VALUES (1, 'c', 'd', 1);
-- snapshot
ALTER TABLE tasks ADD COLUMN taskable_type VARCHAR(255) DEFAULT 'Item' AFTER taskable_id, CHANGE COLUMN item_id taskable_id INT DEFAULT NULL;
INSERT INTO tasks VALUES (2, 20, 'Other', 'b');
ALTER TABLE t CHANGE a a BIGINT AFTER renamed, CHANGE c renamed VARCHAR(255);
INSERT INTO t VALUES ('c2', 2, 'd2', 2);
ALTER TABLE t ADD b INT DEFAULT 9 AFTER a, MODIFY a BIGINT FIRST, CHANGE d e VARCHAR(20) AFTER b;
INSERT INTO t (id, a, b, e, renamed) VALUES (3, 3, 33, 'e3', 'c3');
