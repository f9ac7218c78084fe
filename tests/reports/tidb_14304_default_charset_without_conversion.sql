-- report https://github.com/pingcap/tidb/pull/14304
-- report https://github.com/MariaDB/server/pull/22
CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10)) CHARACTER SET latin1;
INSERT INTO t VALUES (1, 'ä');
-- snapshot
ALTER TABLE t CHARACTER SET utf8mb4;
INSERT INTO t VALUES (2, 'ö');
ALTER TABLE t ADD b VARCHAR(10) DEFAULT '中';
INSERT INTO t VALUES (3, 'ü', '🐬');
ALTER TABLE t DEFAULT CHARACTER SET utf8mb4, CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT INTO t VALUES (4, '界', 'é');
