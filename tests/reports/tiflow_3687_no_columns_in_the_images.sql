-- report https://github.com/pingcap/tiflow/issues/3687
-- servers mysql
-- All values of the row are defaults: its image holds no column at all.
-- refused n partial row images
CREATE TABLE n (id INT DEFAULT 7, v VARCHAR(10) DEFAULT 'x');
INSERT INTO n VALUES (1, 'a');
-- snapshot
SET SESSION binlog_row_image = MINIMAL;
INSERT INTO n VALUES ();
