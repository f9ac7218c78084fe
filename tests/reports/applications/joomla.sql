-- Dates of zeros as defaults that become NULL, statements that may fail, names with a prefix, a key of bytes.
SET sql_mode = '';
CREATE TABLE `jos_content` (`id` int(10) unsigned NOT NULL AUTO_INCREMENT, `asset_id` int(10) unsigned NOT NULL DEFAULT '0' COMMENT 'FK to the #__assets table.', `title` varchar(255) NOT NULL DEFAULT '', `alias` varchar(255) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin NOT NULL DEFAULT '', `introtext` mediumtext NOT NULL, `state` tinyint(3) NOT NULL DEFAULT '0', `created` datetime NOT NULL DEFAULT '0000-00-00 00:00:00', `publish_up` datetime NOT NULL DEFAULT '0000-00-00 00:00:00', `attribs` varchar(5120) NOT NULL, `ordering` int(11) NOT NULL DEFAULT '0', `xreference` varchar(50) NOT NULL, PRIMARY KEY (`id`), KEY `idx_state` (`state`)) DEFAULT CHARSET=utf8mb3;
CREATE TABLE `jos_session` (`session_id` varchar(200) NOT NULL DEFAULT '', `client_id` tinyint(3) unsigned NOT NULL DEFAULT '0', `guest` tinyint(4) unsigned DEFAULT '1', `time` varchar(14) DEFAULT '', `data` mediumtext, `userid` int(11) DEFAULT '0', PRIMARY KEY (`session_id`)) DEFAULT CHARSET=utf8mb3;
CREATE TABLE `jos_menu` (`id` int(11) NOT NULL AUTO_INCREMENT, `alias` varchar(255) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin NOT NULL, `path` varchar(1024) NOT NULL, `link` varchar(1024) NOT NULL, `ordering` int(11) NOT NULL DEFAULT '0', `params` text NOT NULL, `lft` int(11) NOT NULL DEFAULT '0', PRIMARY KEY (`id`), UNIQUE KEY `idx_alias` (`alias`), KEY `idx_path` (`path`(255))) DEFAULT CHARSET=utf8mb3;
CREATE TABLE `jos_user_usergroup_map` (`user_id` int(11) NOT NULL DEFAULT '0', `group_id` int(10) unsigned NOT NULL DEFAULT '0', PRIMARY KEY (`user_id`,`group_id`));
CREATE TABLE `jos_core_log_searches` (`search_term` varchar(128) NOT NULL DEFAULT '', `hits` int(10) unsigned NOT NULL DEFAULT '0') DEFAULT CHARSET=utf8mb3;
INSERT INTO `jos_content` (`title`, `alias`, `introtext`, `state`, `created`, `publish_up`, `attribs`, `xreference`) VALUES ('Welcome', 'welcome', '<p>Grüß Gott</p>', 1, '2011-01-01 00:00:01', '2011-01-01 00:00:01', '{"show_title":""}', ''), ('Old', 'old', '', -2, '2010-01-01 00:00:00', '2010-02-01 00:00:00', '', 'x');
INSERT INTO `jos_session` VALUES ('abc', 0, 1, '1300000000', 'joomla|s:0:"";', 0), ('def', 1, 0, '1300000001', NULL, 42);
INSERT INTO `jos_menu` (`alias`, `path`, `link`, `params`, `lft`) VALUES ('root', '', '', '', 0), ('home', 'home', 'index.php?option=com_content', '{}', 1);
INSERT INTO `jos_user_usergroup_map` VALUES (42, 8), (43, 2);
INSERT INTO `jos_core_log_searches` VALUES ('joomla', 1), ('joomla', 1), ('php', 5);
-- snapshot
SET sql_mode = '';
ALTER TABLE `jos_menu` DROP KEY `idx_path`;
ALTER TABLE `jos_content` CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
ALTER TABLE `jos_content` MODIFY `alias` varchar(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' /** CAN FAIL **/;
ALTER TABLE `jos_menu` MODIFY `alias` varchar(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'The SEF alias of the menu item.', DEFAULT CHARACTER SET utf8mb4;
INSERT INTO `jos_content` (`title`, `alias`, `introtext`, `created`, `publish_up`, `attribs`, `xreference`) VALUES ('🎉', '🎉', '🎊', '2015-07-01 00:00:00', '2015-07-01 00:00:00', '', '');
ALTER TABLE `jos_menu` DROP COLUMN `ordering`, ADD COLUMN `publish_up` datetime NULL DEFAULT NULL, ADD COLUMN `client_id` tinyint(4) NOT NULL DEFAULT '0' AFTER `params`;
UPDATE `jos_menu` SET `client_id` = 1, `publish_up` = '2016-01-01 00:00:00' WHERE `alias` = 'home';
DELETE FROM `jos_core_log_searches` WHERE `search_term` = 'joomla' LIMIT 1;
UPDATE `jos_core_log_searches` SET `hits` = `hits` + 1 WHERE `search_term` = 'joomla' ORDER BY `hits` LIMIT 1;
ALTER TABLE `jos_session` MODIFY `session_id` varchar(191) NOT NULL DEFAULT '', MODIFY `time` int(11) NOT NULL DEFAULT 0;
REPLACE INTO `jos_session` VALUES ('abc', 0, 0, 1400000000, 'joomla|s:1:"a";', 42), ('ghi', 0, 1, 0, '', 0);
-- sync
SET sql_mode = '';
ALTER TABLE `jos_content` MODIFY `created` datetime NOT NULL, MODIFY `publish_up` datetime NULL DEFAULT NULL;
UPDATE `jos_content` SET `publish_up` = NULL WHERE `state` = -2;
ALTER TABLE `jos_content` DROP COLUMN `xreference`, ADD COLUMN `featured_up` datetime, ADD COLUMN `note` varchar(255) NOT NULL DEFAULT '' AFTER `attribs`;
INSERT INTO `jos_content` (`introtext`, `created`, `attribs`) VALUES ('', '2021-08-17 00:00:00', '{}');
ALTER TABLE `jos_session` MODIFY `session_id` varbinary(192) NOT NULL;
DELETE FROM `jos_session` WHERE `session_id` = 'ghi';
RENAME TABLE `jos_core_log_searches` TO `jos_finder_logging`;
ALTER TABLE `jos_finder_logging` ADD COLUMN `md5sum` varchar(32) NOT NULL DEFAULT '' AFTER `search_term`, CHANGE `hits` `hits` int(11) NOT NULL DEFAULT 1;
UPDATE `jos_finder_logging` SET `md5sum` = LEFT(SHA2(`search_term`, 256), 32);
UPDATE `jos_user_usergroup_map` SET `group_id` = 7 WHERE `user_id` = 42;
-- gone jos_core_log_searches
-- resnapshot jos_session jos_finder_logging
