"""A worker for Quell in plain Python: no package is needed.

    quell serve --handler pull
    python3 examples/pull_worker.py http://127.0.0.1:7717 hello

QUELL_TOKEN is sent if it is set. While handle() runs, a thread keeps the lease; what handle() returns is the run's result,
and what it raises puts the run back for another try.
"""

import json, os, sys, threading, urllib.error, urllib.request

url, queue = sys.argv[1], sys.argv[2]
headers = {"Content-Type": "application/json"}
if os.environ.get("QUELL_TOKEN"):
    headers["Authorization"] = "Bearer " + os.environ["QUELL_TOKEN"]


def call(path, **body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=90) as answer:
        return json.load(answer)


def handle(run):
    print(run["key"], [event["payload"] for event in run["events"]], flush=True)
    return {"events": len(run["events"])}


def keep(run, done):
    while not done.wait(10):  # The lease is 30 s: one extension may get lost.
        call(f"/v1/claims/{run['run_id']}/extend", token=run["token"])


while True:
    try:
        claimed = call("/v1/claims", queues=[queue], worker="python", wait_ms=30000, lease_ms=30000)
        for run in claimed["claims"]:
            done = threading.Event()
            threading.Thread(target=keep, args=(run, done), daemon=True).start()
            try:
                end = {"outcome": "succeeded", "result": handle(run)}
            except Exception as error:
                end = {"outcome": "retry", "error": repr(error)}
            done.set()
            call(f"/v1/claims/{run['run_id']}/settle", token=run["token"], **end)
    except (urllib.error.URLError, OSError) as error:
        print("again in a second:", error, file=sys.stderr)
        threading.Event().wait(1)
