-- servers mysql
SET time_zone = '-03:00';
CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, v DATETIME AS (FROM_UNIXTIME(n)) STORED);
INSERT INTO t (id, n) VALUES (1, 86400);
-- snapshot
SET time_zone = '+05:30';
INSERT INTO t (id, n) VALUES (2, 86400);
SET time_zone = '+00:00';
