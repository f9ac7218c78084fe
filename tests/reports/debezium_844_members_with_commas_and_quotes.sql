-- report https://github.com/debezium/debezium/pull/844
-- report https://github.com/debezium/debezium/pull/7565
-- report https://github.com/debezium/debezium/pull/138
CREATE TABLE stations (id INT PRIMARY KEY, type ENUM('station', 'post_office') NOT NULL DEFAULT 'station', tags SET('a b', '(c)'));
INSERT INTO stations VALUES (1, 'post_office', 'a b');
-- snapshot
ALTER TABLE stations MODIFY type ENUM('station', 'post_office', 'plane', 'a,b', 'it''s', 'back\\slash', "dou""ble", '') NOT NULL DEFAULT 'a,b', MODIFY tags SET('a b', '(c)', 'd''e', 'ENUM(''x'')');
INSERT INTO stations VALUES (2, 'a,b', '(c),d''e'), (3, 'it''s', 'ENUM(''x'')'), (4, 'back\\slash', ''), (5, 'dou"ble', NULL), (6, '', NULL), (7, DEFAULT, NULL);
ALTER TABLE stations ADD other ENUM('one, two', 'three)') DEFAULT 'three)';
INSERT INTO stations (id, other) VALUES (8, 'one, two');
UPDATE stations SET type = 'plane' WHERE id = 6;
