"""Has tokens issued and validated as long as /tmp/password is there. Standard input has the administrator's password."""

import json
import os
import sys
import time

import requests

KEYSTONE = "http://one-keystone:5000/v3/auth/tokens"
user = {"name": "admin", "domain": {"id": "default"}, "password": sys.stdin.readline().strip()}
scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
served, failed, first = 0, 0, ""
while os.path.exists("/tmp/password"):
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
    time.sleep(0.05)
print(json.dumps({"served": served, "failed": failed, "first": first}))
