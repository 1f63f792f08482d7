"""Asks a Prometheus each query of the Grafana dashboard: all must have series.

    python3 scripts/metrics/dashboard.py http://127.0.0.1:9090 FILE
"""

import json
import sys
import time
import urllib.parse
import urllib.request

# Longest wait until all have some: rates need two scrapes.
SECONDS_MAX = 40
# What Grafana puts in.
VARIABLES = {"$__rate_interval": "10s", "$instance": ".*"}


def queries(dashboard: dict) -> list[tuple[str, str]]:
    found = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            found.append((panel["title"], query))
    return found


def numbers(prometheus: str, query: str) -> list[float]:
    """Values of the series, without those that are not a number."""
    url = f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=10) as answer:
        result = json.load(answer)["data"]["result"]
    values = [float(series["value"][1]) for series in result]
    return [value for value in values if value == value]


def main() -> int:
    prometheus, path = sys.argv[1:]
    with open(path) as file:
        asked = queries(json.load(file))
    missing, deadline = asked, time.monotonic() + SECONDS_MAX
    while missing and time.monotonic() < deadline:
        missing = [it for it in missing if not numbers(prometheus, it[1])]
        if missing:
            time.sleep(0.3)
    for title, query in missing:
        print(f"dashboard: nothing for {title!r}: {query}")
    print(f"{len(asked) - len(missing)} of {len(asked)} queries have series")
    return 1 if missing or not asked else 0


if __name__ == "__main__":
    sys.exit(main())
