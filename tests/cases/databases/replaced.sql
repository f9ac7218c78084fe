-- servers mariadb
CREATE TABLE t (id INT PRIMARY KEY);
INSERT INTO t VALUES (1);
CREATE TABLE u (id INT PRIMARY KEY);
INSERT INTO u VALUES (1);
-- sync
CREATE OR REPLACE DATABASE case_databases_replaced CHARACTER SET latin1;
USE case_databases_replaced;
CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(9));
INSERT INTO u VALUES (2, 'ü');
-- gone t
