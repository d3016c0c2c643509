"""Bad input: the right status, a message that says what to do, nothing changed, still healthy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from grpc import aio
from integration.store.store_process import Client, Refusal, refusal

from sexton.internal.v1 import store_pb2 as pb

MIB = 1024 * 1024
UNARY = (
    "Get",
    "Scan",
    "CompareAndSet",
    "Commit",
    "AcquireLease",
    "RenewLease",
    "ReleaseLease",
    "ListLeases",
    "Status",
    "GetClock",
    "AcceptClock",
)


def put(key: bytes, value: bytes = b"v") -> pb.Op:
    return pb.Op(key=key, put=value)


def commit(*txns: pb.Txn) -> pb.CommitRequest:
    return pb.CommitRequest(txns=txns)


def then(*ops: pb.Op) -> pb.CommitRequest:
    return commit(pb.Txn(then=ops))


def acquire(**changed: Any) -> pb.AcquireLeaseRequest:
    return pb.AcquireLeaseRequest(**({"name": "a", "holder": "h", "ttl_ms": 1_000} | changed))


INVALID = ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
LARGE = ("RESOURCE_EXHAUSTED", "TOO_LARGE")

TABLE: dict[str, tuple[str, Any, tuple[str, str], str]] = {
    # Empty messages (those that mean something are in the next test)
    "empty Get": ("Get", pb.GetRequest(), INVALID, "keys: () can't be used; expected 1 to 1000"),
    "empty CompareAndSet": (
        "CompareAndSet",
        pb.CompareAndSetRequest(),
        INVALID,
        "write: 'nothing' can't be used; expected put: VALUE, or delete: true",
    ),
    "empty Commit": ("Commit", commit(), INVALID, "txns: () can't be used; expected at least one"),
    "empty AcquireLease": ("AcquireLease", pb.AcquireLeaseRequest(), INVALID, "name: ''"),
    "empty RenewLease": ("RenewLease", pb.RenewLeaseRequest(), INVALID, "leases: ()"),
    "empty ReleaseLease": ("ReleaseLease", pb.ReleaseLeaseRequest(), INVALID, "lease.name: ''"),
    "empty AcceptClock": ("AcceptClock", pb.AcceptClockRequest(), INVALID, "dispute: 0"),
    # Keys
    "an empty key is read": ("Get", pb.GetRequest(keys=[b"a", b""]), INVALID, "keys[1]: b''"),
    "a key too long is read": (
        "Get",
        pb.GetRequest(keys=[b"k" * 481]),
        LARGE,
        "keys[0]: 481 bytes are too many; at most 480 are taken",
    ),
    "too many keys are read": (
        "Get",
        pb.GetRequest(keys=[b"k"] * 1_001),
        LARGE,
        "keys: 1,001 keys are too many; at most 1,000 are taken",
    ),
    "an empty key is written": (
        "Commit",
        then(put(b"")),
        INVALID,
        "txns[0].then[0].key: b'' can't be used; expected 1 to 480 bytes",
    ),
    "a key too long is written": (
        "Commit",
        then(put(b"k" * 481)),
        LARGE,
        "481 bytes are too many",
    ),
    "a lease's key is written": (
        "Commit",
        then(put(b"leases/a")),
        INVALID,
        "expected a key outside leases/, where only lease calls write",
    ),
    "a lease's key is deleted in the else branch": (
        "Commit",
        commit(pb.Txn(orelse=[pb.Op(key=b"leases/a", delete=True)])),
        INVALID,
        "txns[0].orelse[0].key: b'leases/a'",
    ),
    "one key is written twice": (
        "Commit",
        then(put(b"a"), put(b"b"), put(b"a")),
        INVALID,
        "txns[0].then[2].key: b'a' can't be used; expected each key once per branch",
    ),
    # Transactions
    "too many transactions": (
        "Commit",
        commit(*[pb.Txn(then=[put(b"a")])] * 1_001),
        LARGE,
        "txns: 1,001 transactions are too many; at most 1,000 are taken",
    ),
    "too many operations": (
        "Commit",
        then(*[put(b"%d" % number) for number in range(101)]),
        LARGE,
        "101 compares and writes are too many; at most 100 are taken",
    ),
    "a value too large": ("Commit", then(put(b"a", b"v" * (MIB + 1))), LARGE, "1,048,577 bytes"),
    "a transaction too large": (
        "Commit",
        then(put(b"a", b"v" * 600_000), put(b"b", b"v" * 600_000)),
        LARGE,
        "at most 1,048,576 are taken",
    ),
    "a commit too large": (
        "Commit",
        commit(*[pb.Txn(then=[put(b"%d" % n, b"v" * 1_000_000)]) for n in range(4)]),
        LARGE,
        "txns: 4,000,004 bytes are too many; at most 3,145,728 are taken",
    ),
    "the second transaction is wrong": (
        "Commit",
        commit(pb.Txn(then=[put(b"a")]), pb.Txn(then=[put(b"")])),
        INVALID,
        "txns[1].then[0].key",
    ),
    "an operation without a write": (
        "Commit",
        then(pb.Op(key=b"a")),
        INVALID,
        "txns[0].then[0].write: 'nothing' can't be used; expected put: VALUE, or delete: true",
    ),
    "a delete that is false": (
        "Commit",
        then(pb.Op(key=b"a", delete=False)),
        INVALID,
        "txns[0].then[0].write: 'delete: false'",
    ),
    "a compare without an operand": (
        "Commit",
        commit(pb.Txn(compares=[pb.Compare(key=b"a")])),
        INVALID,
        "txns[0].compares[0].operand: 'nothing' can't be used; expected one of create_revision",
    ),
    "a negative revision is compared": (
        "Commit",
        commit(pb.Txn(compares=[pb.Compare(key=b"a", mod_revision=-1)])),
        INVALID,
        "txns[0].compares[0].mod_revision: -1 can't be used; expected 0 to 2^63 - 1",
    ),
    "a negative time bound": (
        "Commit",
        commit(pb.Txn(then=[put(b"a")], not_before_time_ns=-1)),
        INVALID,
        "not_before_time_ns: -1",
    ),
    "a negative revision is expected": (
        "CompareAndSet",
        pb.CompareAndSetRequest(key=b"a", put=b"v", expected_mod_revision=-1),
        INVALID,
        "expected_mod_revision: -1",
    ),
    "compare-and-set of a lease's key": (
        "CompareAndSet",
        pb.CompareAndSetRequest(key=b"leases/a", put=b"v"),
        INVALID,
        "key: b'leases/a'",
    ),
    # Ranges and pages
    "the start lies behind the end": (
        "Scan",
        pb.ScanRequest(start=b"b", end=b"a"),
        INVALID,
        "start: b'b' can't be used; expected at most the end, b'a'",
    ),
    "a negative page": ("Scan", pb.ScanRequest(limit=-1), INVALID, "limit: -1"),
    "a page too large": ("Scan", pb.ScanRequest(limit=1_001), INVALID, "limit: 1001"),
    "a forged page token": ("Scan", pb.ScanRequest(page_token=b"forged"), INVALID, "page_token"),
    "a bound too long": ("Scan", pb.ScanRequest(start=b"k" * 482), LARGE, "start: 482 bytes"),
    "a forged token of leases": (
        "ListLeases",
        pb.ListLeasesRequest(page_token=b"\x00" * 40),
        INVALID,
        "page_token",
    ),
    "a negative page of leases": (
        "ListLeases",
        pb.ListLeasesRequest(page_size=-1),
        INVALID,
        "page_size: -1",
    ),
    # Watches
    "a watch from the future": (
        "Watch",
        pb.WatchRequest(start_revision=10**15),
        ("OUT_OF_RANGE", "FUTURE_REVISION"),
        "revision 1000000000000000 lies in the future",
    ),
    "a watch from a negative revision": (
        "Watch",
        pb.WatchRequest(start_revision=-1),
        INVALID,
        "start_revision: -1",
    ),
    "a watch of a prefix too long": (
        "Watch",
        pb.WatchRequest(prefix=b"k" * 481),
        LARGE,
        "prefix: 481 bytes",
    ),
    # Leases
    "a lease for no time": ("AcquireLease", acquire(ttl_ms=0), INVALID, "ttl_ms: 0"),
    "a lease for less than no time": ("AcquireLease", acquire(ttl_ms=-1), INVALID, "ttl_ms: -1"),
    "a lease for 1 ms": (
        "AcquireLease",
        acquire(ttl_ms=1),
        INVALID,
        "ttl_ms: 1 can't be used; expected 100 to 3600000 milliseconds",
    ),
    "a lease for ever": ("AcquireLease", acquire(ttl_ms=2**63 - 1), INVALID, "ttl_ms: 92233"),
    "a lease's name with NUL": ("AcquireLease", acquire(name="a\0b"), INVALID, "name: 'a\\x00b'"),
    "a lease's name with controls": ("AcquireLease", acquire(name="a\nb"), INVALID, "name: 'a\\n"),
    "a lease's name in capitals": ("AcquireLease", acquire(name="A"), INVALID, "name: 'A'"),
    "a lease's name with an emoji": ("AcquireLease", acquire(name="a🔔"), INVALID, "name: "),
    "a lease's name of 256 characters": (
        "AcquireLease",
        acquire(name="a" * 256),
        LARGE,
        "name: 256 bytes are too many; at most 200 are taken",
    ),
    "a lease without a holder": ("AcquireLease", acquire(holder=""), INVALID, "holder: ''"),
    "a holder of 256 characters": ("AcquireLease", acquire(holder="h" * 256), LARGE, "holder"),
    "a lease's value too large": ("AcquireLease", acquire(value=b"v" * 4_097), LARGE, "4,097"),
    "a lease replaces a negative one": ("AcquireLease", acquire(replaces=-1), INVALID, "replaces"),
    "too many renewals": (
        "RenewLease",
        pb.RenewLeaseRequest(leases=[pb.LeaseRef(name="a", token=1)] * 1_001),
        LARGE,
        "leases: 1,001 leases are too many; at most 1,000 are taken",
    ),
    "a renewal without a token": (
        "RenewLease",
        pb.RenewLeaseRequest(leases=[pb.LeaseRef(name="a")]),
        INVALID,
        "leases[0].token: 0",
    ),
    "a release without a token": (
        "ReleaseLease",
        pb.ReleaseLeaseRequest(lease=pb.LeaseRef(name="a")),
        INVALID,
        "lease.token: 0",
    ),
    "a dispute that there is not": (
        "AcceptClock",
        pb.AcceptClockRequest(dispute=77),
        ("ABORTED", "STALE_REVISION"),
        "77 was given but 0 is current; read it again",
    ),
}


async def refused(client: Client, method: str, request: Any, **options: Any) -> Refusal:
    """Makes a call that must be refused and must leave the store as it was."""
    before = await client.revision()
    with pytest.raises(aio.AioRpcError) as raised:
        await client.call(method, request, **options)
    assert await client.revision() == before
    assert await client.healthy()
    return refusal(raised.value)


@pytest.mark.parametrize(("method", "request_", "status", "words"), TABLE.values(), ids=TABLE)
async def test_it_is_refused_and_nothing_happens(client, method, request_, status, words) -> None:
    found = await refused(client, method, request_)

    assert (found.code, found.reason) == status
    assert words in found.message
    assert ("field" in found.facts) == (found.reason == "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("Scan", pb.ScanRequest()),
        ("CommitStream", pb.CommitStreamRequest()),
        ("Watch", pb.WatchRequest()),
        ("ListLeases", pb.ListLeasesRequest()),
        ("Backup", pb.BackupRequest()),
        ("Status", pb.StatusRequest()),
        ("GetClock", pb.GetClockRequest()),
    ],
)
async def test_an_empty_message_means_something_where_nothing_is_required(
    client, method, request_
) -> None:
    await client.call(method, request_)


@pytest.mark.parametrize("method", UNARY)
async def test_bytes_that_are_no_message_are_refused(client, method: str) -> None:
    before = await client.revision()

    for garbage in (b"\xff\xff\xff", b"\x0a\x7f", b"\x0a\xff\xff\xff\xff\x0f"):
        with pytest.raises(aio.AioRpcError) as raised:
            await client.raw(method, garbage)
        assert refusal(raised.value)[:2] == INVALID
    assert await client.revision() == before


async def test_a_revision_of_2_to_the_63_is_refused(client) -> None:
    # As a varint, since no int64 field can be set to it; it arrives as -2^63.
    number = b"\x80" * 9 + b"\x01"
    with pytest.raises(aio.AioRpcError) as raised:
        await client.raw("CompareAndSet", b"\x0a\x01a\x1a\x01v\x10" + number)

    assert refusal(raised.value).message.startswith(
        "expected_mod_revision: -9223372036854775808 can't be used"
    )


async def test_a_field_of_a_later_version_is_passed_over(client) -> None:
    assert await client.raw("Status", b"\xf8\x7f\x01")


async def test_a_message_is_taken_up_to_the_limit_and_refused_above(client) -> None:
    def padded(size: int) -> bytes:
        body = b"\x0a\x01a"  # Get of the key `a`, then an unknown field of the wanted length
        fill = size - len(body) - 6
        return body + b"\xfa\x7f" + _varint(fill, 4) + b"\0" * fill

    assert len(padded(4 * MIB)) == 4 * MIB
    assert await client.raw("Get", padded(4 * MIB - 1))
    assert await client.raw("Get", padded(4 * MIB))
    with pytest.raises(aio.AioRpcError) as raised:
        await client.raw("Get", padded(4 * MIB + 1))
    assert refusal(raised.value)[:3] == (
        "RESOURCE_EXHAUSTED",
        "TOO_LARGE",
        "request: 4,194,305 bytes are too many; at most 4,194,304 are taken",
    )
    assert await client.healthy()


async def test_metadata_above_the_limit_is_refused(client) -> None:
    before = await client.revision()
    with pytest.raises(aio.AioRpcError) as raised:
        await client.call(
            "Commit", then(put(b"a")), metadata=(*client.metadata, ("x", "y" * 16 * 1024))
        )

    assert raised.value.code().name == "RESOURCE_EXHAUSTED"
    assert "metadata size exceeds" in (raised.value.details() or "")
    assert await client.revision() == before
    assert await client.healthy()


async def test_a_deadline_of_nothing_is_exceeded_and_nothing_is_committed(client) -> None:
    before = await client.revision()

    with pytest.raises(aio.AioRpcError) as raised:
        await client.call("Commit", then(put(b"deadline")), timeout=0)

    assert raised.value.code().name == "DEADLINE_EXCEEDED"
    assert await client.revision() == before


async def test_a_deadline_in_years_is_taken(client) -> None:
    await client.call("Status", pb.StatusRequest(), timeout=1e9)


@pytest.mark.slow
async def test_calls_cancelled_at_any_moment_leave_it_whole(make_store, connect) -> None:
    """On a store of its own: what was cancelled may still be carried through afterwards."""
    client = connect(make_store().start())
    for number in range(120):
        request = then(put(b"cancel/%d" % number))
        call = client.stub.Commit(request, timeout=10, metadata=client.metadata)
        for _ in range(number % 40):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    revision = await client.put(b"last")
    page = await client.call("Scan", pb.ScanRequest(start=b"cancel/", end=b"cancel0"))
    assert all(kv.version == 1 for kv in page.kvs)
    assert len({kv.mod_revision for kv in page.kvs} | {revision}) == len(page.kvs) + 1
    assert await client.healthy()


async def test_each_wrong_request_of_a_stream_is_answered_and_the_stream_goes_on(client) -> None:
    before = await client.revision()
    stream = client.stub.CommitStream(timeout=10, metadata=client.metadata)
    wrong = [
        pb.CommitStreamRequest(sequence=1, txns=[pb.Txn(then=[put(b"")])]),
        pb.CommitStreamRequest(sequence=2, txns=[pb.Txn(then=[put(b"a")])], timeout_ms=-1),
        pb.CommitStreamRequest(sequence=3, txns=[pb.Txn(then=[put(b"a")])], timeout_ms=60_001),
        pb.CommitStreamRequest(sequence=4, txns=[pb.Txn(then=[pb.Op(key=b"a")])]),
        pb.CommitStreamRequest(sequence=5, packed=pb.PackedTxns(order=[0])),
    ]
    for request in wrong:
        await stream.write(request)
    answers = [await stream.read() for _ in wrong]

    assert sorted(answer.sequence for answer in answers) == [1, 2, 3, 4, 5]
    assert {answer.error.code for answer in answers} == {3}
    assert all("can't be used" in answer.error.message for answer in answers)
    assert await client.revision() == before
    await stream.write(pb.CommitStreamRequest(sequence=6, txns=[pb.Txn(then=[put(b"s")])]))
    assert (await stream.read()).results[0].revision == before + 1
    stream.cancel()


async def test_a_renewal_by_another_token_is_answered_with_no(client) -> None:
    acquired = await client.call("AcquireLease", acquire(name="renewed", ttl_ms=60_000))
    token = acquired.lease.token
    refs = [pb.LeaseRef(name="renewed", token=token + by) for by in (-1, 0, 1)]
    refs.append(pb.LeaseRef(name="never", token=token))

    answer = await client.call("RenewLease", pb.RenewLeaseRequest(leases=refs))
    assert [renewal.renewed for renewal in answer.renewals] == [False, True, False, False]

    for by, released in ((1, False), (-1, False), (0, True), (0, False)):
        request = pb.ReleaseLeaseRequest(lease=pb.LeaseRef(name="renewed", token=token + by))
        assert (await client.call("ReleaseLease", request)).released is released
    answer = await client.call("RenewLease", pb.RenewLeaseRequest(leases=refs))
    assert [renewal.renewed for renewal in answer.renewals] == [False] * 4


async def test_a_call_of_another_incarnation_is_refused_but_status_is_not(client) -> None:
    status = await client.call("Status", pb.StatusRequest())
    own = (*client.metadata, ("sexton-incarnation", status.incarnation))
    other = (*client.metadata, ("sexton-incarnation", "0" * 32))

    await client.call("Commit", then(put(b"own")), metadata=own)
    found = await refused(client, "Commit", then(put(b"other")), metadata=other)
    assert found[:2] == ("FAILED_PRECONDITION", "WRONG_INCARNATION")
    assert found.facts == {"incarnation": status.incarnation}
    assert (await client.call("Status", pb.StatusRequest(), metadata=other)).cluster_id


async def test_limits_themselves_are_taken(client) -> None:
    longest = b"k" * 480
    await client.put(longest, b"v" * (MIB - 480))
    many = [pb.Txn(then=[put(b"limit/%d" % number)]) for number in range(1_000)]
    answer = await client.commit(*many)
    assert len({result.revision for result in answer.results}) == 1_000
    ops = [put(b"limit/%d" % number) for number in range(100)]
    assert (await client.commit(pb.Txn(then=ops))).results[0].outcome == pb.OUTCOME_COMMITTED
    found = await client.call("Get", pb.GetRequest(keys=[longest] * 3))
    assert [len(kv.value) for kv in found.kvs] == [MIB - 480] * 3


def _varint(number: int, length: int) -> bytes:
    """Writes a varint of exactly so many bytes."""
    parts = [(number >> (7 * index)) & 0x7F | 0x80 for index in range(length)]
    parts[-1] &= 0x7F
    return bytes(parts)
