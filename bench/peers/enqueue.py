"""`enqueue.py MODULE NUMBER`: hands jobs over; prints when it began, in seconds of the clock."""

import importlib
import sys
import time

if __name__ == "__main__":
    peer = importlib.import_module(sys.argv[1])
    began = time.time()
    peer.enqueue(int(sys.argv[2]))
    print(began)
