-- What a server needs before binlake can mirror it. Run as an administrator; `binlake doctor` says which
-- lines your server lacks. SET PERSIST (MySQL) survives a restart; on MariaDB use SET GLOBAL, and put the
-- same lines into its option file. Sessions that are open keep their old settings until they reconnect.

-- Every change as rows, whole rows, with the names, keys and signs of their columns beside them.
SET GLOBAL binlog_format = 'ROW';
SET GLOBAL binlog_row_image = 'FULL';
SET GLOBAL binlog_row_metadata = 'FULL';

-- Only with a restart, in the option file under [mysqld]:
--   log_bin                  = binlog
--   server_id                = 1            any number that no other server or replica uses
--   gtid_mode                = ON           MySQL; with enforce_gtid_consistency = ON
--   binlog_expire_logs_seconds = 604800     longer than the longest time binlake may stand still
