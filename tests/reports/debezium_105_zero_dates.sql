-- report https://github.com/debezium/debezium/pull/105
-- report https://github.com/debezium/debezium/pull/646
-- refused visits a date that no calendar has
CREATE TABLE visits (id INT PRIMARY KEY, day DATE NOT NULL);
CREATE TABLE defaults (id INT PRIMARY KEY, v INT);
INSERT INTO visits VALUES (1, '2016-09-21');
INSERT INTO defaults VALUES (1, 1);
-- snapshot
SET sql_mode = '';
ALTER TABLE defaults ADD later DATETIME NULL DEFAULT NULL;
INSERT INTO defaults VALUES (2, 2, '2018-06-26 12:34:56');
INSERT INTO visits VALUES (2, '0000-00-00');
