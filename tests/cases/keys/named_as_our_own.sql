CREATE TABLE t (`place` INT, `number` INT, `op` INT, `offset` INT, `before` INT, v INT, PRIMARY KEY (`place`, `number`, `op`, `offset`, `before`));
CREATE TABLE u (`file` INT, `row` INT, `after` INT, `xid` INT, `gtid` INT, v INT, PRIMARY KEY (`file`, `row`, `after`, `xid`, `gtid`));
INSERT INTO t VALUES (1, 1, 1, 1, 1, 1), (2, 2, 2, 2, 2, 2);
INSERT INTO u VALUES (1, 1, 1, 1, 1, 1), (2, 2, 2, 2, 2, 2);

UPDATE t SET v = 3, `place` = 7 WHERE v = 1;
UPDATE u SET v = 4 WHERE v = 2;
INSERT INTO u VALUES (3, 3, 3, 3, 3, 3);

DELETE FROM t WHERE v = 2;
UPDATE u SET `after` = 9 WHERE v = 1;
UPDATE u SET v = 10;
CREATE TABLE w (copy INT, copies INT, difference INT, `__gone` INT, `__present` INT, counted INT, s INT, t INT);
INSERT INTO w VALUES (1, 1, 1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1, 1, 1), (2, 2, 2, 2, 2, 2, 2, 2);
CREATE TABLE x (copy INT, difference INT, `__gone` INT PRIMARY KEY, `__image` INT, `__sequence` INT, `__change` INT);
INSERT INTO x VALUES (1, 1, 1, 1, 1, 1), (2, 2, 2, 2, 2, 2);
UPDATE w SET copy = 3 LIMIT 1;
DELETE FROM w WHERE difference = 2;
UPDATE x SET `__gone` = 3 WHERE `__gone` = 1;
UPDATE x SET `__image` = 5;
