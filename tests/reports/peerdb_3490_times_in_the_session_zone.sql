-- report https://github.com/PeerDB-io/peerdb/pull/3490
-- report https://github.com/github/gh-ost/issues/247
CREATE TABLE moments (id INT PRIMARY KEY, ts TIMESTAMP(3) NULL, dt DATETIME(3), at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP);
SET time_zone = '+05:30';
INSERT INTO moments VALUES (1, '2025-09-16 10:00:00.123', '2025-09-16 10:00:00.123', '2025-09-16 10:00:00');
-- snapshot
SET time_zone = 'Europe/Berlin';
INSERT INTO moments VALUES (2, '2024-10-27 02:30:00', '2024-10-27 02:30:00', DEFAULT), (3, '1970-01-01 01:00:01', '1000-01-01 00:00:00', DEFAULT);
SET time_zone = '-11:00';
UPDATE moments SET dt = ts WHERE id = 1;
ALTER TABLE moments ADD added TIMESTAMP NOT NULL DEFAULT '2020-06-01 12:00:00', ADD local DATETIME DEFAULT '2020-06-01 12:00:00';
INSERT INTO moments (id) VALUES (4);
