-- report https://github.com/go-mysql-org/go-mysql/issues/393
-- report https://github.com/zendesk/maxwell/pull/45
-- report https://github.com/facebook/mysql-5.6/issues/191
CREATE TABLE kept (id INT PRIMARY KEY, v INT);
-- snapshot
BEGIN;
INSERT INTO kept VALUES (1, 1);
SAVEPOINT `LEVEL1`;
INSERT INTO kept VALUES (2, 2);
SAVEPOINT `LEVEL2`;
UPDATE kept SET v = 9;
ROLLBACK TO SAVEPOINT `LEVEL2`;
INSERT INTO kept VALUES (3, 3);
ROLLBACK TO `LEVEL1`;
INSERT INTO kept VALUES (4, 4);
RELEASE SAVEPOINT `LEVEL1`;
COMMIT;
BEGIN;
DELETE FROM kept;
ROLLBACK;
