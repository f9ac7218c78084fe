"""The second opinion: a log read by the package mysql-replication instead of by our own decoder.

``values`` turns what it gives into the border's values, ``misread`` names what it is known to get wrong, ``stream``
reads, ``listing`` lists (``binlake binlog --reader mysql-replication``), ``window``, ``compare`` and ``doctor`` make
the lines of ``binlake doctor --second-opinion``.
"""

PACKAGE = "mysql-replication"
