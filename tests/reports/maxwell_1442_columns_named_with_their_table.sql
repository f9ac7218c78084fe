-- report https://github.com/zendesk/maxwell/issues/1442
-- report https://github.com/zendesk/maxwell/issues/458
CREATE TABLE users (id INT PRIMARY KEY, password VARCHAR(40), metadata TEXT, foo INT);
INSERT INTO users VALUES (1, 'x', 'm', 1);
-- snapshot
ALTER TABLE users DROP COLUMN metadata CASCADE;
INSERT INTO users VALUES (2, 'y', 2);
ALTER TABLE `users` CHANGE COLUMN `password` `password` VARCHAR(60) CHARACTER SET 'utf8mb4' COLLATE 'utf8mb4_bin' NULL DEFAULT NULL COMMENT 'Length 60 for Bcrypt', ADD COLUMN `scheme` ENUM('md5','bcrypt') NULL DEFAULT 'md5' AFTER `password`;
INSERT INTO users VALUES (3, 'z', 'bcrypt', 3);
ALTER TABLE users DROP foo RESTRICT;
INSERT INTO users VALUES (4, 'u', NULL);
