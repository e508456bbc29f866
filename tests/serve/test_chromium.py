"""A real browser: the login link works in it, and a hostile page in the same browser gets nothing (3.7).

tests/serve/test_browser.py and test_matrix.py send the same requests without one.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.serve.shared import OWN, Shared
from tests.serve.test_browser import link_of

pytestmark = pytest.mark.door("route: /login, in a browser")
SECONDS = 120
HOSTILE = """<!doctype html><title>hostile</title><pre id=out></pre>
<iframe name=sink></iframe>
<form id=f method=POST action="%(base)s/v1/keys" target=sink enctype="text/plain">
<input name='{"name":"stolen","role":"server_admin","x":"' value='"}'></form>
<script>
const out = [];
const told = (name, what) => { out.push(name + "=" + what); document.getElementById("out").textContent = out.join(";"); };
const tries = [
  ["read", () => fetch("%(base)s/v1/me", {credentials: "include"}).then((r) => r.text()).then((t) => "GOT " + t)],
  ["blind", () => fetch("%(base)s/v1/keys", {method: "POST", mode: "no-cors", credentials: "include",
    headers: {"Content-Type": "text/plain"}, body: '{"name":"stolen","role":"server_admin"}'}).then((r) => "sent " + r.type)],
  ["json", () => fetch("%(base)s/v1/keys", {method: "POST", credentials: "include",
    headers: {"Content-Type": "application/json", "Detent-CSRF": "x"}, body: '{"name":"stolen","role":"server_admin"}'}).then((r) => "GOT " + r.status)],
  ["delete", () => fetch("%(base)s/v1/login", {method: "DELETE", credentials: "include"}).then((r) => "GOT " + r.status)],
  ["stream", () => new Promise((done) => { const s = new EventSource("%(base)s/v1/events?topics=jobs", {withCredentials: true});
    s.onopen = () => done("GOT open"); s.onerror = () => { s.close(); done("closed"); }; })],
  ["socket", () => new Promise((done) => { const s = new WebSocket("%(socket)s/v1/events");
    s.onopen = () => done("GOT open"); s.onerror = () => done("closed"); })],
];
document.getElementById("f").submit();
(async () => {
  for (const [name, make] of tries) {
    try { told(name, await make()); } catch (error) { told(name, "refused"); }
  }
  told("done", "1");
})();
</script>"""


def tried(page: Page, address: str) -> str:
    """What a hostile page got."""
    page.goto(address)
    expect(page.locator("#out")).to_contain_text("done=1")
    return page.locator("#out").inner_text()


@contextmanager
def hostile(base: str) -> Iterator[int]:
    """A page of another origin that tries everything against a server."""
    page = (HOSTILE % {"base": base, "socket": base.replace("http:", "ws:")}).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_a_browser_logs_in_and_a_hostile_page_gets_nothing(shared: Shared, browser: Browser) -> None:
    served, base = shared.served, shared.served.told["url"]
    before = served.get("/v1/keys?limit=200").body
    context = browser.new_context()
    context.set_default_timeout(SECONDS * 1_000)
    page = context.new_page()
    page.goto(f"{base}/login#{link_of(served)}")
    page.get_by_role("heading", name="Overview").wait_for()
    # From another port of the same host, whose requests carry the cookie (same site), and from another host.
    with hostile(base) as port:
        for host in ("127.0.0.1", "localhost"):
            found = tried(page, f"http://{host}:{port}/")
            assert "GOT" not in found, found
    assert served.get("/v1/keys?limit=200").body == before
    page.goto(f"{base}/")
    page.get_by_role("heading", name="Overview").wait_for()  # Nothing logged it out.
    # DNS rebinding: the attacker's own name points at this server.
    page.goto(f"http://evil.example:{served.port}/v1/me")
    assert "HOST_REFUSED" in page.content()
    assert OWN not in page.content()
    context.close()
    # The requests of the page on the other port arrived with the cookie: what stopped them is the server, not only the browser.
    metrics = served.get("/metrics").body.decode()
    assert 'detent_http_requests_total{route="/v1/keys",status="403"}' in metrics
