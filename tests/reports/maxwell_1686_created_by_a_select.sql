-- report https://github.com/zendesk/maxwell/issues/1686
-- report https://github.com/zendesk/maxwell/pull/197
CREATE TABLE base (id INT PRIMARY KEY, name VARCHAR(200), price DECIMAL(10,2), at TIMESTAMP(3) NULL);
INSERT INTO base VALUES (1, 'a', 1.10, '2021-04-27 23:55:48.001'), (2, 'b', NULL, NULL);
-- snapshot
CREATE TABLE made AS SELECT * FROM base LIMIT 5;
CREATE TABLE keyed (PRIMARY KEY (id), extra INT DEFAULT 5) SELECT id, UPPER(name) AS name, price * 2 AS doubled FROM base;
CREATE TABLE nothing AS SELECT id FROM base WHERE id > 100;
UPDATE made SET name = 'c' WHERE id = 1;
UPDATE keyed SET extra = 6 WHERE id = 2;
INSERT INTO nothing VALUES (9);
