-- without t.zoned t.shown
-- without t.kept for mariadb >= 11.5
-- without later.day
-- without reshaped.v
SET time_zone = '-03:00';
CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, ts TIMESTAMP NULL, s VARCHAR(20), total BIGINT AS (n * 2) VIRTUAL,
                zoned DATETIME AS (FROM_UNIXTIME(n)) VIRTUAL, shown DATE AS (DATE(ts)) VIRTUAL,
                kept VARCHAR(30) AS (CONCAT(s, '|')) VIRTUAL);
INSERT INTO t (id, n, ts, s) VALUES (1, 86400, '1990-05-05 23:30:00', 'a'), (2, NULL, NULL, NULL);
-- snapshot
SET time_zone = '+05:30';
INSERT INTO t (id, n, ts, s) VALUES (3, 90000, '1990-05-05 23:30:00', 'b'), (4, -5, '2000-01-01 01:00:00', '');
UPDATE t SET n = n + 1, s = 'c' WHERE id < 3;
DELETE FROM t WHERE id = 4;
CREATE TABLE later (id INT PRIMARY KEY, ts TIMESTAMP NULL);
INSERT INTO later VALUES (1, '2001-01-01 01:00:00');
ALTER TABLE later ADD day DATE AS (DATE(ts)) VIRTUAL;
INSERT INTO later (id, ts) VALUES (2, '2002-02-02 02:00:00');
CREATE TABLE reshaped (id INT PRIMARY KEY, d DATETIME, v DATE AS (DATE(d)) VIRTUAL);
INSERT INTO reshaped (id, d) VALUES (1, '2001-01-01 01:00:00');
-- sync
SET time_zone = '-03:00';
UPDATE t SET ts = '1991-05-05 01:00:00';
-- resnapshot reshaped
ALTER TABLE reshaped MODIFY d TIMESTAMP NULL;
INSERT INTO reshaped (id, d) VALUES (2, '2002-02-02 02:00:00');
SET time_zone = '+00:00';
