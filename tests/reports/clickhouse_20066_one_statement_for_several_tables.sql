-- report https://github.com/ClickHouse/ClickHouse/pull/20066
-- report https://github.com/shyiko/mysql-binlog-connector-java/issues/306
-- report https://github.com/osheroff/mysql-binlog-connector-java/issues/17
CREATE TABLE main_order (id INT PRIMARY KEY, type INT, note VARCHAR(10));
CREATE TABLE sub_order (id INT PRIMARY KEY, main INT, type SMALLINT);
CREATE TABLE promotion (sub INT, type BIGINT);
INSERT INTO main_order VALUES (1, 7, 'm'), (2, 8, 'n');
INSERT INTO sub_order VALUES (10, 1, 0), (11, 1, 0), (20, 2, 0);
INSERT INTO promotion VALUES (10, 0), (10, 0), (99, 0);
-- snapshot
UPDATE sub_order s JOIN main_order m ON m.id = s.main LEFT JOIN promotion p ON p.sub = s.id SET s.type = m.type, m.note = 'done', p.type = m.type + 1 WHERE s.id < 20;
DELETE s, p FROM sub_order s JOIN promotion p ON p.sub = s.id;
INSERT INTO promotion SELECT id, type FROM sub_order;
