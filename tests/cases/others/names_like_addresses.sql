CREATE TABLE `what?` (id INT PRIMARY KEY, `v?` INT);
CREATE TABLE `c#` (id INT PRIMARY KEY, `v#` INT);
INSERT INTO `what?` VALUES (1, 1);
INSERT INTO `c#` VALUES (1, 1);
-- snapshot
CREATE TABLE `?#&=+` (id INT PRIMARY KEY);
INSERT INTO `?#&=+` VALUES (1);
UPDATE `what?` SET `v?` = 2;
INSERT INTO `c#` VALUES (2, 2);
-- sync
RENAME TABLE `what?` TO `what#`, `c#` TO `what?`;
ALTER TABLE `what?` ADD w INT DEFAULT 5;
DROP TABLE `?#&=+`;
-- gone ?#&=+
