"""Dramatiq on Redis."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from marks import PAYLOAD, mark

dramatiq.set_broker(RedisBroker(url=os.environ["PEER_URL"]))


@dramatiq.actor
def nothing(payload):
    mark(payload)


def enqueue(number: int) -> None:
    for _ in range(number):
        nothing.send(PAYLOAD)
