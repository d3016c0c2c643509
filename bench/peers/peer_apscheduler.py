"""APScheduler in memory: many jobs at each whole second, and how late they start.

Prints JSON. `peer_apscheduler.py JOBS SECONDS`
"""

import json
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.background import BackgroundScheduler


def main(jobs: int, seconds: int) -> None:
    scheduler = BackgroundScheduler(timezone=UTC)
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3 + jobs // 1_000)
    last = first + timedelta(seconds=seconds - 1)
    late: list[float] = []
    fired = [0] * jobs
    all_fired = threading.Event()

    def nothing(number: int, payload: str) -> None:  # noqa: ARG001 - it is what travels
        late.append(time.time() - first.timestamp() - fired[number])
        fired[number] += 1
        if len(late) == jobs * seconds:
            all_fired.set()

    for number in range(jobs):
        scheduler.add_job(
            nothing, "interval", seconds=1, start_date=first, end_date=last,
            args=(number, "x" * 100), misfire_grace_time=None, coalesce=False, max_instances=100,
        )  # fmt: skip
    scheduler.start()
    all_fired.wait(timeout=3 + jobs // 1_000 + 4 * seconds + 10)
    scheduler.shutdown(wait=False)
    ranked = sorted(late)
    whole_s = max(time.time() - first.timestamp(), 1e-9)
    print(
        json.dumps(
            {
                "runs": len(ranked),
                "lost": jobs * seconds - len(ranked),
                "runs_per_s": round(len(ranked) / whole_s),
                "p50_ms": round(ranked[len(ranked) // 2] * 1e3, 2),
                "p99_ms": round(ranked[len(ranked) * 99 // 100] * 1e3, 2),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
