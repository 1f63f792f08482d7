"""Validates the OpenAPI document of a running broker, and asks every resource in it with
a client that is made from the document alone; each answer is held against its schema.
"""

import http.client
import json
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

import openapi_spec_validator
from jsonschema import Draft202012Validator

# Longest that the broker may take to start, or a request.
SECONDS_MAX = 30

CONFIG = """
shards = 2
data_dir = "data"
[auth]
anonymous = "always"
password_file = "users"
[control.http]
address = "127.0.0.1:0"
tls = { cert = "pki/server.pem", key = "pki/server.key" }
[[listener]]
transport = "tcp"
address = "127.0.0.1:0"
[[listener]]
transport = "wss"
address = "127.0.0.1:0"
"""

# A bridge to a port where nothing answers.
BRIDGE = {
    "name": "api-bridge",
    "url": "mqtt://127.0.0.1:9",
    "user": "ann",
    "topic": [{"pattern": "b/#", "direction": "out"}],
}

# What is sent, by operation; all others are asked as they are.
ASKED = {
    "get-clients": {"query": {"prefix": "a", "limit": 10, "protocol": "mqtt"}},
    "get-clients-id": {"path": "api/client"},
    "delete-clients-id": {"path": "api/client", "query": {"why": "tests"}},
    "get-sessions": {"query": {"connected": "true"}},
    "get-sessions-id-subscriptions": {"path": "api/client"},
    "get-sessions-id-rights": {"path": "api/client", "query": {"topic": "t/1"}},
    "get-receivers": {"query": {"topic": "t/1"}},
    "get-retained-topic": {"path": "t/1"},
    "delete-retained": {"query": {"filter": "t/#"}},
    "get-rights": {"query": {"user": "ann", "topic": "t/1"}},
    "post-publish": {"body": {"topic": "t/1", "payload": "x", "retain": True, "qos": 1}},
    "post-bridges": {"body": {"bridge": BRIDGE, "password": "secret"}},
    "put-bridges-name": {"path": "api-bridge", "body": {"bridge": BRIDGE}},
    "get-bridges-name": {"path": "api-bridge"},
    "delete-bridges-name": {"path": "api-bridge", "query": {"waiting": "discard"}},
    "get-queues": {"query": {"limit": 10}},
    "put-queues-name": {"path": "api/queue", "body": {"topics": ["q/#"], "full": "reject"}},
    "get-queues-name": {"path": "api/queue"},
    "patch-queues-name": {"path": "api/queue", "body": {"max_messages": 10}},
    "get-queues-name-messages": {"path": "api/queue", "query": {"limit": 2}},
    "post-queues-name-move": {"path": "api/queue", "body": {"to": "other"}},
    "delete-queues-name-messages": {"path": "api/queue"},
    "delete-queues-name": {"path": "api/queue"},
    "post-bans": {"body": {"whom": {"address": "192.0.2.0/24"}, "seconds": 60}},
    "delete-bans": {"query": {"address": "192.0.2.0/24"}},
    "put-log-level": {"body": {"filter": "warn"}},
    "post-tokens": {"body": {"name": "second", "role": "read"}},
    "delete-tokens-name": {"path": "second"},
    "post-users": {"body": {"name": "bob", "password": "secret"}},
    "put-users-name": {"path": "bob", "body": {"password": "other"}},
    "delete-users-name": {"path": "bob"},
    "post-drain": {"body": {"rate": 1000}},
}

# What must come before what: the client must be there, and draining ends the broker.
FIRST = [
    "post-bridges", "put-queues-name", "post-publish", "get-retained-topic", "post-bans",
    "post-tokens", "post-users",
]
LAST = ["delete-queues-name", "delete-sessions-id", "delete-clients-id", "post-drain"]


class Failed(Exception):
    """Something is not as the document says."""


class Api:
    """A client that is made from the document."""

    def __init__(self, address: str, trusted: Path, token: str) -> None:
        self.address = address
        self.tls = ssl.create_default_context(cafile=str(trusted))
        self.token = token
        self.connection = self.connect()

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.address, context=self.tls, timeout=SECONDS_MAX)

    def certificate(self) -> bytes:
        """What a new connection is served."""
        connection = self.connect()
        connection.connect()
        found = connection.sock.getpeercert(binary_form=True)
        connection.close()
        return found

    def ask(self, method: str, target: str, body=None):
        headers = {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            body = json.dumps(body)
            headers["Content-Type"] = "application/json"
        self.connection.request(method, target, body, headers)
        response = self.connection.getresponse()
        return response.status, response.headers.get_content_type(), response.read()


def expect(condition: bool, why: str) -> None:
    if not condition:
        raise Failed(why)


def schema_check(document: dict, schema: dict, value) -> None:
    """Refuses a value that its schema does not describe, and fields that it does not."""
    whole = {**schema, "components": document["components"]}
    errors = sorted(Draft202012Validator(whole).iter_errors(value), key=str)
    expect(not errors, "; ".join(error.message for error in errors[:3]))
    known = fields_of(document, schema)
    if isinstance(value, dict) and known:
        more = set(value) - known
        expect(not more, f"fields that the document does not have: {more}")


def fields_of(document: dict, schema: dict) -> set:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return set(schema.get("properties", {}))


def targets(path: str, operation: dict, asked: dict) -> str:
    """The target of a request, with every parameter that is required."""
    for parameter in operation["parameters"]:
        name = parameter["name"]
        if parameter["in"] == "path":
            value = urllib.parse.quote(asked.get("path", "gone"), safe="")
            path = path.replace("{" + name + "}", value)
        elif parameter["required"]:
            expect(name in asked.get("query", {}), f"no value for {name}")
        if parameter["in"] == "query" and name in asked.get("query", {}):
            value = str(asked["query"][name]).lower()
            schema = {"true": True, "false": False}.get(value, asked["query"][name])
            Draft202012Validator(parameter["schema"]).validate(schema)
    query = urllib.parse.urlencode(asked.get("query", {}))
    return f"{path}?{query}" if query else path


def ask(api: Api, document: dict, path: str, method: str, operation: dict) -> None:
    asked = ASKED.get(operation["operationId"], {})
    target = targets(path, operation, asked)
    body = asked.get("body")
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        Draft202012Validator(schema).validate(body)
    status, media, data = api.ask(method.upper(), target, body)
    answers = operation["responses"]
    answer = answers.get(str(status), answers["default"])
    if "$ref" in answer:
        answer = document["components"]["responses"][answer["$ref"].rsplit("/", 1)[1]]
    expect(media in answer["content"], f"{status} {media}: {data[:200]!r}")
    schema = answer["content"][media]["schema"]
    if media == "application/jsonl":
        lines = [json.loads(line) for line in data.splitlines()]
        expect(len(lines) >= 2, "a copy of a store has two lines at least")
        return
    schema_check(document, schema, json.loads(data))
    # What was asked for "gone" is not there; everything else is.
    is_gone = "{" in path and "path" not in asked
    expect(status == (404 if is_gone else 200), f"{status}: {data[:200]!r}")


def check_certificate(api: Api, run) -> None:
    """A new certificate is served after a reload, to connections to come."""
    before = api.certificate()
    run("cert", "server", "server", "--dir", "pki", "--san", "localhost", "--force")
    expect(api.certificate() == before, "the old certificate stays until the reload")
    status, _, data = api.ask("POST", "/api/v1/reload")
    expect(status == 200, f"{status}: {data!r}")
    expect(api.certificate() != before, "the new certificate is not served")


def operations(document: dict) -> list:
    found = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    place = {name: at - len(FIRST) for at, name in enumerate(FIRST)}
    place |= {name: at + 1 for at, name in enumerate(LAST)}
    order = {"get": 0, "put": 0, "post": 0, "patch": 0, "delete": 0.5}
    return sorted(found, key=lambda it: place.get(it[2]["operationId"], order[it[1]]))


def start(dunlin: Path, folder: Path):
    run = lambda *args: subprocess.run(
        [dunlin, *args], cwd=folder, check=True, capture_output=True, text=True
    )
    run("cert", "init", "pki")
    run("passwd", "-b", "users", "ann", "secret")
    (folder / "dunlin.toml").write_text(CONFIG)
    log = (folder / "broker.log").open("w")
    broker = subprocess.Popen(
        [dunlin, "broker", "--config", "dunlin.toml"], cwd=folder, stdout=log, stderr=log
    )
    return broker, run


def announced(folder: Path, word: str) -> str:
    """What the broker says of where it is."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        for line in (folder / "broker.log").read_text().splitlines():
            words = line.split()
            if words[:1] == [word] or words[:2] == ["listening", word]:
                return next(it for it in words[1:] if ":" in it)
        time.sleep(0.05)
    raise Failed((folder / "broker.log").read_text())


def check(dunlin: Path, folder: Path, passed: list) -> None:
    broker, run = start(dunlin, folder)
    client = None
    try:
        url = announced(folder, "http")
        token = run("ctl", "-c", "dunlin.toml", "token", "add", "first", "--role", "admin")
        address = url.removeprefix("https://").rstrip("/")
        api = Api(address, folder / "pki" / "ca.pem", token.stdout.strip())
        status, _, data = api.ask("GET", "/api/v1/openapi.json")
        expect(status == 200, f"{status}")
        document = json.loads(data)
        openapi_spec_validator.validate(document)
        passed.append("document")
        check_certificate(api, run)
        passed.append("certificate")
        tcp = announced(folder, "tcp")
        client = subprocess.Popen(
            [dunlin, "sub", "--url", f"mqtt://{tcp}", "-i", "api/client", "-t", "t/#"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + SECONDS_MAX
        while api.ask("GET", "/api/v1/clients/api%2Fclient")[0] != 200:
            expect(time.monotonic() < deadline, "the client does not connect")
            time.sleep(0.05)
        for path, method, operation in operations(document):
            try:
                ask(api, document, path, method, operation)
            except Failed as error:
                raise Failed(f"{method} {path}: {error}") from error
            passed.append(operation["operationId"])
        broker.wait(SECONDS_MAX)
    finally:
        for process in (client, broker):
            if process and process.poll() is None:
                process.kill()
                process.wait()


def main() -> int:
    dunlin, passed = Path(sys.argv[1]).resolve(), []
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(dunlin, Path(folder), passed)
            failed = 0
            print(f"api: the document is valid, and {len(passed) - 2} operations are as it says")
        except Exception as error:  # a failure of any kind is one of the API
            failed = 1
            print(f"api: failed: {type(error).__name__}: {error}")
    print(f"{len(passed)} passed, {failed} failed, 0 skipped")
    return failed


if __name__ == "__main__":
    sys.exit(main())
