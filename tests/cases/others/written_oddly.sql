CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20), b INT, c DECIMAL(10,2), d DATETIME);
INSERT INTO t VALUES (1, 'one', 10, 1.50, '2024-02-29 12:00:00'), (2, NULL, NULL, NULL, NULL), (3, 'three', -3, -0.01, '1999-12-31 23:59:59');

/* before */ ALTER /*!50000 TABLE */ `t` -- a comment
  ADD /* inside */ COLUMN `odd``name` INT DEFAULT 1 # another
  , RENAME COLUMN a TO `select`;


SET sql_mode = 'ANSI_QUOTES,STRICT_TRANS_TABLES';
INSERT INTO t (id) VALUES (40);
