"""
Look at the built site in Chromium: `python -m docs.in_browser build/site`, which `make docs` runs.

Each page is shown at the width of a desktop and at that of a phone. No table is wider than its column, no page is wider
than the screen, every picture loads, every file comes from the site itself, and the search finds pages.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
WIDTHS_PX: Final = (1280, 390)
LOOK_S_MAX: Final = 300.0  # 150 pages take 20 s alone on two cores
MISSING: Final = "no browser is on PATH, so no page was measured; on Debian: apt-get install chromium"
_HARNESS: Final = """<!DOCTYPE html><body><script>
const found = [];
const pause = ms => new Promise(done => setTimeout(done, ms));
async function look(page, width) {
    const say = text => found.push(`${page} at ${width} px: ${text}`);
    const frame = document.createElement("iframe");
    Object.assign(frame.style, {width: width + "px", height: "900px", border: 0});
    const loaded = new Promise(done => frame.onload = done);
    frame.src = page;
    document.body.append(frame);
    await loaded;
    const shown = frame.contentDocument;
    await shown.fonts.ready;
    const tables = [...shown.querySelectorAll(".document table")];
    const wrapped = table => table.parentElement.className.includes("wy-table-responsive");
    for (let i = 0; i < 100 && !tables.every(wrapped); i++) await pause(20);
    tables.forEach((table, i) => {
        const [has, needs] = [table.parentElement.clientWidth, Math.max(table.offsetWidth, table.scrollWidth)];
        if (!wrapped(table)) say(`table ${i + 1} is not wrapped by the theme`);
        if (needs > has) say(`table ${i + 1}: expected at most ${has} px, saw ${needs} px`);
    });
    const needs = shown.scrollingElement.scrollWidth;
    if (needs > width) say(`the page: expected at most ${width} px, saw ${needs} px`);
    for (const image of shown.images) if (!image.naturalWidth) say(`the picture ${image.src} does not load`);
    for (const one of frame.contentWindow.performance.getEntriesByType("resource"))
        if (new URL(one.name).host !== location.host) say(`expected a file of the site, saw ${one.name}`);
    frame.remove();
}
async function search() {
    const frame = document.createElement("iframe");
    frame.src = "/search.html?q=page";
    document.body.append(frame);
    const hits = () => frame.contentDocument.querySelectorAll("#mkdocs-search-results article").length;
    for (let i = 0; i < 1000 && !hits(); i++) await pause(20);
    if (!hits()) found.push("search: expected pages with the word page, saw none");
}
(async () => {
    try {
        await search();
        for (const page of PAGES) await Promise.all(WIDTHS.map(width => look(page, width)));
    } catch (error) { found.push(`${error}`); }
    await fetch("/found", {method: "POST", body: JSON.stringify(found)});
})();
</script>"""


class LookError(Exception):
    """The browser did not report in time."""


def browser() -> str | None:
    """Return the path of a Chromium, None where none is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def complaints(site: Path, program: str, widths_px: Sequence[int] = WIDTHS_PX) -> list[str]:
    """Return one sentence for each thing that does not fit or does not load.

    Raises:
        LookError: the browser ended, or did not report within LOOK_S_MAX.
    """
    pages = sorted(f"/{page.relative_to(site)}" for page in site.rglob("*.html") if page.name != "404.html")
    reports: queue.Queue[list[str]] = queue.Queue()
    harness = _HARNESS.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps(list(widths_px)))
    with _serving(site, harness, reports) as port, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage")
        looking = subprocess.Popen(
            (program, *options, f"--user-data-dir={profile}", "--remote-debugging-port=0", f"http://127.0.0.1:{port}/"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # its children end with it
        )
        try:
            return reports.get(timeout=LOOK_S_MAX)
        except queue.Empty as error:
            raise LookError(f"expected the browser's report within {LOOK_S_MAX:.0f} s, saw none") from error
        finally:
            os.killpg(looking.pid, signal.SIGKILL)
            looking.wait()


@contextmanager
def _serving(site: Path, harness: str, reports: queue.Queue[list[str]]) -> Iterator[int]:
    class Handler(SimpleHTTPRequestHandler):
        """Serve the site, and the page that looks at its pages."""

        def do_GET(self) -> None:
            if self.path != "/":
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(harness.encode())

        def do_POST(self) -> None:
            reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        """A server whose client may leave in the middle of an answer, as a frame does that is removed."""

        def handle_error(self, *_: Any) -> None:
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(*_)

    server = Server(("127.0.0.1", 0), partial(Handler, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main() -> None:
    """Print all complaints about the site; exit with 1 if there is one, and in CI if there is no browser."""
    program = browser()
    if program is None:
        print(f"docs.in_browser: {MISSING}", file=sys.stderr)
        sys.exit(os.environ.get("CI") == "true")
    found = complaints(Path(sys.argv[1]), program)
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
