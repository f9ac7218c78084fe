-- A blog of the times of utf8mb3, upgraded: names of 64 characters, long keys with prefixes, dates of zeros as defaults.
SET sql_mode = '';
CREATE TABLE wp_posts (ID bigint(20) unsigned NOT NULL auto_increment, post_author bigint(20) unsigned NOT NULL default '0', post_date datetime NOT NULL default '0000-00-00 00:00:00', post_content longtext NOT NULL, post_title text NOT NULL, post_status varchar(20) NOT NULL default 'publish', post_name varchar(200) NOT NULL default '', menu_order int(11) NOT NULL default '0', post_type varchar(20) NOT NULL default 'post', comment_count bigint(20) NOT NULL default '0', PRIMARY KEY (ID), KEY post_name (post_name), KEY type_status_date (post_type,post_status,post_date,ID)) DEFAULT CHARACTER SET utf8mb3;
CREATE TABLE wp_postmeta (meta_id bigint(20) unsigned NOT NULL auto_increment, post_id bigint(20) unsigned NOT NULL default '0', meta_key varchar(255) default NULL, meta_value longtext, PRIMARY KEY (meta_id), KEY meta_key (meta_key)) DEFAULT CHARACTER SET utf8mb3;
CREATE TABLE wp_options (option_id bigint(20) unsigned NOT NULL auto_increment, blog_id int(11) NOT NULL default '0', option_name varchar(64) NOT NULL default '', option_value longtext NOT NULL, autoload varchar(20) NOT NULL default 'yes', PRIMARY KEY (option_id, blog_id), UNIQUE KEY option_name (option_name)) DEFAULT CHARACTER SET utf8mb3;
CREATE TABLE wp_term_relationships (object_id bigint(20) unsigned NOT NULL default 0, term_taxonomy_id bigint(20) unsigned NOT NULL default 0, PRIMARY KEY (object_id,term_taxonomy_id)) DEFAULT CHARACTER SET utf8mb3;
CREATE TABLE wp_comments (comment_ID bigint(20) unsigned NOT NULL auto_increment PRIMARY KEY, comment_post_ID bigint(20) unsigned NOT NULL default '0', comment_author tinytext NOT NULL, comment_date datetime NOT NULL default '0000-00-00 00:00:00', comment_type varchar(20) NOT NULL default '', user_id bigint(20) unsigned NOT NULL default '0') DEFAULT CHARACTER SET utf8mb3;
CREATE TABLE wp_users (ID bigint(20) unsigned NOT NULL auto_increment, user_login varchar(60) NOT NULL default '', user_pass varchar(64) NOT NULL default '', user_registered datetime NOT NULL default '0000-00-00 00:00:00', PRIMARY KEY (ID)) DEFAULT CHARACTER SET latin1;
INSERT INTO wp_posts (post_author, post_date, post_content, post_title, post_name) VALUES (1, '2012-05-01 10:00:00', 'Größe & <b>more</b>', 'Hello', 'hello'), (1, '2012-05-02 10:00:00', REPEAT('long ', 20000), 'Second', 'second');
INSERT INTO wp_postmeta (post_id, meta_key, meta_value) VALUES (1, '_edit_lock', '1335866400:1'), (2, '_thumb', 'a:1:{s:1:"w";i:5;}'), (2, NULL, NULL);
INSERT INTO wp_options (option_name, option_value) VALUES ('siteurl', 'http://example.org'), ('_transient_feed', 'x'), ('cron', 'a:0:{}');
INSERT INTO wp_term_relationships VALUES (1, 1), (2, 1), (2, 2);
INSERT INTO wp_comments (comment_post_ID, comment_author, comment_date) VALUES (1, 'Zoë', '2012-05-03 00:00:00'), (2, 'x', '2012-05-04 00:00:00');
INSERT INTO wp_users (user_login, user_pass, user_registered) VALUES ('admin', '$P$B', '2012-01-01 00:00:00'), ('renée', '$P$C', '2012-02-01 00:00:00');
-- snapshot
SET sql_mode = '';
ALTER TABLE wp_options DROP PRIMARY KEY, ADD PRIMARY KEY (option_id), DROP COLUMN blog_id;
ALTER TABLE wp_options CHANGE COLUMN option_name option_name varchar(191) NOT NULL default '';
CREATE TABLE wp_termmeta (meta_id bigint(20) unsigned NOT NULL auto_increment, term_id bigint(20) unsigned NOT NULL default '0', meta_key varchar(255) default NULL, meta_value longtext, PRIMARY KEY (meta_id), KEY meta_key (meta_key(191))) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
ALTER TABLE wp_postmeta DROP INDEX meta_key, ADD INDEX meta_key(meta_key(191));
ALTER TABLE wp_postmeta CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
ALTER TABLE wp_posts DROP INDEX post_name, ADD INDEX post_name(post_name(191));
ALTER TABLE wp_posts CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
ALTER TABLE wp_comments CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
ALTER TABLE wp_users CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
INSERT INTO wp_posts (post_author, post_date, post_content, post_title) VALUES (2, '2015-04-23 08:00:00', '🐘 in the room', '🦭');
INSERT INTO wp_termmeta (term_id, meta_key, meta_value) SELECT term_taxonomy_id, 'count', COUNT(*) FROM wp_term_relationships GROUP BY 1;
DELETE FROM wp_options WHERE option_name LIKE '\_transient\_%';
-- sync
SET sql_mode = '';
ALTER TABLE wp_users CHANGE COLUMN `user_pass` user_pass varchar(255) NOT NULL default '', ADD COLUMN user_nicename varchar(50) NOT NULL default '' AFTER user_pass, ADD KEY user_nicename (user_nicename);
UPDATE wp_users SET user_nicename = user_login;
UPDATE wp_comments SET comment_type = 'comment' WHERE comment_type = '';
ALTER TABLE wp_comments CHANGE COLUMN comment_type comment_type varchar(20) NOT NULL default 'comment';
INSERT INTO wp_comments (comment_post_ID, comment_author, comment_date, user_id) VALUES (3, 'late', '2020-08-11 00:00:00', 2);
UPDATE wp_term_relationships SET term_taxonomy_id = 9 WHERE term_taxonomy_id = 1;
INSERT INTO wp_options (option_name, option_value, autoload) VALUES ('cron', 'a:1:{}', 'no') ON DUPLICATE KEY UPDATE option_value = VALUES(option_value), autoload = VALUES(autoload);
