-- report https://github.com/debezium/debezium/pull/3788
-- report https://github.com/debezium/debezium/pull/3798
CREATE TABLE `engine` (id INT PRIMARY KEY, buckets INT, status VARCHAR(9)) ENGINE InnoDB;
INSERT INTO `engine` VALUES (1, 1, 'a');
-- snapshot
ALTER TABLE `engine` ADD column_format INT DEFAULT 1, ADD `comment` VARCHAR(9) DEFAULT 'c', ADD visible INT, ADD action INT DEFAULT 4, ADD `partition` INT DEFAULT 5, ADD `first` INT FIRST, ADD `after` INT AFTER buckets;
INSERT INTO `engine` (id, `first`, `after`, `partition`) VALUES (2, 2, 2, 2);
ALTER TABLE `engine` DROP buckets, RENAME COLUMN status TO `to`, MODIFY visible BIGINT COMMENT 'DROP COLUMN action';
INSERT INTO `engine` (id, visible, `to`) VALUES (3, 9223372036854775807, 'moved');
