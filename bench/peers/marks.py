"""What every peer's task does: it leaves one byte, so that a file's size counts executions."""

import os

PAYLOAD = "x" * 100
_file = os.open(os.environ["PEER_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def mark(payload: str) -> None:
    os.write(_file, payload[:1].encode())
