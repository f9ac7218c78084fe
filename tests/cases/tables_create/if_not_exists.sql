-- servers mysql
SET lc_time_names = 'de_DE', auto_increment_increment = 3, time_zone = '+03:00';
CREATE TABLE IF NOT EXISTS made (id INT PRIMARY KEY, v VARCHAR(9));
INSERT INTO made VALUES (1, 'one');
CREATE TABLE IF NOT EXISTS filled (PRIMARY KEY (id)) SELECT * FROM made;
SET sql_log_bin = 0;
CREATE TABLE unseen (id INT PRIMARY KEY);
INSERT INTO unseen VALUES (1), (2);
CREATE TABLE swapped (id INT PRIMARY KEY, v INT);
INSERT INTO swapped VALUES (1, 1);
SET sql_log_bin = 1;
CREATE TABLE IF NOT EXISTS unseen (id INT PRIMARY KEY);
INSERT INTO unseen VALUES (3);
CREATE TABLE IF NOT EXISTS swapped LIKE made;
CREATE VIEW seen AS SELECT 1;
CREATE TABLE IF NOT EXISTS seen (id INT);
SET lc_time_names = 'en_US', auto_increment_increment = 1, time_zone = '+00:00';
-- sync
CREATE TABLE IF NOT EXISTS made (other INT);
INSERT INTO made VALUES (2, 'two');
SET sql_log_bin = 0;
DROP TABLE filled;
SET sql_log_bin = 1;
CREATE TABLE IF NOT EXISTS filled (id INT PRIMARY KEY, other INT);
INSERT INTO filled VALUES (7, 7);
-- resnapshot unseen swapped seen
