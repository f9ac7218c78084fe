-- without u.w for mariadb >= 11.5
CREATE TABLE t (n INT, v INT AS (n * 2) VIRTUAL, s INT AS (n + 1) STORED, UNIQUE (v), UNIQUE (s));
INSERT INTO t (n) VALUES (1), (2), (NULL), (NULL);
CREATE TABLE u (id INT NOT NULL, n INT, w VARCHAR(20) AS (CONCAT(id, '-', n)) STORED, UNIQUE (w), UNIQUE KEY (id));
INSERT INTO u (id, n) VALUES (1, 1), (2, NULL), (3, 3);
-- snapshot
UPDATE t SET n = 5 WHERE v = 2;
DELETE FROM t WHERE n IS NULL LIMIT 1;
INSERT INTO t (n) VALUES (7), (8);
UPDATE u SET n = 4 WHERE w = '1-1';
DELETE FROM u WHERE w = '3-3';
INSERT INTO u (id, n) VALUES (4, 4);
-- sync
ALTER TABLE u DROP INDEX id, ADD INDEX (id);
UPDATE u SET id = 9 WHERE n = 4 LIMIT 1;
CREATE TABLE born (n INT, v BIGINT AS (n - 1) VIRTUAL UNIQUE, w BIGINT AS (n * 3) UNIQUE);
INSERT INTO born (n) VALUES (1), (2), (3);
UPDATE born SET n = 10 WHERE v = 0;
DELETE FROM born WHERE w = 6;
