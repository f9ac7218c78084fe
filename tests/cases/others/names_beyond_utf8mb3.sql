-- servers mysql
CREATE TABLE `before😀` (id INT PRIMARY KEY, `c😀` VARCHAR(9));
INSERT INTO `before😀` VALUES (1, '😀');
-- snapshot
CREATE TABLE `t😀` (id INT PRIMARY KEY, `c😀` VARCHAR(9), d INT);
INSERT INTO `t😀` VALUES (1, 'a😀', 3);
INSERT INTO `before😀` VALUES (2, 'b');
CREATE TABLE `gone😀` (id INT PRIMARY KEY);
-- sync
ALTER TABLE `t?` ADD `e😀` INT NOT NULL DEFAULT 5, RENAME COLUMN `c😀` TO `f😀`;
ALTER TABLE `before😀` DROP COLUMN `c?`;
UPDATE `t😀` SET `f?` = '?' WHERE id = 1;
RENAME TABLE `t😀` TO `u😀`;
INSERT INTO `u😀` VALUES (2, 'x', 4, 6);
DROP TABLE `gone😀`;
-- gone gone?
