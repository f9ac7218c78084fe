-- servers mariadb
SET SESSION binlog_alter_two_phase = 1;
CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT);
INSERT INTO t VALUES (1, 1, 1), (2, 1, 2);
ALTER TABLE t ADD COLUMN x INT DEFAULT 7;
INSERT INTO t VALUES (3, 3, 3, 3);
-- fails
ALTER TABLE t DROP COLUMN w, ADD UNIQUE (v);
UPDATE t SET w = 9 WHERE id = 2;
ALTER TABLE t DROP COLUMN x, RENAME TO u;
INSERT INTO u VALUES (4, 4, 4);
-- sync
-- fails
ALTER TABLE u RENAME TO t, ADD UNIQUE (v);
INSERT INTO u VALUES (5, 5, 5);
ALTER TABLE u CHANGE w x BIGINT;
UPDATE u SET x = 1 << 40 WHERE id = 1;
SET SESSION binlog_alter_two_phase = 0;
-- gone t
