-- Rails: moments that get microseconds, keys that get big, tables that join two others and have no key.
CREATE TABLE `schema_migrations` (`version` varchar(255) NOT NULL PRIMARY KEY) DEFAULT CHARSET=utf8mb4;
CREATE TABLE `issues` (`id` int(11) NOT NULL AUTO_INCREMENT PRIMARY KEY, `tracker_id` int(11) NOT NULL, `subject` varchar(255) DEFAULT '' NOT NULL, `description` longtext, `due_date` date, `status_id` int(11) NOT NULL, `assigned_to_id` int(11), `lock_version` int(11) DEFAULT 0 NOT NULL, `created_on` datetime, `updated_on` datetime, `done_ratio` int(11) DEFAULT 0 NOT NULL, `estimated_hours` float, `is_private` tinyint(1) DEFAULT 0 NOT NULL, `lft` int(11), `rgt` int(11), INDEX `index_issues_on_created_on` (`created_on`)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE TABLE `groups_users` (`group_id` int(11) NOT NULL, `user_id` int(11) NOT NULL, UNIQUE INDEX `groups_users_ids` (`group_id`, `user_id`)) ENGINE=InnoDB;
CREATE TABLE `changesets_issues` (`changeset_id` int(11) NOT NULL, `issue_id` int(11) NOT NULL) ENGINE=InnoDB;
CREATE TABLE `custom_fields` (`id` int(11) NOT NULL AUTO_INCREMENT PRIMARY KEY, `type` varchar(30) DEFAULT '' NOT NULL, `possible_values` text, `is_required` tinyint(1) DEFAULT 0 NOT NULL, `format_store` text) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
CREATE TABLE `tokens` (`id` int(11) NOT NULL AUTO_INCREMENT PRIMARY KEY, `user_id` int(11) DEFAULT 0 NOT NULL, `action` varchar(30) DEFAULT '' NOT NULL, `value` varchar(40) DEFAULT '' NOT NULL, `created_on` datetime NOT NULL) ENGINE=InnoDB;
INSERT INTO `schema_migrations` VALUES ('1'), ('20120422150750');
INSERT INTO `issues` (tracker_id, subject, description, due_date, status_id, created_on, updated_on, estimated_hours, lft, rgt) VALUES (1, 'Bug', 'Füße', '2013-02-28', 1, '2013-01-01 00:00:00', '2013-01-01 00:00:00', 0.1, 1, 4), (2, '', NULL, NULL, 2, NULL, NULL, NULL, 2, 3);
INSERT INTO `groups_users` VALUES (1, 1), (1, 2);
INSERT INTO `changesets_issues` VALUES (1, 1), (1, 1), (2, 2);
INSERT INTO `custom_fields` (type, possible_values, format_store) VALUES ('IssueCustomField', '--- []\n', NULL), ('User', '---\n- a\n- "b\\""\n', '--- {}\n');
INSERT INTO `tokens` (user_id, action, value, created_on) VALUES (1, 'feeds', 'abc', '2013-01-01 00:00:00');
-- snapshot
START TRANSACTION;
DELETE FROM `changesets_issues` WHERE changeset_id = 1 AND issue_id = 1 LIMIT 1;
INSERT INTO `changesets_issues` VALUES (2, 2), (3, 1);
COMMIT;
ALTER TABLE `changesets_issues` ADD UNIQUE INDEX `changesets_issues_ids` (`changeset_id`, `issue_id`, id), ADD COLUMN id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY FIRST;
ALTER TABLE `issues` ADD `closed_on` datetime DEFAULT NULL, ADD `parent_id` int(11) DEFAULT NULL, ADD `root_id` int(11) DEFAULT NULL;
UPDATE `issues` SET `root_id` = `id`;
UPDATE `issues` SET `parent_id` = 1, `root_id` = 1, `lock_version` = `lock_version` + 1 WHERE `id` = 2;
ALTER TABLE `custom_fields` ADD `description` text, CHANGE `is_required` `required` tinyint(1) DEFAULT 1 NOT NULL, CHANGE `type` `type` varchar(60) DEFAULT 'Issue' NOT NULL;
INSERT INTO `custom_fields` (possible_values, description) VALUES ('[]', '😀');
ALTER TABLE `tokens` ADD `updated_on` datetime DEFAULT NULL;
UPDATE `tokens` SET `updated_on` = `created_on`;
INSERT INTO `schema_migrations` (version) VALUES ('20131004113137');
-- sync
ALTER TABLE `issues` CHANGE `id` `id` bigint NOT NULL AUTO_INCREMENT, CHANGE `created_on` `created_on` datetime(6) DEFAULT NULL, CHANGE `updated_on` `updated_on` datetime(6) DEFAULT NULL, CHANGE `estimated_hours` `estimated_hours` double DEFAULT NULL;
INSERT INTO `issues` (id, tracker_id, status_id, created_on, updated_on, estimated_hours) VALUES (9007199254740993, 1, 1, '2024-01-01 00:00:00.123456', NULL, 0.1);
ALTER TABLE `issues` RENAME COLUMN `done_ratio` TO `progress`;
ALTER TABLE `issues` RENAME INDEX `index_issues_on_created_on` TO `index_issues_on_created`;
ALTER TABLE `groups_users` ADD CONSTRAINT `pk` PRIMARY KEY (`group_id`, `user_id`);
REPLACE INTO `groups_users` VALUES (1, 2), (2, 2);
RENAME TABLE `tokens` TO `user_tokens`;
ALTER TABLE `user_tokens` DROP COLUMN `updated_on`, ADD `expires_at` timestamp(6) NULL DEFAULT NULL, ALTER `action` SET DEFAULT 'api';
INSERT INTO `user_tokens` (created_on, expires_at) VALUES ('2024-01-01 00:00:00', '2025-01-01 00:00:00.000001');
ALTER TABLE `issues` DROP COLUMN `lft`, DROP COLUMN `rgt`;
-- gone tokens
-- resnapshot changesets_issues
