"""`make sql`: the server's own client on the demo's server, while `make ui` runs it."""

from __future__ import annotations

import os
import sys

import pymysql

import demo
from servers import ServerFailed, program


def main() -> None:
    if not demo.Kept.FILE.exists():
        sys.exit("there is no demo yet: make demo")
    kept = demo.Kept.read()
    try:
        pymysql.connect(host="127.0.0.1", port=kept.port, user="root").close()
    except pymysql.OperationalError:
        sys.exit(f"the demo's server doesn't answer on port {kept.port}: let make ui run in another terminal")
    client = program(kept.kind, "mysql" if kept.kind == "mysql" else "mariadb")
    os.execvp(client[0], [*client, "--host=127.0.0.1", f"--port={kept.port}", "--user=root", "shop"])


if __name__ == "__main__":
    try:
        main()
    except ServerFailed as error:
        sys.exit(str(error))
