CREATE TABLE t (id INT PRIMARY KEY, v INT);
INSERT INTO t VALUES (1, 1);
CREATE TABLE elsewhere_u (id INT PRIMARY KEY, w TEXT);
INSERT INTO elsewhere_u VALUES (5, 'unseen');
-- snapshot
RENAME TABLE t TO elsewhere_t;
INSERT INTO elsewhere_t VALUES (2, 2);
RENAME TABLE elsewhere_u TO u;
INSERT INTO u VALUES (6, 'seen');
-- gone t
-- resnapshot u
