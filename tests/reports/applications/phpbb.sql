-- A board: medium integers, long keys in utf8_bin, permissions in a table without a key, one column's meaning moved to another.
CREATE TABLE phpbb_posts (post_id mediumint(8) UNSIGNED NOT NULL auto_increment, topic_id mediumint(8) UNSIGNED DEFAULT '0' NOT NULL, poster_ip varchar(40) DEFAULT '' NOT NULL, post_time int(11) UNSIGNED DEFAULT '0' NOT NULL, post_approved tinyint(1) UNSIGNED DEFAULT '1' NOT NULL, post_subject varchar(255) DEFAULT '' NOT NULL COLLATE utf8mb3_unicode_ci, post_text mediumtext NOT NULL, bbcode_bitfield varchar(255) DEFAULT '' NOT NULL, post_edit_locked tinyint(1) UNSIGNED DEFAULT '0' NOT NULL, PRIMARY KEY (post_id), KEY topic_id (topic_id), FULLTEXT KEY post_content (post_subject)) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin;
CREATE TABLE phpbb_users (user_id mediumint(8) UNSIGNED NOT NULL auto_increment, user_type tinyint(2) DEFAULT '0' NOT NULL, user_permissions mediumtext NOT NULL, username varchar(255) DEFAULT '' NOT NULL, username_clean varchar(255) DEFAULT '' NOT NULL, user_birthday varchar(10) DEFAULT '' NOT NULL, user_timezone decimal(5,2) DEFAULT '0' NOT NULL, user_options int(11) UNSIGNED DEFAULT '230271' NOT NULL, user_avatar_type tinyint(2) DEFAULT '0' NOT NULL, PRIMARY KEY (user_id), UNIQUE KEY username_clean (username_clean)) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin;
CREATE TABLE phpbb_acl_groups (group_id mediumint(8) UNSIGNED DEFAULT '0' NOT NULL, forum_id mediumint(8) UNSIGNED DEFAULT '0' NOT NULL, auth_option_id mediumint(8) UNSIGNED DEFAULT '0' NOT NULL, auth_setting tinyint(2) DEFAULT '0' NOT NULL, KEY group_id (group_id)) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin;
CREATE TABLE phpbb_config (config_name varchar(255) DEFAULT '' NOT NULL, config_value varchar(255) DEFAULT '' NOT NULL, is_dynamic tinyint(1) UNSIGNED DEFAULT '0' NOT NULL, PRIMARY KEY (config_name)) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin;
CREATE TABLE phpbb_sessions (session_id char(32) DEFAULT '' NOT NULL, session_user_id mediumint(8) UNSIGNED DEFAULT '0' NOT NULL, session_browser varchar(150) DEFAULT '' NOT NULL, PRIMARY KEY (session_id)) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin;
INSERT INTO phpbb_posts (topic_id, poster_ip, post_time, post_approved, post_subject, post_text) VALUES (1, '127.0.0.1', 1200000000, 1, 'Welcome', 'This is [b]bold[/b]'), (1, '::1', 4294967295, 0, 'Re: Größe', ''), (2, '', 0, 1, '', REPEAT('é', 30000));
INSERT INTO phpbb_users (user_type, user_permissions, username, username_clean, user_birthday, user_timezone) VALUES (2, '', 'Anonymous', 'anonymous', '', 0), (3, 'zik0zj\n', 'Ädmin', 'admin', ' 1- 1-1980', -3.50);
INSERT INTO phpbb_acl_groups VALUES (1, 0, 85, 1), (1, 0, 85, 1), (5, 1, 14, -1);
INSERT INTO phpbb_config VALUES ('version', '3.0.14', 0), ('num_posts', '3', 1), ('Version', 'x', 0);
INSERT INTO phpbb_sessions VALUES ('a1  ', 1, 'Lynx'), ('', 2, '');
-- snapshot
ALTER TABLE phpbb_posts ADD COLUMN post_visibility tinyint(3) DEFAULT '0' NOT NULL AFTER post_time, ADD COLUMN post_delete_time int(11) UNSIGNED DEFAULT '0' NOT NULL, ADD INDEX post_visibility (post_visibility);
UPDATE phpbb_posts SET post_visibility = post_approved;
ALTER TABLE phpbb_posts DROP COLUMN post_approved;
INSERT INTO phpbb_posts (topic_id, post_visibility, post_subject, post_text) VALUES (2, -1, 'gone', 'x');
ALTER TABLE phpbb_users CHANGE user_timezone user_timezone varchar(100) DEFAULT '' NOT NULL, CHANGE user_avatar_type user_avatar_type varchar(255) DEFAULT '' NOT NULL;
UPDATE phpbb_users SET user_timezone = 'America/St_Johns', user_avatar_type = 'avatar.driver.local' WHERE user_id = 2;
INSERT INTO phpbb_users (user_permissions, username, username_clean) VALUES ('', '日本', '日本');
DELETE FROM phpbb_acl_groups WHERE group_id = 1 LIMIT 1;
ALTER TABLE phpbb_acl_groups ADD INDEX auth_role_id (auth_option_id), MODIFY auth_option_id int(10) UNSIGNED DEFAULT '0' NOT NULL;
UPDATE phpbb_acl_groups SET auth_option_id = 4294967295 WHERE group_id = 5;
UPDATE phpbb_config SET config_value = '3.1.0' WHERE config_name = 'version';
-- sync
ALTER TABLE phpbb_posts CHANGE post_id post_id int(10) UNSIGNED NOT NULL auto_increment, CHANGE topic_id topic_id int(10) UNSIGNED DEFAULT '0' NOT NULL;
INSERT INTO phpbb_posts (post_id, topic_id, post_subject, post_text) VALUES (16777217, 16777216, 'more than medium', '');
ALTER TABLE phpbb_posts DROP INDEX post_content, MODIFY post_subject varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci DEFAULT '' NOT NULL;
UPDATE phpbb_posts SET post_subject = '🗨' WHERE post_id = 1;
ALTER TABLE phpbb_sessions ADD session_forum_id int(10) UNSIGNED DEFAULT '0' NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (session_id, session_user_id);
INSERT INTO phpbb_sessions VALUES ('', 3, 'Firefox', 5);
DELETE FROM phpbb_sessions WHERE session_user_id = 1;
CREATE TABLE phpbb_config_text (config_name varchar(255) DEFAULT '' NOT NULL, config_value mediumtext NOT NULL, PRIMARY KEY (config_name)) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin;
INSERT INTO phpbb_config_text SELECT config_name, config_value FROM phpbb_config WHERE is_dynamic = 0;
DELETE c FROM phpbb_config c JOIN phpbb_config_text t ON t.config_name = c.config_name WHERE t.config_name <> 'version';
