"""Who is let in, what they may do, and what no page of ours can be made to do."""

from __future__ import annotations

import re

import pytest
from unit.console.site import CLIENT, HOST, READER, Site
from unit.coordinator.api.world import World, story

from sexton_console.web.guard import allowed_hosts
from sexton_console.web.sessions import SESSION_S, TICKET_S, Access, Sessions, make_ticket
from sexton_console.web.urls import local_path
from sexton_runtime.secrets import Role, SecretsConfig, load_secret

NOW = 1_800_000_000.0


def sessions(**changes) -> Sessions:
    given = {"client_secret": CLIENT, "reader_secret": READER, "read_only": False} | changes
    return Sessions(given["client_secret"], given["reader_secret"], read_only=given["read_only"])


def test_the_client_secret_makes_an_operator_and_the_readers_a_reader():
    known = sessions()
    assert known.access_of(CLIENT) is Access.OPERATOR
    assert known.access_of(READER) is Access.READER
    assert known.access_of("x" * 32) is None
    assert known.access_of("") is None
    assert sessions(read_only=True).access_of(CLIENT) is Access.READER


def test_a_session_outlives_a_restart_and_ends_with_its_time_or_with_the_secret():
    cookie = sessions().begin(Access.OPERATOR, NOW)
    found = sessions().read(cookie, NOW + SESSION_S - 1)
    assert found is not None
    assert found.may_act
    assert sessions().read(cookie, NOW + SESSION_S + 1) is None
    assert sessions(client_secret="d" * 32).read(cookie, NOW) is None


def test_a_login_goes_on_while_its_secret_is_accepted_and_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr("sexton._watched_files.LOOK_EVERY_S", 0.0)
    file = tmp_path / "client"
    file.write_text(CLIENT)
    known = sessions(client_secret=load_secret(SecretsConfig(dir=tmp_path), Role.CLIENT))
    cookie = known.begin(Access.OPERATOR, NOW)
    file.write_text(f"{'d' * 32}\n{CLIENT}\n")
    session = known.read(cookie, NOW)
    assert session is not None
    assert known.form_is_ours(session, known.form_token(session))
    assert known.access_of("d" * 32) is known.access_of(CLIENT) is Access.OPERATOR
    file.write_text("d" * 32)
    assert known.read(cookie, NOW) is None
    assert known.access_of(CLIENT) is None


def test_a_reader_can_not_make_itself_an_operator():
    cookie = sessions().begin(Access.READER, NOW)
    forged = cookie.replace("reader", "operator")
    assert sessions().read(forged, NOW) is None
    found = sessions().read(cookie, NOW)
    assert found is not None
    assert not found.may_act


@pytest.mark.parametrize("cookie", ["", "a", "operator.1.2", "operator.99999999999.n.", "...", "é"])
def test_what_is_no_session_lets_nobody_in(cookie):
    assert sessions().read(cookie, NOW) is None


def test_a_ticket_lets_in_once_and_not_for_long():
    known = sessions()
    ticket = make_ticket(CLIENT, NOW)
    assert known.use_ticket(ticket, NOW + TICKET_S + 1) is None
    assert known.use_ticket(ticket, NOW) is Access.OPERATOR
    assert known.use_ticket(ticket, NOW) is None
    assert known.use_ticket(make_ticket("d" * 32, NOW), NOW) is None
    session = known.begin(Access.READER, NOW)
    assert known.use_ticket(session, NOW) is None


def test_a_ticket_lets_in_once_over_a_restart_too():
    ticket = make_ticket(CLIENT, NOW)
    assert sessions().use_ticket(ticket, NOW) is Access.OPERATOR
    restarted = Sessions(CLIENT, READER, read_only=False, started_s=NOW + 2)
    assert restarted.use_ticket(ticket, NOW + 3) is None
    assert restarted.use_ticket(make_ticket(CLIENT, NOW + 2.5), NOW + 3) is Access.OPERATOR


def test_a_form_of_another_login_is_not_ours():
    known = sessions()
    one, other = (known.read(known.begin(Access.OPERATOR, NOW), NOW) for _ in range(2))
    assert one is not None
    assert other is not None
    assert known.form_is_ours(one, known.form_token(one))
    assert not known.form_is_ours(one, known.form_token(other))
    assert not known.form_is_ours(one, "")


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ("/jobs?q=1", "/jobs?q=1"), ("//evil.example", "/"), ("/\\evil.example", "/"),
        ("https://evil.example", "/"), ("javascript:alert(1)", "/"), ("", "/"), ("/a\r\nb", "/"),
    ],
)  # fmt: skip
def test_a_login_leads_to_pages_of_ours_alone(given, target):
    assert local_path(given) == target


def test_pages_are_served_under_their_own_names_alone():
    assert "localhost:7480" in allowed_hosts("127.0.0.1", 7480, ())
    assert "evil.example:7480" not in allowed_hosts("127.0.0.1", 7480, ())
    named = allowed_hosts("0.0.0.0", 7480, ("Console.Example", "other.example:443"))
    assert named >= {"console.example", "console.example:7480", "other.example:443"}
    assert "0.0.0.0:7480" not in named


def test_nobody_sees_anything_without_a_login():
    async def scenario(world: World) -> None:
        site = Site(world)
        for path in ("/jobs", "/api/now", "/live?at=/jobs", "/jobs/default/report/pause"):
            page = await site.get(path, authorization="")
            assert (page.status, page.headers["location"][:12]) == (303, "/login?next=")
            program = await site.get(path, authorization="", accept="*/*")
            assert program.status == 401
        assert (await site.get("/login", authorization="")).status == 200
        assert (await site.get("/jobs", authorization=f"Bearer {'x' * 32}")).status == 303
        wrong = await site.post("/login", {"secret": "nope"}, authorization="")
        assert wrong.status == 403
        assert "set-cookie" not in wrong.headers
        again = await site.post(
            "/login", {"secret": "nope"}, authorization="", cookie=await site.cookie(READER)
        )
        assert (again.status, "That is not the secret." in again.text) == (403, True)

    story(scenario)


def test_a_cookie_can_not_be_read_by_scripts_nor_sent_by_other_sites():
    async def scenario(world: World) -> None:
        site = Site(world)
        answer = await site.post("/login", {"secret": CLIENT, "next": "//x"}, authorization="")
        assert answer.headers["location"] == "/"
        flags = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
        assert flags >= {"httponly", "samesite=strict", "path=/"}
        cookie = answer.headers["set-cookie"].split(";")[0]
        assert (await site.get("/jobs", authorization="", cookie=cookie)).status == 200

    story(scenario)


def test_a_cookie_that_came_by_tls_goes_by_tls_alone():
    async def scenario(world: World) -> None:
        site = Site(world)
        for told, secure in (("https", True), ("HTTPS, http", True), ("http", False), ("", False)):
            form = {"secret": CLIENT}
            answer = await site.post("/login", form, authorization="", x_forwarded_proto=told)
            assert ("secure" in answer.headers["set-cookie"].lower()) is secure, told

    story(scenario)


def test_a_name_that_is_not_ours_and_requests_of_other_sites_are_refused():
    async def scenario(world: World) -> None:
        site = Site(world)
        assert (await site.get("/jobs", host="evil.example")).status == 421
        assert (await site.get("/jobs", host="")).status == 421
        for headers in ({"sec_fetch_site": "cross-site"}, {"origin": "https://evil.example"}):
            answer = await site.post("/jobs/default/report/pause", {"reason": "x"}, **headers)
            assert answer.status == 403
        answer = await site.post("/login", {"secret": CLIENT}, origin="null", authorization="")
        assert answer.status == 403

    story(scenario)


def test_pages_run_no_script_and_no_style_but_our_files():
    async def scenario(world: World) -> None:
        await world.make()
        site = Site(world)
        await site.follower.run_once()
        for path in ("/", "/jobs", "/jobs/default/report", "/runs", "/help", "/login", "/nope"):
            answer = await site.get(path)
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self'; style-src 'self'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", answer.text), (
                path
            )

    story(scenario)


def test_an_action_needs_a_form_of_this_login_or_the_secret_itself():
    async def scenario(world: World) -> None:
        await world.make()
        site = Site(world)
        path = "/jobs/default/report/pause"
        cookie = await site.cookie()
        browser = {"authorization": "", "cookie": cookie, "origin": f"http://{HOST}"}
        assert (await site.post(path, {"reason": "x"}, **browser)).status == 403
        assert not (await world.get()).paused
        page = (await site.get(path, authorization="", cookie=cookie)).text
        token = re.search(r'name="token" value="([0-9a-f]+)"', page)
        assert token
        done = await site.post(path, {"reason": "<b>why</b>", "token": token[1]}, **browser)
        assert (done.status, done.headers["location"][:24]) == (303, "/jobs/default/report?don")
        assert (await world.get()).pause_reason == "<b>why</b>"
        shown = await site.get("/jobs/default/report")
        assert "<b>why" not in shown.text
        assert "&lt;b&gt;why&lt;/b&gt;" in shown.text
        resumed = await site.post("/jobs/default/report/resume", {"mode": "next"}, accept="*/*")
        assert (resumed.status, resumed.headers["content-type"]) == (200, "application/json")
        assert not (await world.get()).paused

    story(scenario)


def test_only_a_post_acts():
    async def scenario(world: World) -> None:
        await world.make()
        site = Site(world)
        for method in ("GET", "HEAD"):
            answer = await site.ask(method, "/jobs/default/report/pause", {})
            assert answer.status == 200
        assert not (await world.get()).paused

    story(scenario)


def test_a_reader_looks_and_does_not_act():
    async def scenario(world: World) -> None:
        await world.make()
        site = Site(world)
        cookie = await site.cookie(READER)
        page = await site.get("/jobs/default/report", authorization="", cookie=cookie)
        assert page.status == 200
        assert "/pause" not in page.text
        for ask in (site.get, site.post):
            extra = ({},) if ask == site.post else ()
            answer = await ask(
                "/jobs/default/report/pause", *extra, authorization="", cookie=cookie
            )
            assert answer.status == 403
        program = await site.post(
            "/jobs/default/report/pause", {}, authorization=f"Bearer {READER}"
        )
        assert program.status == 403
        assert not (await world.get()).paused

    story(scenario)


def test_large_requests_are_refused_unread():
    async def scenario(world: World) -> None:
        site = Site(world)
        big = {"reason": "x" * 70_000}
        assert (await site.post("/jobs/default/report/pause", big)).status == 413
        assert (
            await site.post("/jobs/default/report/pause", {}, content_length="-1")
        ).status == 413
        assert (await site.get("/jobs?q=" + "x" * 9_000)).status == 414

    story(scenario)
