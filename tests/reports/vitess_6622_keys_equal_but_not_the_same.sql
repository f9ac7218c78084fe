-- report https://github.com/vitessio/vitess/issues/6622
-- report https://github.com/pingcap/tidb-binlog/issues/1046
CREATE TABLE words (w VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, n INT);
CREATE TABLE exact (w VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, n INT);
INSERT INTO words VALUES ('a', 1), ('é', 2), ('Straße', 3);
INSERT INTO exact VALUES ('a', 1), ('A', 2), ('é', 3);
-- snapshot
UPDATE words SET w = 'A' WHERE w = 'a';
REPLACE INTO words VALUES ('E', 20);
INSERT INTO words VALUES ('STRASZE', 4), ('A ', 5) ON DUPLICATE KEY UPDATE n = n + 100;
UPDATE exact SET w = CONCAT('_', w), n = n * 10;
DELETE FROM words WHERE w = 'straße';
INSERT INTO exact VALUES ('a', 7), ('É', 8);
