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
