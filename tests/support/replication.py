"""Servers that replicate each other."""

from servers import Server


def replicate(replica: Server, primary: Server) -> None:
    """Let a server follow another by GTIDs, from its first transaction on."""
    if primary.kind == "mysql":
        replica.execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {primary.port}, "
            "SOURCE_USER = 'root', SOURCE_AUTO_POSITION = 1",
            "START REPLICA",
        )
    else:
        replica.execute(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}, MASTER_USER = 'root', "
            "MASTER_SSL = 0, MASTER_USE_GTID = slave_pos",  # 11.4 asks for a certificate unless it is said
            "START SLAVE",
        )


def catch_up(replica: Server, primary: Server) -> None:
    """Wait until a replica has executed all that its primary has."""
    if primary.kind == "mysql":
        executed = primary.variable("gtid_executed").replace("\n", "")
        assert replica.execute(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed}', 30)") == [(0,)]
    else:
        executed = primary.variable("gtid_binlog_pos")
        assert replica.execute(f"SELECT MASTER_GTID_WAIT('{executed}', 30)") == [(0,)]
