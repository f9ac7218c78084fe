-- report https://github.com/pingcap/tidb/issues/43455
-- report https://github.com/pingcap/tidb/pull/67983
-- servers mysql
CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, ev INT AS (v = 'A') VIRTUAL);
INSERT INTO t (id, v) VALUES (1, 'a'), (2, 'A'), (3, 'b');
-- snapshot
ALTER TABLE t MODIFY v VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;
INSERT INTO t (id, v) VALUES (4, 'a');
-- resnapshot t
