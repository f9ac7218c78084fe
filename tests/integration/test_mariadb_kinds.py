"""Kinds of tables that MariaDB alone has: copied, followed, and found equal by verify."""

from __future__ import annotations

from mirror import Mirror, on_mariadb


@on_mariadb
def test_a_sequence(mirror: Mirror) -> None:
    mirror.execute("CREATE SEQUENCE s CACHE 5", "DO NEXTVAL(s)", "CREATE SEQUENCE idle")
    mirror.snapshot()
    mirror.assert_equal("s", "idle")
    assert mirror.verify().equal
    mirror.execute("DO NEXTVAL(s)", *["DO NEXTVAL(s)"] * 9, "DO SETVAL(s, 100)")
    report = mirror.verify()
    assert (report.equal, len(report.compared)) == (True, 2)
    mirror.assert_equal("s", "idle")
    assert mirror.watermark("s")["status"] == "following"
