"""Celery on Redis, with acknowledgement after the execution."""

import os

from celery import Celery
from marks import PAYLOAD, mark

app = Celery("peer", broker=os.environ["PEER_URL"])
app.conf.task_ignore_result = True
app.conf.task_acks_late = True
app.conf.broker_connection_retry_on_startup = True


@app.task(name="nothing")
def nothing(payload):
    mark(payload)


def enqueue(number: int) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(number):
            nothing.apply_async((PAYLOAD,), producer=producer)
