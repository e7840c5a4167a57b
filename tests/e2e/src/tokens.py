"""Has tokens issued and validated until standard input ends, whose first line is the administrator's password."""

import json
import sys
import threading

import requests

KEYSTONE = "http://one-keystone:5000/v3/auth/tokens"
user = {"name": "admin", "domain": {"id": "default"}, "password": sys.stdin.readline().strip()}
scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
served, failed, first = 0, 0, ""
while not ended.is_set():
    try:
        issued = requests.post(KEYSTONE, json=body, timeout=30)
        issued.raise_for_status()
        token = issued.headers["X-Subject-Token"]
        headers = {"X-Auth-Token": token, "X-Subject-Token": token}
        requests.get(KEYSTONE, headers=headers, timeout=30).raise_for_status()
        served += 1
    except requests.RequestException as error:
        failed += 1
        first = first or type(error).__name__ + ": " + str(error)
    ended.wait(0.05)
print(json.dumps({"served": served, "failed": failed, "first": first}))
