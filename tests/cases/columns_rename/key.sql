CREATE TABLE t (id INT, sub VARCHAR(9), v INT, PRIMARY KEY (id, sub));
INSERT INTO t VALUES (1, 'a', 1), (1, 'b', 2);
-- snapshot
ALTER TABLE t RENAME COLUMN id TO ident;
UPDATE t SET v = 3 WHERE ident = 1 AND sub = 'b';
ALTER TABLE t CHANGE sub subkey VARCHAR(20) FIRST;
DELETE FROM t WHERE subkey = 'a';
INSERT INTO t VALUES ('new', 7, 7);
