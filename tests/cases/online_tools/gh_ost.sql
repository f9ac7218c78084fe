CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), n INT);
INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3);
-- snapshot

CREATE TABLE _t_ghc (id BIGINT AUTO_INCREMENT, last_update TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, hint VARCHAR(64) CHARSET ascii NOT NULL, value VARCHAR(255) CHARSET ascii NOT NULL, PRIMARY KEY (id), UNIQUE KEY hint_uidx (hint));
CREATE TABLE _t_gho LIKE t;
ALTER TABLE _t_gho ADD COLUMN at DATETIME DEFAULT CURRENT_TIMESTAMP, MODIFY v VARCHAR(50), DROP n;
INSERT INTO _t_ghc (hint, value) VALUES ('state', 'GhostTableMigrated');
INSERT /* gh-ost */ IGNORE INTO _t_gho (id, v) SELECT id, v FROM t FORCE INDEX (PRIMARY) WHERE id <= 2 LOCK IN SHARE MODE;
UPDATE t SET v = 'changed' WHERE id = 1;
REPLACE /* gh-ost */ INTO _t_gho (id, v) VALUES (1, 'changed');
INSERT INTO t VALUES (4, 'four', 4);
REPLACE /* gh-ost */ INTO _t_gho (id, v) VALUES (4, 'four');
-- sync
INSERT /* gh-ost */ IGNORE INTO _t_gho (id, v) SELECT id, v FROM t FORCE INDEX (PRIMARY) WHERE id > 2 LOCK IN SHARE MODE;
DELETE FROM t WHERE id = 2;
DELETE /* gh-ost */ FROM _t_gho WHERE id = 2;
CREATE TABLE _t_del (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE = InnoDB COMMENT = 'ghost-cut-over-sentry';
DROP TABLE _t_del;
RENAME TABLE t TO _t_del, _t_gho TO t;
INSERT INTO t (id, v) VALUES (5, 'longer than nine letters');
DROP TABLE IF EXISTS _t_ghc;
DROP TABLE IF EXISTS _t_del;
-- sync
UPDATE t SET v = 'after' WHERE id = 1;
