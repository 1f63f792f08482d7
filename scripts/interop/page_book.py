"""Makes the pictures of the book's page about the broker's page: a plant with some
thousand clients, a fleet over QUIC that sleeps and moves, one receiver that is slow.
"""

import json
import math
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import chromium
from brokers import ROOT
from run_page import DESK, PHONE, Client, Page, Paged

FOLDER = ROOT / "docs/book/src/page"

CLIENTS = 2_400
# Time that the charts show.
SECONDS = 260

# Largest picture.
BYTES_MAX = 60_000


class Plant:
    """Clients with names as they are, some of which publish."""

    def __init__(self, broker):
        self.stopping = threading.Event()
        tcp, ws = broker.ports["tcp"], broker.ports["ws"]
        assert ws
        self.clients = [Client(tcp, f"plant-{n % 12:02}/{kind}-{n:04}", user=(None, broker.user, None)[n % 7 % 3])
                        for n, kind in zip(range(CLIENTS), ("pump", "valve", "meter") * CLIENTS)]
        for n, client in enumerate(self.clients):
            for topic in ("plant/all/command", f"plant/{n % 12}/command", f"clock/{n % 5}")[:n % 11 % 4]:
                client.subscribe(topic, 1)
        for name, topic, count in (("archive", "plant/+/alarm", 420), ("billing", "plant/+/meter/#", 96)):
            away = Client(tcp, name, expiry=604_800)
            away.subscribe(topic, 1)
            away.close()
            for n in range(count):
                self.clients[n].publish(topic.replace("+", str(n % 12)).replace("#", "energy"), b"{}", qos=1)
        self.slow = Client(tcp, "display-hall-3")
        self.slow.subscribe("plant/#")
        self.slow.subscribe("bench/#")
        for n in range(12):
            self.clients[n].publish(f"plant/{n}/shift", b'{"shift": "early"}', qos=1, retain=True)
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        begun = time.monotonic()
        n = 0
        while not self.stopping.wait(0.01):
            n += 1
            plant, wave = n % 12, math.sin((time.monotonic() - begun) / 60 + n % 12)
            state = {"temperature": round(58 + 6 * wave, 1), "pressure": round(4.2 + 0.3 * wave, 2), "running": n % 5 > 0}
            self.clients[n % 600].publish(f"plant/{plant}/pump/{n % 4}/state", json.dumps(state).encode())
            self.clients[n % 600].publish(f"plant/{plant}/meter/energy", b"%.1f" % (n / 10))

    def stop(self):
        self.stopping.set()
        self.thread.join()


def fleet(broker):
    """Devices over QUIC that sleep, wake with early data, and change addresses."""
    command = [str(broker.binary()), "bench", "--pattern", "fleet", "--devices", "400", "--subscribing", "10",
               "--sleeping", "60", "--moving", "40", "--qos", "1", "--rate", "900", "--duration", str(SECONDS + 120),
               "--url", f"quic://127.0.0.1:{broker.ports['quic']}", "--ca", str(broker.ca), "--quiet"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def pictures(page, folder, broker):
    tab = page.tab

    def take(name):
        # The folder is one of the service, as on most machines.
        tab.js(f"""{{
            const all = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            for (let node; (node = all.nextNode());) node.data = node.data.replace('{folder}', '/var/lib/dunlin');
        }}""")
        tab.js("document.activeElement.blur()")
        tab.picture(folder / f"{name}.png")

    page.view("now")
    tab.wait("document.querySelectorAll('.tile b')[1]?.textContent.endsWith('/s')")
    tab.wait("document.querySelectorAll('.chart svg .line').length > 20")
    tab.look(DESK[0], 1010)
    take("now")
    tab.look(DESK[0], 660, dark=True)
    tab.js("[...document.querySelectorAll('h2')].at(-1).scrollIntoView(); window.scrollBy(0, -66)")
    take("quic")
    tab.look(*PHONE)
    tab.js("window.scrollTo(0, 0)")
    take("phone")
    tab.look(DESK[0], 760)
    page.view("clients")
    page.fill(".bar input", "plant-0")
    page.click(".bar button", "Search")
    page.shows("2,000 clients", ".view")
    take("clients")
    page.fill(".bar input", "display")
    page.click(".bar button", "Search")
    page.shows("1 client", ".view")
    page.click("tbody .link")
    page.shows("bench/#", "dialog")
    take("client")
    tab.key("Escape")
    tab.look(DESK[0], 760, dark=True)
    page.view("topics")
    tab.wait("document.querySelector('details input').value !== ''")
    page.fill(".view form input", "plant/#")
    page.click(".view form button", "Watch")
    for name in ("plant", "7", "pump", "3", "state"):
        found = f"[...document.querySelectorAll('.row')].findLast((it) => it.querySelector('.name').textContent === '{name}')"
        tab.wait(f"{found} !== undefined")
        tab.js(f"{found}.getAttribute('aria-expanded') === 'true' ? 0 : {found}.click()")
    page.shows("temperature", ".selected .payload")
    time.sleep(4)
    tab.js("document.querySelector('.tree').scrollTop = 0")
    take("topics")
    tab.look(DESK[0], 1010)
    broker.config.write_text(broker.config.read_text().replace("max_inflight = 512", "max_inflight = 256"))
    page.view("broker")
    page.shows("limits.max_inflight", ".view")
    take("broker")


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    browser = chromium.Browser(chromium.find())
    with tempfile.TemporaryDirectory(prefix="page-book-") as folder:
        broker = Paged(Path(folder))
        broker.start()
        load = fleet(broker)
        plant = Plant(broker)
        try:
            time.sleep(SECONDS)
            page = Page(browser, broker)
            page.enter(broker.token("admin", "anna"))
            page.tab.wait("document.querySelector('header.top') !== null")
            pictures(page, Path(folder), broker)
        finally:
            plant.stop()
            load.terminate()
            load.wait()
            broker.stop()
            browser.close()
        for made in sorted(Path(folder).glob("*.png")):
            kept = FOLDER / made.name
            if shutil.which("pngquant"):
                subprocess.run(["pngquant", "--force", "--strip", "--quality", "40-90", "--speed", "1", "--nofs",
                                "--output", str(kept), "64", str(made)], check=True)
            else:
                shutil.copy(made, kept)
            size = kept.stat().st_size
            print(f"{kept.relative_to(ROOT)}: {size:,} bytes")
            assert size <= BYTES_MAX, f"{kept} is larger than {BYTES_MAX:,} bytes"


if __name__ == "__main__":
    main()
