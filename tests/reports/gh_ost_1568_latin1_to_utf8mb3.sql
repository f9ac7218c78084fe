-- report https://github.com/github/gh-ost/issues/1568
-- report https://github.com/github/gh-ost/issues/235
CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL, about TEXT) DEFAULT CHARSET=latin1;
INSERT INTO people VALUES (1, 'José Núñez', 'ø ß þ æ ÿ €'), (2, 'plain', NULL);
-- snapshot
INSERT INTO people VALUES (3, 'Zoë', 'à ç Ä');
ALTER TABLE people CONVERT TO CHARACTER SET utf8mb3;
INSERT INTO people VALUES (4, 'Ökonom', 'Ελλάδα 中国');
ALTER TABLE people MODIFY name VARCHAR(40) CHARACTER SET utf8mb4 NOT NULL DEFAULT '', MODIFY about TEXT CHARACTER SET utf8mb4;
INSERT INTO people VALUES (5, '🐬', '🦭');
UPDATE people SET about = CONCAT(about, '!') WHERE id IN (1, 3);
-- resnapshot people
