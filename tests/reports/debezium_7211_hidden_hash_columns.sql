-- report https://github.com/debezium/debezium/pull/7211
-- servers mariadb
CREATE TABLE pages (id INT PRIMARY KEY, url TEXT, title VARCHAR(10), UNIQUE KEY u (url) USING HASH);
INSERT INTO pages VALUES (1, REPEAT('u', 5000), 'a');
-- snapshot
INSERT INTO pages VALUES (2, 'v', 'b'), (3, NULL, 'c');
ALTER TABLE pages ADD lead VARCHAR(9) DEFAULT 'l' AFTER url, ADD note BLOB UNIQUE;
INSERT INTO pages VALUES (4, 'w', 'led', 'd', 'n');
UPDATE pages SET title = 'e' WHERE url = 'v';
ALTER TABLE pages DROP KEY u;
DELETE FROM pages WHERE id = 3;
