-- report https://github.com/debezium/debezium/pull/201
CREATE TABLE moods (id INT PRIMARY KEY, mood ENUM('good', 'bad'), tags SET('x', 'y'));
SET sql_mode = '';
INSERT IGNORE INTO moods VALUES (1, 'neither', 'z'), (2, 'bad', 'x');
-- snapshot
SET sql_mode = '';
INSERT IGNORE INTO moods VALUES (3, 'none', 'y,nothing'), (4, 0, 0), (5, 2, 3);
UPDATE IGNORE moods SET mood = 'what' WHERE id = 2;
