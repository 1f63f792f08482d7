"""Opens the broker's page in Chromium and uses it: each view, roles, names that are
markup, a wrong token, a restart of the broker, the width of a phone. Nothing may be asked
of another machine, and the page may complain of nothing.
"""

import argparse
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import chromium
import results
from brokers import ROOT, Dunlin, free_port

SHORT_CLIENTS = 300
CLIENTS = 10_000

VIEWS = ("now", "clients", "queues", "topics", "retained", "bans", "broker")

# What a browser would run if it took a name for markup.
HOSTILE = (
    '<img src=x onerror="window.hacked=1">',
    "\"><script>window.hacked=1</script>",
    "'};window.hacked=1;//",
    "plant/../../..%2f?#&",
    "reversed \u202egnp.exe",
    "javascript:window.hacked=1",
)

# What must break somewhere, or be cut off.
LONG = "x" * 400

# How many messages come of one PUBLISH in pieces at each place, and how many of random
# bytes are errors.
DECODER = """
import('./page/mqtt.js').then(({ Decoder, PACKET_BYTES_MAX }) => {
  const publish = Uint8Array.of(0x31, 10, 0, 3, 97, 47, 98, 2, 1, 1, 104, 105);
  let cut = 0;
  for (let at = 0; at < publish.length; at += 1) {
    const decoder = new Decoder();
    const got = [...decoder.feed(publish.slice(0, at)), ...decoder.feed(publish.slice(at))];
    if (got.length === 1 && got[0].topic === 'a/b' && got[0].retain && got[0].payload.length === 2) cut += 1;
  }
  const large = Uint8Array.of(0x30, 0xff, 0xff, 0x7f);
  let wrong = 0;
  try { new Decoder().feed(large); wrong = -10_000; } catch { wrong = 0; }
  for (let n = 0; n < 5_000; n += 1) {
    const bytes = crypto.getRandomValues(new Uint8Array(n % 60));
    bytes[0] = [0x20, 0x30, 0x32, 0x90, 0xd0, 0xe0, bytes[0]][n % 7];
    bytes[1] &= 0x3f;
    try { new Decoder().feed(bytes); } catch (error) { if (error.message) wrong += 1; }
  }
  return [cut, wrong];
})
"""

# Time for what a person would wait for.
SECONDS_MAX = chromium.SECONDS_MAX

DESK = (1280, 900)
PHONE = (360, 780)


def text(value):
    data = value.encode()
    return len(data).to_bytes(2, "big") + data


def packet(first, body):
    size, left = b"", len(body)
    while True:
        left, digit = divmod(left, 128)
        size += bytes([digit | (0x80 if left else 0)])
        if not left:
            return bytes([first]) + size + body


class Client:
    """A client of MQTT 5.0 on a socket."""

    def __init__(self, port, client_id, expiry=0, user=None):
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
        properties = b"\x11" + expiry.to_bytes(4, "big")
        self.send(0x10, text("MQTT") + bytes([5, 0xC2 if user else 2, 0, 0, len(properties)]) + properties + text(client_id)
                  + b"".join(map(text, user or ())))
        first, body = self.receive()
        assert first == 0x20 and body[1] == 0, f"{client_id!r} is refused: {body!r}"

    def send(self, first, body):
        self.socket.sendall(packet(first, body))

    def take(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise ConnectionError("closed")
            data += part
        return data

    def receive(self):
        first, size, shift = self.take(1)[0], 0, 0
        while True:
            digit = self.take(1)[0]
            size |= (digit & 127) << shift
            shift += 7
            if digit < 128:
                return first, self.take(size)

    def subscribe(self, topic, qos=0):
        self.send(0x82, b"\0\1\0" + text(topic) + bytes([qos]))
        assert self.receive()[0] == 0x90

    def publish(self, topic, payload, qos=0, retain=False):
        number = b"\0\7" if qos else b""
        self.send(0x30 | qos << 1 | retain, text(topic) + number + b"\0" + payload)
        if qos:
            assert self.receive()[0] == 0x40

    def close(self):
        self.socket.close()


class Paged(Dunlin):
    """Our broker with a page."""

    transports = ("tcp", "ws", "quic")

    def __init__(self, folder):
        super().__init__(folder)
        self.ports["http"] = free_port()
        self.page = f"http://127.0.0.1:{self.ports['http']}/"

    def command(self):
        http = self.ports.pop("http")
        command = super().command()
        self.ports["http"] = http
        self.config = self.folder / "dunlin.toml"
        # After the listeners, and beside the defaults: a key that is not one.
        more = f'\n[control.http]\naddress = "127.0.0.1:{http}"\n[limits]\nmax_inflight = 512\n'
        self.config.write_text(self.config.read_text() + more)
        return command

    def ctl(self, *words):
        command = [str(self.binary()), "ctl", "-c", str(self.config), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, cwd=self.folder)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def token(self, role, name=None):
        words = self.ctl("token", "add", name or f"test-{role}", "--role", role).split()
        return next(word for word in words if word.startswith("dunlin_"))


class Page:
    """The page in a tab."""

    def __init__(self, browser, broker):
        self.tab, self.broker = browser.tab(), broker
        self.tab.look(*DESK)
        self.tab.open(broker.page)

    def enter(self, token):
        self.tab.wait("document.querySelector('.login input') !== null")
        self.tab.js(f"document.querySelector('.login input').value = {token!r}")
        self.tab.js("document.querySelector('.login form').requestSubmit()")

    def view(self, name):
        self.tab.js(f"location.hash = '#/{name}'")
        self.tab.wait(f"document.querySelector('.view')?.dataset.view === '{name.split('?')[0]}'")

    def click(self, selector, containing=""):
        """Clicks the first element that has a text; the last dialogue comes first."""
        found = (f"[...document.querySelectorAll({selector!r})].filter((it) => it.textContent.includes({containing!r})"
                 " && !it.disabled)")
        self.tab.wait(f"{found}.length > 0")
        self.tab.js(f"({found}.find((it) => it.closest('dialog:last-of-type')) ?? {found}[0]).click()")

    def fill(self, selector, value):
        self.tab.wait(f"document.querySelector({selector!r}) !== null")
        self.tab.js(f"document.querySelector({selector!r}).value = {value!r}")

    def shows(self, words, within="body"):
        self.tab.wait(f"document.querySelector({within!r})?.innerText.includes({words!r})")

    def hides(self, words, within="body"):
        self.tab.wait(f"!document.querySelector({within!r})?.innerText.includes({words!r})")

    def toast(self, words):
        self.shows(words, "#toasts")
        self.tab.js("document.getElementById('toasts').replaceChildren()")

    def expect(self, expression, wanted):
        got = self.tab.js(expression)
        assert got == wanted, f"{expression}: {got!r} instead of {wanted!r}"

    def clean(self, *allowed):
        """No complaints but those that are expected, and no request to elsewhere."""
        wrong = [it for it in self.tab.errors if not any(part in it for part in allowed)]
        assert not wrong, f"complaints: {wrong}"
        self.tab.errors.clear()
        own = (self.broker.page, f"ws://127.0.0.1:{self.broker.ports['ws']}/", "about:", "data:")
        other = [it for it in self.tab.requests if not it.startswith(own)]
        assert not other, f"asked elsewhere: {other}"
        self.expect("window.hacked === undefined", True)


class Trial:
    """The broker with its clients, and the steps."""

    def __init__(self, browser, folder, clients):
        self.browser = browser
        self.broker = Paged(folder)
        self.broker.start()
        self.tokens = {role: self.broker.token(role) for role in ("read", "operate", "admin")}
        self.count = clients
        self.clients = []

    def connect(self):
        """Silent clients, hostile ones, one that is away, and one that does not read."""
        tcp = self.broker.ports["tcp"]
        self.clients = [Client(tcp, f"plant-{n % 40:02}/sensor-{n:05}") for n in range(self.count)]
        self.hostile = {name: Client(tcp, name) for name in HOSTILE}
        for name, client in self.hostile.items():
            client.subscribe(f"{name.replace('#', '').replace('+', '')}/#")
        self.clients.append(Client(tcp, LONG))
        away = Client(tcp, "away", expiry=3600)
        away.subscribe("orders/#", 1)
        away.close()
        sender = Client(tcp, "sender")
        for n in range(25):
            sender.publish("orders/new", b"%d" % n, qos=1)
        for number, name in enumerate(HOSTILE):
            topic = f"hostile/{number}/{name.replace('#', '').replace('+', '')}"
            sender.publish(topic, name.encode(), qos=1, retain=True)
        sender.publish("plant/1/state", b'{"temperature": 21.5, "unit": "C"}', qos=1, retain=True)
        sender.publish("plant/1/image", bytes(range(256)), qos=1, retain=True)
        sender.publish(f"long/{LONG}", LONG.encode(), qos=1, retain=True)
        self.sender = sender
        self.broker.ctl("queue", "create", "orders", "--topic", "bound/#", "--dead-letter", "orders-late")
        self.broker.ctl("queue", "create", "orders-late")
        for n in range(30):
            payload = b'{"order": %d, "name": "%s"}' % (n, HOSTILE[n % len(HOSTILE)].encode())
            sender.publish(f"bound/{n}", payload, qos=1)

    def page(self, role):
        page = Page(self.browser, self.broker)
        page.enter(self.tokens[role])
        page.tab.wait("document.querySelector('header.top') !== null")
        return page

    # ── Steps ─────────────────────────────────────────────────────────────────────

    def wrong_token(self):
        page = Page(self.browser, self.broker)
        page.enter("dunlin_wrong")
        page.shows("does not know this token", ".login")
        page.expect("sessionStorage.length", 0)
        page.expect("document.querySelector('header.top')", None)
        page.clean("401")
        page.enter(self.tokens["read"])
        page.tab.wait("document.querySelector('header.top') !== null")
        # It stays in the tab when the page is loaded again, and goes when asked to.
        page.tab.open(self.broker.page)
        page.tab.wait("document.querySelector('header.top') !== null")
        page.click("button", "Log out")
        page.tab.wait("document.querySelector('.login') !== null")
        page.expect("sessionStorage.length", 0)
        page.clean()

    def now(self):
        page = self.page("read")
        page.view("now")
        least = self.count + len(HOSTILE) + 2
        tile = "Number(document.querySelector('.tile b')?.textContent.replace(/,/g, ''))"
        page.tab.wait(f"{tile} >= {least}")
        # Two looks make a rate.
        page.tab.wait("document.querySelectorAll('.tile b')[1].textContent.endsWith('/s')")
        # A chart has its first line with the first sample, ten seconds after the start.
        page.tab.wait("document.querySelectorAll('.chart svg .line, .chart svg .fill').length > 4")
        page.expect("document.querySelectorAll('.chart').length >= 18", True)
        page.shows("TCP", ".charts")
        page.shows("MQTT 5.0", ".charts")
        page.click(".segments button", "10 min")
        page.expect("document.querySelector('.segments [aria-pressed=true]').textContent", "10 min")
        page.clean()

    def clients_view(self):
        page = self.page("operate")
        page.view("clients")
        total = self.count + len(HOSTILE) + 2
        page.shows(f"{total:,} clients", ".view")
        page.expect("document.querySelectorAll('tbody tr').length", min(50, total))
        first = "document.querySelector('tbody .link').textContent"
        for name in HOSTILE:
            shown = name.replace("\u202e", "\\u202e")
            page.tab.js("document.querySelector('.bar select').value = 'prefix'")
            page.fill(".bar input", name)
            page.click(".bar button", "Search")
            page.shows("1 client", ".view")
            page.tab.wait(f"{first} === {shown!r}")
            page.expect("document.querySelectorAll('tbody img, tbody script').length", 0)
        page.fill(".bar input", "plant-0")
        page.click(".bar button", "Search")
        page.tab.wait(f"{first} === 'plant-00/sensor-00000'")
        page.click(".sort", "Client")
        page.tab.wait(f"{first} !== 'plant-00/sensor-00000'")
        page.tab.wait("document.activeElement.textContent.startsWith('Client')")
        page.click(".pager button", "Next")
        page.shows("51–", ".pager")
        page.clean()
        self.disconnect(page)

    def disconnect(self, page):
        name = HOSTILE[0]
        page.fill(".bar input", name)
        page.click(".bar button", "Search")
        page.shows("1 client", ".view")
        page.click("tbody .link")
        page.shows("MQTT 5.0", "dialog")
        page.shows(f"{name}/#", "dialog .table")
        page.click("dialog button", "Disconnect")
        page.fill("dialog:last-of-type form input", "out of order")
        page.click("dialog:last-of-type form button", "Disconnect")
        first, body = self.hostile[name].receive()
        assert (first, body[0]) == (0xE0, 0x98) and b"out of order" in body, (first, body)
        page.toast("done")
        page.shows("0 clients", ".view")
        page.clean()

    def queues(self):
        page = self.page("operate")
        page.view("queues")
        page.shows("away", ".view")
        row = "document.querySelector('.view > .table tbody tr')"
        page.expect(f"{row}.querySelector('.link').textContent", "away")
        page.expect(f"{row}.innerText.includes('25')", True)
        page.click(".view > .table tbody button", "Delete")
        page.click("dialog:last-of-type form button", "Delete session")
        page.toast("done")
        page.shows("No messages wait for any session.", ".view")
        page.clean()
        self.amqp_queues(page)

    def amqp_queues(self, page):
        """Queues of AMQP: seen, moved, emptied, deleted."""
        page.shows("2 queues", ".amqp")
        first = "document.querySelector('.amqp tbody .link').textContent"
        page.expect(first, "orders")
        page.click(".amqp .link", "orders")
        page.shows("bound/0", "dialog")
        page.shows("30 of 100,000", "dialog")
        page.shows("The first 20 messages", "dialog")
        page.expect("document.querySelectorAll('dialog img, dialog script').length", 0)
        page.click("dialog button", "Move")
        page.fill("dialog:last-of-type form input", "orders-late")
        page.click("dialog:last-of-type form button", "Move")
        page.toast("30 messages moved")
        page.shows("0 of 100,000", "dialog")
        page.click("dialog .shut")
        page.click(".amqp .link", "orders-late")
        page.shows("30 of 100,000", "dialog")
        page.click("dialog button", "Purge")
        page.click("dialog:last-of-type form button", "Purge")
        page.toast("30 messages removed")
        page.shows("0 of 100,000", "dialog")
        page.click("dialog button", "Delete queue")
        page.click("dialog:last-of-type form button", "Delete queue")
        page.toast("Deleted")
        page.shows("1 queue", ".amqp")
        page.clean()

    def topics(self):
        page = self.page("operate")
        page.view("topics")
        page.tab.wait(f"document.querySelector('details input').value.includes('{self.broker.ports['ws']}')")
        # Anonymous clients come to these listeners; the page's user is one that exists.
        page.tab.js("document.querySelector('details').open = true")
        page.click(".view form button", "Watch")
        # Retained messages come first, of hostile names too.
        page.shows("hostile", ".tree")
        self.open_topic(page, "hostile")
        self.open_topic(page, "0")
        page.shows("<img src=x onerror=", ".tree")
        page.expect("document.querySelectorAll('.tree img, .tree script').length", 0)
        self.open_topic(page, "plant")
        self.open_topic(page, "1")
        self.sender.publish("plant/1/state", b'{"temperature": 22.5}')
        page.shows("22.5", ".tree")
        self.open_topic(page, "state")
        page.shows('"temperature": 22.5', ".selected .payload")
        self.sender.publish("plant/1/state", b"<b>bold</b>")
        page.shows("<b>bold</b>", ".selected .payload")
        self.open_topic(page, "image")
        page.shows("00 01 02 03", ".selected .payload")
        page.click("button", "Who gets it?")
        page.shows("dunlin-page-", "dialog")
        page.tab.key("Escape")
        page.tab.wait("document.querySelector('dialog') === null")
        receiver = Client(self.broker.ports["tcp"], "receiver")
        receiver.subscribe("from/page")
        page.fill(".stack form input", "from/page")
        page.fill("textarea", "grüße <3")
        page.click("form button", "Publish")
        first, body = receiver.receive()
        assert first >> 4 == 3 and body.endswith("grüße <3".encode()), body
        page.toast("Published.")
        page.shows("from", ".tree")
        receiver.close()
        self.many_topics(page)
        page.click(".view form button", "Stop")
        page.shows("Stopped.", ".view")
        page.clean()

    @staticmethod
    def open_topic(page, name):
        found = f"[...document.querySelectorAll('.row')].findLast((it) => it.querySelector('.name').textContent === '{name}')"
        page.tab.wait(f"{found} !== undefined")
        # A click opens or closes what is below, too.
        page.tab.js(f"{found}.click()")
        page.tab.js(f"{found}.getAttribute('aria-expanded') === 'false' && {found}.click()")

    def many_topics(self, page):
        """More topics than are kept: the others are counted, and the page stays alive."""
        for n in range(6_000):
            self.sender.publish(f"many/{n}", b"x")
        page.shows("beyond the first 5,000", ".view")
        page.expect("document.querySelectorAll('.row').length <= 1000", True)

    def retained(self):
        page = self.page("operate")
        page.view("retained")
        page.fill(".bar input", "plant/#")
        page.click(".bar button", "List")
        page.shows("2 messages", ".view")
        page.click("tbody .link", "state")
        page.shows('"temperature": 21.5', "dialog .payload")
        page.tab.key("Escape")
        page.tab.wait("document.querySelector('dialog') === null")
        page.fill(".bar input", "hostile/#")
        page.click(".bar button", "List")
        page.shows(f"{len(HOSTILE)} messages", ".view")
        page.expect("document.querySelectorAll('tbody img, tbody script').length", 0)
        page.click("tbody .link", "onerror")
        page.shows("<img src=x onerror=", "dialog .payload")
        page.click("dialog button", "Clear")
        page.click("dialog:last-of-type form button", "Clear")
        page.toast("1 retained message cleared")
        page.shows(f"{len(HOSTILE) - 1} messages", ".view")
        page.clean()

    def bans(self):
        page = self.page("operate")
        page.view("bans")
        page.fill("form.bar .field:nth-child(2) input", "sender-2")
        page.fill("form.bar .field:nth-child(4) input", "<b>why</b>")
        page.click("form.bar button", "Ban")
        page.click("dialog form button", "Ban")
        page.toast("Banned; 0 connections ended.")
        page.shows("<b>why</b>", "tbody")
        try:
            Client(self.broker.ports["tcp"], "sender-2")
            raise AssertionError("a client that is banned came in")
        except AssertionError as refused:
            assert "is refused" in str(refused), refused
        page.click("tbody button", "End")
        page.click("dialog form button", "End it")
        page.toast("The ban is over.")
        page.shows("There are no bans.", ".view")
        Client(self.broker.ports["tcp"], "sender-2").close()
        page.view("bans?client_id=%3Cx%3E")
        page.expect("document.querySelector('form.bar .field:nth-child(2) input').value", "<x>")
        page.clean()

    def broker_view(self):
        page = self.page("admin")
        page.view("broker")
        page.shows(f"127.0.0.1:{self.broker.ports['ws']}/mqtt", ".view")
        page.shows("CN=", ".view")
        page.shows("limits.max_inflight", ".view")
        page.shows("512", ".view")
        # The file changes under the broker: what it says now stands beside what runs.
        config = self.broker.config
        config.write_text(config.read_text().replace("max_inflight = 512", "max_inflight = 256"))
        page.view("now")
        page.view("broker")
        page.shows("1 key differs from the file", ".view")
        page.shows("256", ".view")
        page.click("button", "Reload")
        page.click("dialog form button", "Reload")
        page.toast("limits.max_inflight")
        page.tab.js("document.querySelector('[aria-label=Level]').value = 'debug'")
        page.click("button", "Change")
        page.toast("The log writes debug")
        page.fill(".view form .field:nth-child(3) input", "plant/1/state")
        page.click(".view form button", "Ask")
        page.shows("publish: yes", ".rights")
        page.clean()

    def roles(self):
        page = self.page("read")
        page.view("clients")
        page.click("tbody .link")
        page.shows("MQTT", "dialog .facts")
        page.expect("[...document.querySelectorAll('dialog .actions button')].every((it) => it.disabled && it.title.includes('operate'))", True)
        page.tab.key("Escape")
        for view, role in (("retained", "operate"), ("bans", "operate"), ("topics", "operate"), ("broker", "admin")):
            page.view(view)
            page.tab.wait(f"document.querySelectorAll('.view button:disabled[title*={role}]').length > 0")
        page.clean()
        page = self.page("operate")
        page.view("broker")
        page.tab.wait("document.querySelectorAll('.view button:disabled[title*=admin]').length >= 3")
        page.clean()

    def keyboard(self):
        page = self.page("read")
        page.view("clients")
        page.tab.wait("document.querySelectorAll('tbody .link').length > 0")
        page.tab.js("document.querySelector('.skip').focus()")
        seen = []
        for _ in range(40):
            page.tab.key("Tab")
            seen.append(page.tab.js("document.activeElement.textContent.trim()"))
            if page.tab.js("document.activeElement.matches('tbody .link')"):
                break
        for name in ("Now", "Queues", "Broker", "Search"):
            assert name in seen, f"{name!r} is not reached: {seen}"
        page.expect("document.activeElement.matches('tbody .link')", True)
        page.tab.key("Enter", "\r")
        page.shows("MQTT", "dialog .facts")
        page.tab.key("Escape")
        page.tab.wait("document.querySelector('dialog') === null")
        page.expect("document.activeElement.matches('tbody .link')", True)
        page.clean()

    def decoder(self):
        """Packets in pieces, and bytes that are none: an error, and no loop."""
        page = self.page("read")
        cut, wrong = page.tab.js(DECODER)
        assert cut == 12, f"{cut} messages of 12"
        assert wrong > 1_000, f"only {wrong} of 5,000 are errors"
        page.clean()

    def restart(self):
        page = self.page("read")
        # This one asks for nothing by itself.
        for view in ("retained", "now"):
            page.view(view)
            page.tab.wait("document.querySelector('.view').innerText.length > 20")
            self.broker.stop()
            page.tab.wait("!document.getElementById('banner').hidden")
            page.shows("does not answer", "#banner")
            page.tab.js("document.querySelector('#banner button').click()")
            page.shows("does not answer", "#banner")
            self.broker.start()
            page.tab.wait("document.getElementById('banner').hidden")
            page.expect("document.querySelector('#banner button')", None)
            page.tab.wait("document.querySelector('.view').innerText.length > 20")
        page.tab.wait("document.querySelectorAll('.tile').length > 0")
        page.clean("ERR_CONNECTION", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE", "ERR_SOCKET", "503")
        # A token that is taken back ends with the login.
        self.broker.ctl("token", "remove", "test-read")
        page.shows("does not know this token any more", ".login")
        page.clean("401")

    def looks(self, pictures):
        """Each view in light, dark and on a phone, where nothing is cut off."""
        page = self.page("admin")
        for view in VIEWS:
            page.view(view)
            # All that is listed is there: what is wide could be in it.
            page.tab.wait("[...document.querySelectorAll('.table')].every((it) => it.childElementCount > 0)"
                          " && document.querySelector('.view').innerText.length > 20")
            for look, size, dark in (("light", DESK, False), ("dark", DESK, True), ("phone", PHONE, False), ("phone-dark", PHONE, True)):
                page.tab.look(*size, dark=dark)
                width = page.tab.js("document.documentElement.scrollWidth")
                assert width <= size[0], f"{view} is {width} wide on {size[0]}"
                page.tab.picture(pictures / f"{view}-{look}.png")
        page.tab.look(*DESK)
        page.clean()

    def end(self):
        for client in [*self.clients, *getattr(self, "hostile", {}).values()]:
            client.close()
        self.broker.stop()


def run(trial, pictures):
    """Each step by its name; after one that fails the next ones are still tried."""
    yield "clients connect", trial.connect
    yield "a wrong token", trial.wrong_token
    yield "now", trial.now
    yield "clients", trial.clients_view
    yield "queues", trial.queues
    yield "topics", trial.topics
    yield "bans", trial.bans
    yield "broker", trial.broker_view
    yield "roles", trial.roles
    yield "keyboard", trial.keyboard
    yield "bytes that are no MQTT", trial.decoder
    yield "light, dark, phone", lambda: trial.looks(pictures)
    yield "retained", trial.retained
    yield "restart, and a token taken back", trial.restart


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help=f"{SHORT_CLIENTS} clients in place of {CLIENTS}")
    parser.add_argument("--pictures", type=Path, default=ROOT / "target/page", help="folder of the pictures")
    arguments = parser.parse_args()
    count: Counter[str] = Counter()
    failures: list[str] = []
    if Paged.binary() is None or chromium.find() is None:
        print(f"page: skipped: no {'chromium' if Paged.binary() else 'dunlin'}")
        count["skip"] += 1
        return results.conclude(count, failures)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    log = ""
    browser = chromium.Browser(chromium.find())
    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        trial = None
        try:
            trial = Trial(browser, Path(folder), SHORT_CLIENTS if arguments.short else CLIENTS)
            for name, step in run(trial, arguments.pictures):
                begun = time.monotonic()
                try:
                    step()
                    count["ok"] += 1
                    print(f"ok    {name}, {time.monotonic() - begun:.1f} s", flush=True)
                except (AssertionError, chromium.Failed, OSError) as error:
                    count["FAIL"] += 1
                    failures.append(f"{name}: {error}")
                    log = trial.broker.tail()
                    print(f"FAIL  {name}", flush=True)
        finally:
            if trial:
                trial.end()
            browser.close()
    return results.conclude(count, failures, log)


if __name__ == "__main__":
    sys.exit(main())
