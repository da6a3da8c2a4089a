"""A headless Chromium that tests drive over a pipe, by its DevTools protocol: evaluate, click, press, screenshot."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
EXECUTABLE = os.environ.get("CHROMIUM") or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a browser; ends the browser with the with block."""

    def __init__(self, profile: Path, width: int = 1400, height: int = 900) -> None:
        assert EXECUTABLE is not None
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()

        def places() -> None:  # the protocol's file numbers: 3 to read from, 4 to write to
            spare = [os.dup(n) for n in (to_child, from_child)]
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        command = [EXECUTABLE, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
                   "--disable-dev-shm-usage", f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]  # fmt: skip
        self._process = subprocess.Popen(command, close_fds=False, preexec_fn=places, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)  # fmt: skip
        os.close(to_child)
        os.close(from_child)
        self._number, self._rest, self._session, self.errors = 0, b"", "", []  # type: int, bytes, str, list[str]
        pages = [t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self._session = self.ask("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]
        self.ask("Runtime.enable")
        self.ask("Page.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exc: Any) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._out)
        os.close(self._in)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._in, 1 << 20)
            assert more, "the browser ended"
            self._rest += more
        raw, _, self._rest = self._rest.partition(b"\0")
        return json.loads(raw)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; exceptions of the page that come meanwhile are kept in `errors`."""
        self._number += 1
        text = {"id": self._number, "method": method, "params": params}
        if self._session:
            text["sessionId"] = self._session
        os.write(self._out, json.dumps(text).encode() + b"\0")
        while True:
            found = self._message()
            if found.get("method") == "Runtime.exceptionThrown":
                details = found["params"]["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            if found.get("id") == self._number:
                assert "error" not in found, found["error"]
                return found["result"]

    def evaluate(self, expression: str) -> Any:
        """The value of an expression; a promise is waited for."""
        found = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, path: Path) -> None:
        """Opens a file and waits until its data is read and drawn."""
        self.ask("Page.navigate", url=path.as_uri())
        wait = ("new Promise((done, failed) => { const until = Date.now() + 60000; (function look() {"
                "if (document.body && document.body.dataset.ready) requestAnimationFrame(() => requestAnimationFrame(done));"
                "else if (Date.now() > until) failed('not ready'); else setTimeout(look, 20); })(); })")  # fmt: skip
        self.evaluate(wait)

    def text(self, selector: str) -> str:
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")

    def click(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """A click at a place of an element, from 0 to 1."""
        box = self.evaluate(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'nearest'}});"
                            "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")  # fmt: skip
        at = {"x": box[0] + box[2] * x, "y": box[1] + box[3] * y, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, **at)
        self.settle()

    def press(self, key: str) -> None:
        """A key: one character, or a name such as ArrowRight."""
        text = {"text": key} if len(key) == 1 else {}
        codes = {"Enter": 13, "Tab": 9, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=codes.get(key, 0), **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def settle(self) -> None:
        """Until what was asked for is drawn."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))
