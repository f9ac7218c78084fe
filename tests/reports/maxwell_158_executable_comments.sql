-- report https://github.com/zendesk/maxwell/issues/158
-- report https://github.com/zendesk/maxwell/issues/2259
CREATE TABLE seen (id INT PRIMARY KEY, v VARCHAR(10));
INSERT INTO seen VALUES (1, 'a');
-- snapshot
CREATE TABLE /*! IF NOT EXISTS */ seen (other INT);
CREATE /* a word */ TABLE /*!50100 IF NOT EXISTS */ `born` (`id` INT /*! UNSIGNED */ NOT NULL, `v` LONGTEXT /*!99104 COMPRESSED */, PRIMARY KEY (`id`)) /*!40100 DEFAULT CHARACTER SET latin1 */;
INSERT INTO born VALUES (4294967295, 'ä');
ALTER TABLE seen /*!80000 ADD COLUMN w INT DEFAULT 8, */ ADD COLUMN x INT /*!99999 UNSIGNED */ DEFAULT -1;
INSERT INTO seen (id, x) VALUES (2, -2);
ALTER TABLE seen ADD COLUMN /* -- */ y INT DEFAULT 3 -- the end, DROP COLUMN v
 # , DROP COLUMN x
;
INSERT INTO seen (id, y) VALUES (3, 33);
