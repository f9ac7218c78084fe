-- report https://github.com/debezium/debezium/pull/6422
-- servers mariadb >= 10.7
CREATE TABLE things (id UUID PRIMARY KEY, parent UUID, v INT);
INSERT INTO things VALUES ('123e4567-e89b-12d3-a456-426655440000', NULL, 1), ('00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffff00', 2);
-- snapshot
INSERT INTO things VALUES ('7ab1d2f3-0000-7000-8000-000000000000', '123e4567-e89b-12d3-a456-426655440000', 3);
UPDATE things SET v = 10, parent = id WHERE v = 2;
ALTER TABLE things ADD other UUID DEFAULT '6ba7b810-9dad-11d1-80b4-00c04fd430c8';
INSERT INTO things (id, other) VALUES ('6ba7b811-9dad-11d1-80b4-00c04fd43000', NULL);
