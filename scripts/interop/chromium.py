"""Chromium without a window, driven over its DevTools protocol on a pair of pipes: needs
nothing but Python. It keeps what a page asks of the network and what it complains of."""

import base64
import fcntl
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time

# Longest that a command, or something that is waited for, may take.
SECONDS_MAX = float(os.environ.get("PAGE_SECONDS_MAX", "60"))

# Where the page's files are taken from in place of the broker, while one works on them.
FOLDER = os.environ.get("PAGE_FOLDER")

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find():
    """The program, or None."""
    own = os.environ.get("CHROMIUM")
    return shutil.which(own) if own else next(filter(None, map(shutil.which, NAMES)), None)


class Failed(Exception):
    """A command was refused, or something did not come about."""


class Browser:
    """One process, with a profile of its own that goes with it."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="dunlin-page-")
        self.process, self.commands, answers = self._start(program)
        self.lock = threading.Lock()
        self.number = 0
        self.waiting = {}
        self.tabs = {}
        self.reader = threading.Thread(target=self._read, args=(answers,), daemon=True)
        self.reader.start()

    def _start(self, program):
        # The browser reads from its descriptor 3 and writes to 4. Ours are moved out of
        # the way of these first.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 64) for end in (*os.pipe(), *os.pipe())]
        theirs_in, ours_out, ours_in, theirs_out = ends

        def pipes():
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        arguments = [
            program, "--headless", "--remote-debugging-pipe", f"--user-data-dir={self.profile}",
            "--no-first-run", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--ignore-certificate-errors", "--force-color-profile=srgb",
            # A name that is asked for is not found: the page needs none.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]
        if os.getuid() == 0:
            arguments.append("--no-sandbox")
        process = subprocess.Popen([*arguments, "about:blank"], preexec_fn=pipes, pass_fds=(3, 4),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        return process, os.fdopen(ours_out, "wb", buffering=0), os.fdopen(ours_in, "rb", buffering=0)

    def _read(self, answers):
        kept = b""
        while chunk := answers.read(1 << 16):
            *whole, kept = (kept + chunk).split(b"\0")
            for text in whole:
                message = json.loads(text)
                if "id" in message:
                    self.waiting.pop(message["id"]).put(message)
                elif tab := self.tabs.get(message.get("sessionId")):
                    tab.note(message["method"], message["params"])
        for waits in list(self.waiting.values()):
            waits.put({"error": {"message": "the browser is gone"}})

    def call(self, method, session=None, **params):
        """One command."""
        waits = queue.Queue()
        with self.lock:
            self.number += 1
            self.waiting[self.number] = waits
            message = {"id": self.number, "method": method, "params": params}
            if session:
                message["sessionId"] = session
            self.commands.write(json.dumps(message).encode() + b"\0")
        try:
            answer = waits.get(timeout=SECONDS_MAX)
        except queue.Empty:
            raise Failed(f"{method}: no answer") from None
        if "error" in answer:
            raise Failed(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def tab(self):
        """An empty page, with storage of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        return Tab(self, session["sessionId"])

    def close(self):
        """Ends the process, and removes its profile."""
        try:
            self.call("Browser.close")
            self.process.wait(SECONDS_MAX)
        except (Failed, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Tab:
    """A page."""

    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        # Addresses that were asked for, and complaints: of scripts, of the policy, of
        # the network.
        self.requests, self.errors = [], []
        browser.tabs[session] = self
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        if FOLDER:
            self.call("Fetch.enable", patterns=[{"urlPattern": "*/page/*", "requestStage": "Response"}])

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def note(self, method, params):
        """Keeps what an event says."""
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Network.webSocketCreated":
            self.requests.append(params["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(it.get("value", it.get("description"))) for it in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())
        elif method == "Fetch.requestPaused":
            threading.Thread(target=self.replace, args=(params,)).start()
        elif method == "Page.javascriptDialogOpening":
            self.errors.append(f"a script opened a dialogue: {params['message']}")

    def replace(self, params):
        """Answers a request with the file of that name, and the headers that it had."""
        with open(os.path.join(FOLDER, os.path.basename(params["request"]["url"])), "rb") as file:
            body = base64.b64encode(file.read()).decode()
        headers = [it for it in params["responseHeaders"] if it["name"].lower() not in ("content-length", "etag")]
        self.call("Fetch.fulfillRequest", requestId=params["requestId"], responseCode=200,
                  responseHeaders=headers, body=body)

    def open(self, url):
        """Goes to an address, and waits until it is loaded."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def js(self, text):
        """The value of an expression."""
        answer = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        if details := answer.get("exceptionDetails"):
            raise Failed(f"{text}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def wait(self, text, seconds=SECONDS_MAX):
        """Waits until an expression is true, and returns its value."""
        until = time.monotonic() + seconds
        while not (value := self.js(text)):
            if time.monotonic() > until:
                shown = self.js("document.body?.innerText ?? ''")
                raise Failed(f"did not come about: {text}\non the page:\n{shown[:2000]}\n{self.errors}")
            time.sleep(0.03)
        return value

    def key(self, key, text=None):
        """Presses and lifts a key."""
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode={"Tab": 9, "Enter": 13, "Escape": 27}.get(key, 0), **extra)

    def look(self, width, height, dark=False, scale=1):
        """Sets the size of the page, and light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=width < 600)
        value = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def picture(self, path):
        """Writes what is seen as PNG."""
        # Two frames: what was changed by the last command is drawn.
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
