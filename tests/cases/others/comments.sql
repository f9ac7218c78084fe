-- Comments of tables and columns are the server's, whatever is done to the columns.
CREATE TABLE t (id INT PRIMARY KEY COMMENT 'the key', a VARCHAR(9) COMMENT 'it''s "a"\n\\', b INT COMMENT 'about b', c TEXT) COMMENT = 'about ünïcode 日本 and 😀';
CREATE TABLE plain (id INT PRIMARY KEY, a INT);
CREATE TABLE replaced (id INT PRIMARY KEY COMMENT 'goes') COMMENT 'goes';
CREATE TABLE moved (id INT PRIMARY KEY COMMENT 'the key', a INT COMMENT 'about a') COMMENT 'about moved';
CREATE TABLE emptied (id INT PRIMARY KEY COMMENT 'the key') COMMENT 'stays';
CREATE TABLE retyped (id INT PRIMARY KEY, a INT COMMENT 'about a', b INT COMMENT 'stays') COMMENT 'stays';
INSERT INTO t VALUES (1, 'one', 1, 'text'), (2, NULL, NULL, NULL);
INSERT INTO moved VALUES (1, 1), (2, 2);
INSERT INTO emptied VALUES (1);
INSERT INTO retyped VALUES (1, 1, 1);
-- snapshot

ALTER TABLE t COMMENT = 'another';
ALTER TABLE t MODIFY a VARCHAR(20), RENAME COLUMN b TO B2;
INSERT INTO t VALUES (3, 'three', 3, 'x');
ALTER TABLE t ALTER B2 SET DEFAULT 5, ADD d INT DEFAULT 7 COMMENT 'filled', MODIFY c TEXT COMMENT 'now it has one';
ALTER TABLE plain COMMENT 'it has one';
DROP TABLE replaced;
CREATE TABLE replaced (id INT PRIMARY KEY, a INT);
INSERT INTO replaced VALUES (1, 1);
RENAME TABLE moved TO left_behind, t TO moved;
INSERT INTO moved (id) VALUES (4);
TRUNCATE TABLE emptied;
INSERT INTO emptied VALUES (2);
ALTER TABLE retyped MODIFY a VARCHAR(9);
CREATE TABLE made (id INT PRIMARY KEY COMMENT 'of made', `a b` INT COMMENT 'odd', v INT AS (id + 1) COMMENT 'computed') COMMENT 'made';
INSERT INTO made (id) VALUES (1);
CREATE TABLE alike LIKE made;
ALTER TABLE alike COMMENT 'alike';
-- sync

ALTER TABLE moved COMMENT '', MODIFY c TEXT, DROP d;
ALTER TABLE plain MODIFY a INT COMMENT 'alone';
ALTER TABLE alike MODIFY `a b` BIGINT COMMENT 'wider';
INSERT INTO alike (id, `a b`) VALUES (1, 1);
UPDATE retyped SET b = 2;
ALTER TABLE retyped COMMENT 'between two changes of rows';
UPDATE retyped SET b = 3;
ALTER TABLE made CONVERT TO CHARACTER SET latin1;
