"""A page in a real browser."""

import json
import shutil
import time

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"
)
needs_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="no browser: install Debian's packages chromium and chromium-driver"
    ),
]


PATIENCE = 300.0  # seconds for what comes at once on a quiet machine: it bounds a hang, and measures nothing


class Browser:
    """A page that is open in Chromium."""

    def __init__(self, folder):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in (*FLAGS.split(), f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.driver.set_script_timeout(PATIENCE)  # by default 30 s
        self.driver.command_executor.client_config.timeout = 2 * PATIENCE

    def open(self, path, *, width=1400, scheme="light", fragment="", folded=False):
        """Opens a file and waits until its charts are drawn, with all metrics and columns unless it stays `folded`."""
        self.resize(width)
        self.set_scheme(scheme)
        self.driver.get("about:blank")
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(path.resolve().as_uri() + (f"#{fragment}" if fragment else ""))
        if not folded:
            self.run(
                "for (const more of document.querySelectorAll('.more-metrics')) more.open = true; setAllColumns(true)"
            )
        expected = "[...document.querySelectorAll('.chart')].filter(c => !c.closest('details:not([open])')).length"
        self.wait(
            f"return {expected} === charts.length && document.querySelectorAll('.chart svg').length === {expected}"
        )
        self.run("charts.sort((a, b) => (a.getDom().compareDocumentPosition(b.getDom()) & 4 ? -1 : 1))")  # from the top

    def resize(self, width):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)

    def set_scheme(self, scheme):
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def command(self, name, **arguments):
        return self.driver.execute_cdp_cmd(name, arguments)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, script):
        deadline = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < deadline, f"in vain: {script}"
            time.sleep(0.02)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def series(self):
        """The names of the series of each chart."""
        return self.run(
            "return charts.map(chart => [chart.getDom().dataset.chart, chart.getOption().series.map(s => s.name)])"
        )

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        messages = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith("data:")]
