"""The log is renamed, filtered, switched off, reset, purged; servers crash, replicas are promoted and demoted."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from operated_source import OperatedSource
from operations import Effect, operation
from replication import catch_up, replicate
from servers import Server


def _restart(source: OperatedSource, **settings: Any) -> None:
    source.log.append(f"restart with {settings}")
    source.server.restart(**settings)


@operation()
def the_log_is_renamed(source: OperatedSource) -> Effect:
    """And perhaps back, with rows under the other name."""
    if source.random.random() < 0.5:
        source.write(2)
        source.expect("sync")
    _restart(source, log_bin=f"renamed{source.number()}")
    if source.random.random() < 0.6:
        source.write(2)
        _restart(source, log_bin="binlog")
    yield


@operation()
def the_log_is_filtered(source: OperatedSource) -> Effect:
    setting = source.random.choice([{"binlog_ignore_db": "shop"}, {"binlog_do_db": "crm"}, {"binlog_do_db": "other"}])
    _restart(source, **setting)
    if source.random.random() < 0.3:
        source.write(2)
        _restart(source, **dict.fromkeys(setting, None))
        source.is_unseen = True  # no log has a trace of it
    yield
    source.write(2)
    if any(source.server.settings.get(name) for name in setting):
        _restart(source, **dict.fromkeys(setting, None))


@operation()
def the_log_is_switched_off(source: OperatedSource) -> Effect:
    time.sleep(1.1)  # logs are known by the second in which they began
    _restart(source, log_bin=None, skip_log_bin="")
    if source.random.random() < 0.3:
        source.write(2)
        source.run("sync")
        _restart(source, log_bin="binlog", skip_log_bin=None)
    yield
    if "skip_log_bin" in source.server.settings and source.server.settings["skip_log_bin"] is not None:
        _restart(source, log_bin="binlog", skip_log_bin=None)


@operation()
def the_log_is_reset(source: OperatedSource) -> Effect:
    time.sleep(1.1)
    source.execute("RESET BINARY LOGS AND GTIDS" if source.kind == "mysql" else "RESET MASTER")
    yield


@operation()
def the_log_is_purged(source: OperatedSource) -> Effect:
    source.execute("FLUSH BINARY LOGS")
    source.write(2)
    source.execute("FLUSH BINARY LOGS")
    newest = source.server.execute("SHOW BINARY LOGS")[-1][0]
    source.execute(f"PURGE BINARY LOGS TO '{newest}'")
    yield


@operation()
def the_server_starts_again(source: OperatedSource) -> Effect:
    if source.random.random() < 0.5:
        source.log.append("the server is killed")
        source.server.kill()
        source.server.start()
    else:
        _restart(source)
    yield


@operation("mysql")
def gtids_are_switched_off(source: OperatedSource) -> Effect:
    source.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = OFF_PERMISSIVE")
    if source.random.random() < 0.5:
        source.execute("SET GLOBAL gtid_mode = OFF")
    yield
    if source.server.variable("gtid_mode") == "OFF":
        source.execute("SET GLOBAL gtid_mode = OFF_PERMISSIVE")
    source.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = ON")


@operation("mariadb")
def a_domain_of_gtids_is_another(source: OperatedSource) -> Effect:
    source.execute(f"SET GLOBAL gtid_domain_id = {source.random.randint(1, 5)}")
    yield
    if source.random.random() < 0.5:
        source.execute("SET GLOBAL gtid_domain_id = 0")


# replicas ------------------------------------------------------------------------------------------------------------


def _copied_server(source: OperatedSource, **settings: Any) -> Server:
    """Start a copy of the server's data folder as a server of its own, as a physical backup makes one."""
    datadir = source.folder / f"copy {source.number()}"
    source.server.stop()
    subprocess.run(["cp", "-a", "--reflink=auto", str(source.server.datadir), str(datadir)], check=True)
    source.server.start()
    (datadir / "auto.cnf").unlink(missing_ok=True)
    return source.new_server(datadir, **settings)


def _replicate(replica: Server, primary: Server) -> None:
    if replica.kind == "mariadb":
        replica.execute(f"SET GLOBAL gtid_slave_pos = '{primary.variable('gtid_binlog_pos')}'")
    replicate(replica, primary)


def _promote(replica: Server) -> None:
    word = "REPLICA" if replica.kind == "mysql" else "SLAVE"
    replica.execute(f"STOP {word}", f"RESET {word} ALL")


@operation()
def a_replica_is_promoted(source: OperatedSource) -> Effect:
    logs, is_errant = source.random.random() < 0.5, source.random.random() < 0.3
    primary, replica = source.server, _copied_server(source, **source.logging(is_on=logs))
    source.log.append(f"a replica {'that logs' if logs else 'without a log of what it applies'}")
    _replicate(replica, primary)
    source.write(3)
    if source.random.random() < 0.5:
        source.expect("sync")
        source.write(2)
    catch_up(replica, primary)
    _promote(replica)
    if is_errant:
        source.log.append("errant rows on either side")
        replica.execute("DELETE FROM shop.orders WHERE id % 4 = 2")
        source.write(3)
        if source.random.random() < 0.5:
            source.expect("sync")
    primary.stop()
    source.point_at(replica)
    yield


@operation()
def the_server_is_demoted_for_a_while(source: OperatedSource) -> Effect:
    """The connection stays at it: what another server writes reaches it as its replica."""
    logs = source.random.random() < 0.5
    here, primary = source.server, _copied_server(source)
    source.log.append(f"demoted, {'with' if logs else 'without'} a log of what it applies")
    _restart(source, **source.logging(is_on=logs))
    _replicate(here, primary)
    source.write(3, server=primary)
    catch_up(here, primary)
    if source.random.random() < 0.5:
        source.run("sync")
    source.write(2, server=primary)
    catch_up(here, primary)
    if source.random.random() < 0.5:
        _promote(here)
        yield
    else:
        source.writes_to = primary
        source.comes_to = lambda: catch_up(here, primary)
        yield
        source.writes_to = None
        source.comes_to()
        _promote(here)
    primary.stop()
    source.comes_to = lambda: None


@operation()
def a_backup_is_restored(source: OperatedSource) -> Effect:
    """In the place of the server, with its identity; what came after the backup is lost."""
    backup: Path = source.folder / f"backup {source.number()}"
    source.server.stop()
    subprocess.run(["cp", "-a", "--reflink=auto", str(source.server.datadir), str(backup)], check=True)
    source.server.start()
    source.write(3)
    if source.random.random() < 0.7:
        source.expect("sync")
    source.server.stop()
    subprocess.run(["rm", "-rf", str(source.server.datadir)], check=True)
    backup.rename(source.server.datadir)
    source.log.append("a backup is restored")
    source.server.start()
    yield
