-- report https://github.com/zendesk/maxwell/issues/1303
-- report https://github.com/zendesk/maxwell/issues/1320
-- report https://github.com/zendesk/maxwell/issues/272
-- servers mariadb
CREATE TABLE lookups (id INT PRIMARY KEY, attribute5 VARCHAR(100), foo INT);
INSERT INTO lookups VALUES (1, 'a', 1);
-- snapshot
ALTER TABLE lookups MODIFY COLUMN lookups.attribute5 VARCHAR(500);
INSERT INTO lookups VALUES (2, REPEAT('b', 500), 2);
ALTER TABLE .`lookups` ADD COLUMN lookups.remark VARCHAR(100) DEFAULT 'r' AFTER attribute5;
INSERT INTO lookups VALUES (3, 'c', 'said', 3);
