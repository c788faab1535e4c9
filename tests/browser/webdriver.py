"""A small W3C WebDriver client over plain HTTP: what the scenario needs of chromedriver and nothing else."""
import base64
import json
import re
import subprocess
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
]


class WebDriverError(Exception):
    pass


class Browser:
    """One chromedriver with one session. Use it as a context: both end with it."""

    def __init__(self, profile, log):
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0", f"--log-path={log}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.session = None
        try:
            self.base = f"http://127.0.0.1:{self._port()}"
            self._start(profile)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _port(self):
        for line in self.driver.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                return int(found[1])
        raise WebDriverError("chromedriver did not start")

    def _start(self, profile):
        chrome = {"args": [*FLAGS, f"--user-data-dir={profile}"], "prefs": {"download.prompt_for_download": False}}
        wanted = {"goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}, "acceptInsecureCerts": True}
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = answer["sessionId"]
        self.call("POST", "/timeouts", {"pageLoad": 60_000, "script": 60_000, "implicit": 0})

    def close(self):
        if self.session:
            try:
                self._call("DELETE", f"/session/{self.session}")
            except (WebDriverError, OSError):
                pass
            self.session = None
        self.driver.terminate()
        try:
            self.driver.wait(10)
        except subprocess.TimeoutExpired:
            self.driver.kill()
            self.driver.wait()

    def _call(self, method, path, body=None):
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.base + path, data=data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error).get("value", {})
            raise WebDriverError(f"{value.get('error')}: {value.get('message', '').splitlines()[0]}") from None

    def call(self, method, path, body=None):
        return self._call(method, f"/session/{self.session}{path}", body)

    def chrome(self, command, **parameters):
        """A command of the DevTools protocol."""
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    # Pages

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    @property
    def url(self):
        return self.call("GET", "/url")

    @property
    def title(self):
        return self.call("GET", "/title")

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def console(self):
        """Entries that were logged since the last call."""
        return self.call("POST", "/se/log", {"type": "browser"})

    def cookies(self):
        return {cookie["name"]: cookie for cookie in self.call("GET", "/cookie")}

    # Elements, by CSS selector

    def all(self, selector):
        found = self.call("POST", "/elements", {"using": "css selector", "value": selector})
        return [Element(self, one[ELEMENT]) for one in found]

    def one(self, selector, seconds=20):
        """The first visible element; waits for it."""
        return self.wait(
            lambda: next((one for one in self.all(selector) if one.is_shown()), None), f"{selector} to be shown", seconds
        )

    def gone(self, selector, seconds=20):
        self.wait(lambda: not any(one.is_shown() for one in self.all(selector)), f"{selector} to be gone", seconds)

    def wait(self, condition, what, seconds=20):
        """Asks again and again, for what the browser does has no other end to wait for."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                value = condition()
            except WebDriverError as error:
                if "stale element" not in str(error):
                    raise
                value = None
            if value:
                return value
            if time.monotonic() > deadline:
                raise WebDriverError(f"waited {seconds} s for {what}")
            time.sleep(0.05)

    @property
    def focused(self):
        return Element(self, self.call("GET", "/element/active")[ELEMENT])

    def keys(self, *keys):
        """Presses keys where the focus is."""
        actions = []
        for key in keys:
            actions += [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    # Looks

    def show_as(self, width, height, scheme):
        self.chrome(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.chrome("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))


class Element:
    def __init__(self, browser, number):
        self.browser = browser
        self.path = f"/element/{number}"
        self.number = number

    def click(self):
        self.browser.call("POST", self.path + "/click")

    def type(self, text):
        self.browser.call("POST", self.path + "/value", {"text": text})

    def clear(self):
        self.browser.call("POST", self.path + "/clear")

    def is_shown(self):
        return self.browser.call("GET", self.path + "/displayed")

    @property
    def text(self):
        return self.browser.call("GET", self.path + "/text")

    def attribute(self, name):
        return self.browser.call("GET", f"{self.path}/attribute/{name}")

    def value_of(self, name):
        return self.browser.call("GET", f"{self.path}/property/{name}")

    @property
    def label(self):
        """As a screen reader says it."""
        return self.browser.call("GET", self.path + "/computedlabel")
