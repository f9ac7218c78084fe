-- report https://github.com/estuary/connectors/issues/5188
-- report https://github.com/MaterializeInc/materialize/issues/26152
-- report https://github.com/osheroff/mysql-binlog-connector-java/pull/41
-- servers mysql >= 8.0.23, mariadb
CREATE TABLE t1 (f1 INT, f2 INT INVISIBLE, f3 INT INVISIBLE DEFAULT 3);
CREATE TABLE keyed (id INT AUTO_INCREMENT INVISIBLE PRIMARY KEY, name VARCHAR(20));
INSERT INTO t1 (f1, f2, f3) VALUES (10, 20, 30);
INSERT INTO keyed VALUES ('a'), ('b');
-- snapshot
INSERT INTO t1 VALUES (11);
INSERT INTO keyed VALUES ('c');
UPDATE keyed SET name = 'd' WHERE id = 1;
DELETE FROM keyed WHERE id = 2;
ALTER TABLE t1 ADD f4 INT DEFAULT 4 INVISIBLE FIRST, MODIFY f2 INT;
INSERT INTO t1 VALUES (12, 22);
