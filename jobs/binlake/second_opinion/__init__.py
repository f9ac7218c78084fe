"""The second opinion: a log read by the package mysql-replication instead of binlake's own decoder.

``border_values`` converts its values to those of binlog.border, ``misread`` lists what it is known to get wrong,
``stream`` reads a slice, ``opinion_listing`` lists one (``binlake binlog --reader mysql-replication``). ``window``,
``comparison`` and ``opinion_checks`` make the lines of ``binlake doctor --second-opinion``.
"""

PACKAGE = "mysql-replication"
