-- report https://github.com/debezium/debezium/pull/1158
-- report https://github.com/debezium/debezium/pull/3598
CREATE TABLE first_name (id INT PRIMARY KEY, v INT);
INSERT INTO first_name VALUES (1, 1);
-- snapshot
ALTER TABLE first_name ADD w INT DEFAULT 2, RENAME TO second_name, MODIFY v BIGINT;
INSERT INTO second_name VALUES (2, 9223372036854775807, 3);
ALTER TABLE second_name RENAME AS third_name, DROP w;
INSERT INTO third_name VALUES (3, 3);
ALTER TABLE third_name RENAME = fourth_name;
UPDATE fourth_name SET v = 0 WHERE id = 1;
-- gone first_name second_name third_name
