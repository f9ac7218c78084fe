-- report https://mariadb.com/kb/en/sql-mode/
-- In the mode MAXDB a TIMESTAMP is a DATETIME, and in the mode ORACLE other types are others, too.
-- servers mariadb
CREATE TABLE before_it (id INT PRIMARY KEY, v INT);
INSERT INTO before_it VALUES (1, 1);
-- snapshot
SET sql_mode = 'MAXDB';
CREATE TABLE mx (id INT PRIMARY KEY, ts TIMESTAMP, v INT);
INSERT INTO mx VALUES (1, '2024-03-31 02:30:00', 1), (2, NULL, 2);
SET sql_mode = 'ORACLE';
CREATE TABLE ora (id NUMBER(10) PRIMARY KEY, n NUMBER, v VARCHAR2(20), r RAW(4), c CLOB, d DATE);
INSERT INTO ora VALUES (1, 1.5, 'a', 'b', 'c', '2024-03-31 10:11:12');
-- resnapshot ora
