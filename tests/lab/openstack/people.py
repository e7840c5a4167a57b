"""Projects, users and the catalogue of a fresh Keystone. The passwords are in the environment."""

import os
import sys

import requests

keystone, magnum = sys.argv[1:]
password = os.environ["OS_BOOTSTRAP_PASSWORD"]
session = requests.Session()


def token():
    user = {"name": "admin", "domain": {"id": "default"}, "password": password}
    scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
    identity = {"methods": ["password"], "password": {"user": user}}
    body = {"auth": {"identity": identity, "scope": scope}}
    answer = session.post(f"{keystone}/auth/tokens", json=body)
    answer.raise_for_status()
    return answer.headers["X-Subject-Token"]


def make(kind, **members):
    answer = session.post(f"{keystone}/{kind}s", json={kind: members})
    answer.raise_for_status()
    return answer.json()[kind]["id"]


session.headers["X-Auth-Token"] = token()
answer = session.get(f"{keystone}/roles")
roles = {role["name"]: role["id"] for role in answer.json()["roles"]}
for project, user, role in (
    ("demo", "ann", "member"),
    ("demo", "bob", "reader"),
    ("other", "eve", "member"),
):
    found = session.get(f"{keystone}/projects", params={"name": project}).json()["projects"]
    place = found[0]["id"] if found else make("project", name=project, domain_id="default")
    person = make("user", name=user, domain_id="default", password=password)
    address = f"{keystone}/projects/{place}/users/{person}/roles/{roles[role]}"
    session.put(address).raise_for_status()
for name, kind, address in (
    ("keystone", "identity", keystone),
    ("magnum", "container-infra", magnum),
):
    service = make("service", name=name, type=kind)
    make("endpoint", service_id=service, interface="public", region_id=None, url=address)
