-- The account's grants on MariaDB 10.5 and newer. Run as an administrator, after
--   CREATE USER 'binlake'@'%' IDENTIFIED BY '…';
-- Each line is needed for what its comment says, and nothing here can write to your tables.

-- To read the binlog as a replica, and to know the head and the list of its files.
GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO 'binlake'@'%';

-- For the snapshot: the short lock under which the read views are opened (lock mode flush), and to see whose statements
-- it would wait for, so that it isn't asked for behind a long one, with all writes waiting.
GRANT RELOAD, PROCESS ON *.* TO 'binlake'@'%';

-- To read rows and definitions, for each mirrored database; LOCK TABLES for lock mode tables alone.
GRANT SELECT, LOCK TABLES ON `shop`.* TO 'binlake'@'%';
