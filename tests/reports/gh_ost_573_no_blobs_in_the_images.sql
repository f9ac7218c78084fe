-- report https://github.com/github/gh-ost/issues/573
-- refused notes partial row images
CREATE TABLE notes (id INT PRIMARY KEY, body TEXT, seen INT);
CREATE TABLE counts (id INT PRIMARY KEY, seen INT);
INSERT INTO notes VALUES (1, 'long text', 0);
INSERT INTO counts VALUES (1, 0);
-- snapshot
SET SESSION binlog_row_image = NOBLOB;
UPDATE notes SET seen = 1;
SET SESSION binlog_row_image = FULL;
UPDATE counts SET seen = 1;
