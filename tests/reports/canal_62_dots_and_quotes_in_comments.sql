-- report https://github.com/alibaba/canal/issues/62
-- report https://github.com/alibaba/canal/issues/3330
-- report https://github.com/alibaba/canal/pull/128
CREATE TABLE `tomorrow` (`id` INT PRIMARY KEY COMMENT 'to `other`.`table`; it''s 0.00', `to_do` DECIMAL(18,2) NOT NULL DEFAULT '0.00' COMMENT '总.金额') COMMENT='a.b to c.d';
INSERT INTO tomorrow VALUES (1, 1.5);
-- snapshot
rename 
 table `tomorrow` to `toto` , `toto` to `to`;
INSERT INTO `to` VALUES (2, 2.5);
ALTER TABLE `to` COMMENT = 'RENAME TO x', ADD c INT DEFAULT 1 COMMENT 'AFTER `to_do`, DROP COLUMN `id`';
INSERT INTO `to` VALUES (3, 3.5, 3);
-- gone tomorrow toto
