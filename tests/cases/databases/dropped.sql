CREATE TABLE t (id INT PRIMARY KEY);
INSERT INTO t VALUES (1);
CREATE TABLE u (id INT PRIMARY KEY);
DROP DATABASE case_databases_dropped;
CREATE DATABASE case_databases_dropped;
USE case_databases_dropped;
CREATE TABLE u (id INT PRIMARY KEY, n INT, v VARCHAR(9));
INSERT INTO u VALUES (2, 2, 'ü');
-- gone t
