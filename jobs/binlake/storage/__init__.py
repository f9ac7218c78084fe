"""Storage: where files lie, on disks, S3, Azure and HDFS, and the accounts and errors of each."""
