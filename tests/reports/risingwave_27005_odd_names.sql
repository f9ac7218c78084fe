-- report https://github.com/risingwavelabs/risingwave/issues/27005
-- report https://github.com/apache/flink-cdc/issues/646
-- report https://github.com/eventuate-local/eventuate-local/issues/6
CREATE TABLE `b.c` (id INT PRIMARY KEY, `x.y` INT, `a-b` INT, `with blank` INT, `back``tick` INT);
CREATE TABLE `some-thing` (id INT PRIMARY KEY, `日本` VARCHAR(9));
INSERT INTO `b.c` VALUES (1, 1, 1, 1, 1);
INSERT INTO `some-thing` VALUES (1, 'a');
-- snapshot
UPDATE `b.c` SET `x.y` = 2, `back``tick` = 2;
ALTER TABLE `some-thing` RENAME COLUMN `日本` TO `a.b,c`, ADD `select` INT DEFAULT 1;
INSERT INTO `some-thing` VALUES (2, 'b', 2);
RENAME TABLE `b.c` TO `c.b$`;
INSERT INTO `c.b$` VALUES (2, 2, 2, 2, 2);
-- gone b.c
