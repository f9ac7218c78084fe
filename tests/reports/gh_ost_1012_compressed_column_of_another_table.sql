-- report https://github.com/github/gh-ost/issues/1012
-- servers mariadb
CREATE TABLE plain (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name VARCHAR(512) CHARACTER SET utf8mb4 NOT NULL) DEFAULT CHARSET=binary;
CREATE TABLE packed (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name VARCHAR(512) COMPRESSED CHARACTER SET utf8mb4 NOT NULL, at TIMESTAMP(6) NOT NULL DEFAULT UTC_TIMESTAMP(6)) DEFAULT CHARSET=binary;
INSERT INTO packed (name) VALUES (REPEAT('wal', 100)), ('short');
-- snapshot
INSERT INTO plain (name) VALUES ('hello'), ('world');
INSERT INTO packed (name) SELECT REPEAT(name, 30) FROM plain;
UPDATE packed SET name = CONCAT(name, name) WHERE id = 1;
