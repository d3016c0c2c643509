"""The rules by name, a sentence each: what the mesh is held to."""

from __future__ import annotations

from typing import Final

TITLES: Final[dict[str, str]] = {
    "S1": "the store is linearizable: each answer fits one order of all commits",
    "S2": "what was acknowledged is durable; the revision never goes back",
    "S3": "the tokens of a lease strictly rise",
    "S4": "a lease has one holder at a time, and its full time",
    "S5": "every write carries the compares of its key, and they were true",
    "S6": "one run for each job and nominal time, its id a function of both",
    "S7": "nothing runs early, or that no definition in force asks for",
    "S8": "every nominal time up to the cursor ends in exactly one decision",
    "S9": "attempts are numbered without gaps, their tokens rise, one is live",
    "S10": "executions of one run overlap only where that is documented",
    "S11": "a run ends once; a completion counts under the live token only",
    "S12": "the same request has one effect and one answer",
    "S13": "what was acknowledged is there; nothing is assigned after delete or cancel",
    "S14": "no assignment, start or buffer exceeds its limit",
    "S15": "only legal steps; whatever is live has one thing that moves it on",
    "S16": "attempts and deliveries stay within bounds, then dead letters, once",
    "S17": "no retry before its backoff, nothing before its not-before time",
    "S18": "watches are ordered, whole, without doubles or gaps",
    "S19": "reads see what was acknowledged before them",
    "S20": "mesh time never goes back, whatever clocks do",
    "S21": "indexes and records stand for each other, one to one",
    "S22": "what is refused leaves no trace; no refusal is a fault of ours",
    "S23": "nothing is acknowledged before it is durable",
    "S24": "a dead letter is repeated once at most, and its repeat says so",
    "S25": "a backfill comes to each time of its range once, in its order, and counts it",
    "S26": "what a record tells of a start or decision is what follows from the rest",
    "L1": "what is due is started in time",
    "L2": "one acting leader, soon after the last, without flapping",
    "L3": "every accepted run ends",
    "L4": "a lost worker's runs are soon with another",
    "L5": "nobody starves",
    "L6": "calls succeed again soon after healing",
    "L7": "after SIGTERM the successor acts at once",
    "L8": "a full disk stops what grows, and nothing else",
    "L9": "nothing leaks",
}
