"""Huey on Redis: takes a job off the queue before it is executed, so that it runs at most once."""

import os

from huey import RedisHuey
from marks import PAYLOAD, mark

huey = RedisHuey("peer", url=os.environ["PEER_URL"], results=False)


@huey.task()
def nothing(payload):
    mark(payload)


def enqueue(number: int) -> None:
    for _ in range(number):
        nothing(PAYLOAD)
