-- servers mariadb
-- without t.label
CREATE TABLE t (pk INT AUTO_INCREMENT PRIMARY KEY, k INT, v INT AS (pk + k) VIRTUAL, w SMALLINT UNSIGNED AS (v * 100 - 3),
                label VARCHAR(20) AS (CONCAT('#', pk)) VIRTUAL);
INSERT INTO t (k) VALUES (10), (NULL);
-- snapshot
SET sql_mode = '';
INSERT INTO t (k) VALUES (10), (-20), (40000), (NULL);
INSERT INTO t (pk, k) VALUES (100, 5);
UPDATE t SET k = k + 1 WHERE pk > 2;
-- sync
ALTER TABLE t CHANGE pk `the key` INT AUTO_INCREMENT;
INSERT INTO t (k) VALUES (7);
DELETE FROM t WHERE k = 6;
CREATE TABLE born (pk INT AUTO_INCREMENT PRIMARY KEY, k INT, v BIGINT UNSIGNED AS (pk * (k + 2)) VIRTUAL);
INSERT INTO born (k) VALUES (1), (2), (NULL);
