-- report https://github.com/PeerDB-io/peerdb/issues/3931
-- report https://github.com/PeerDB-io/peerdb/issues/3932
CREATE TABLE test_cdc_tbl (id INT PRIMARY KEY, synced_flag TINYINT(1) DEFAULT 0, name VARCHAR(50));
INSERT INTO test_cdc_tbl VALUES (1, 1, 'a'), (2, 0, 'b');
-- snapshot
ALTER TABLE test_cdc_tbl ADD COLUMN region VARCHAR(50) NOT NULL DEFAULT 'UNKNOWN';
UPDATE test_cdc_tbl SET region = 'north' WHERE id = 2;
ALTER TABLE test_cdc_tbl DROP COLUMN synced_flag;
ALTER TABLE test_cdc_tbl ADD COLUMN synced_flag VARCHAR(3) NOT NULL DEFAULT 'no' FIRST;
INSERT INTO test_cdc_tbl (id) VALUES (3);
