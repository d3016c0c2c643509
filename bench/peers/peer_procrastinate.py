"""Procrastinate on PostgreSQL; jobs are deferred in batches of 100."""

import os

from marks import PAYLOAD, mark
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

_BATCH = 100

app = App(connector=PsycopgConnector(conninfo=os.environ["PEER_URL"]))


@app.task(name="nothing")
async def nothing(payload):
    mark(payload)


def enqueue(number: int) -> None:
    connector = SyncPsycopgConnector(conninfo=os.environ["PEER_URL"])
    with app.replace_connector(connector) as blocking, blocking.open():
        for begin in range(0, number, _BATCH):
            some = min(_BATCH, number - begin)
            nothing.batch_defer(*[{"payload": PAYLOAD}] * some)
