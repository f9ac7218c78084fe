-- The account's grants on MySQL 8.0.23 and newer (before, RELOAD in the place of FLUSH_TABLES). Run as an
-- administrator, after
--   CREATE USER 'binlake'@'%' IDENTIFIED BY '…';
-- Each line is needed for what its comment says, and nothing here can write to your tables.

-- To read the binlog as a replica, and to know the head and the list of its files.
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'binlake'@'%';

-- For the snapshot: the short lock under which the read views are opened (lock mode flush), and the proof
-- that no prepared XA transaction lies before the position. Where a service runs the server (Amazon, Google, Azure)
-- leave FLUSH_TABLES out: nobody may flush tables with a read lock there, and they are locked instead.
GRANT FLUSH_TABLES, XA_RECOVER_ADMIN ON *.* TO 'binlake'@'%';

-- To see whose statements the lock would wait for, so that it isn't asked for behind a long one, with all writes waiting.
GRANT SELECT ON performance_schema.metadata_locks TO 'binlake'@'%';
GRANT SELECT ON performance_schema.threads TO 'binlake'@'%';

-- To read rows and definitions, for each mirrored database; LOCK TABLES for lock mode tables alone.
GRANT SELECT, LOCK TABLES ON `shop`.* TO 'binlake'@'%';
