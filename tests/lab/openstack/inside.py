"""A real Magnum in one process: its API, its conductor and its periodic tasks, with a cloud that only tells what it has.

Keystone is real. Magnum looks up images, flavors and networks before it takes a template, so these are told; nothing is ever made
of them. The queue between API and conductor is in memory and the database a file. The port of the API is the first line printed.
"""

import importlib.metadata

# Up to Magnum 22 its services are green threads, as eventlet makes them; later ones are threads.
GREEN = int(importlib.metadata.version("magnum").partition(".")[0]) < 23
if GREEN:
    import eventlet

    eventlet.monkey_patch()

import json
import os
import sqlite3
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

directory, keystone, kubeconfig = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3]
password = os.environ["OS_BOOTSTRAP_PASSWORD"]

CONFIGURATION = """
[DEFAULT]
transport_url = fake://
host = magnum
log_file = {directory}/magnum.log
[api]
api_paste_config = {directory}/api-paste.ini
[database]
connection = sqlite:///{directory}/magnum.db?timeout=30
[certificates]
cert_manager_type = x509keypair
[cluster_template]
kubernetes_allowed_network_drivers = all
[oslo_concurrency]
lock_path = {directory}
[keystone_authtoken]
{service}
[keystone_auth]
{service}
[trust]
trustee_domain_id = {domain}
trustee_domain_admin_id = {trustee}
trustee_domain_admin_password = {password}
[windlass]
kubeconfig = {kubeconfig}
"""
SERVICE = """
auth_type = password
auth_url = {keystone}
www_authenticate_uri = {keystone}
interface = public
username = admin
password = {password}
project_name = admin
user_domain_id = default
project_domain_id = default
"""
PASTE = """
[pipeline:main]
pipeline = request_id authtoken api_v1
[app:api_v1]
paste.app_factory = magnum.api.app:app_factory
[filter:authtoken]
acl_public_routes = /, /v1
paste.filter_factory = magnum.api.middleware.auth_token:AuthTokenMiddleware.factory
[filter:request_id]
paste.filter_factory = oslo_middleware:RequestId.factory
"""

IMAGE = {"id": "1b8a0b66-8f6f-4a3d-9f2a-6a7d0d0b7c11", "name": "debian", "os_distro": "debian", "status": "active"}
FLAVOR = {"id": "1", "name": "metal", "vcpus": 4, "ram": 8192, "disk": 40, "os-flavor-access:is_public": True}
NETWORK = {"id": "b3f7c3a4-0d0e-4f3e-9a35-6d8f3d6e9f01", "name": "public", "router:external": True, "subnets": []}
TOLD = {
    "/image/v2/images": {"images": [IMAGE]},
    "/image/v2/schemas/image": {"name": "image", "properties": {}, "additionalProperties": {"type": "string"}},
    "/compute/v2.1/flavors/detail": {"flavors": [FLAVOR]},
    "/compute/v2.1/flavors": {"flavors": [FLAVOR]},
    "/network/v2.0/networks": {"networks": [NETWORK]},
    "/network/v2.0/subnets": {"subnets": []},
}


def version(identity, address, **more):
    link = {"rel": "self", "href": address}
    return {"id": identity, "status": "CURRENT", "links": [link], **more}


class Cloud(BaseHTTPRequestHandler):
    """Nova, Glance and Neutron, as far as they are asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.partition("?")[0].rstrip("/")
        base = f"http://{self.headers['Host']}"
        told = {
            "/compute": {"versions": [version("v2.1", f"{base}/compute/v2.1/", version="2.96", min_version="2.1")]},
            "/compute/v2.1": {"version": version("v2.1", f"{base}/compute/v2.1/", version="2.96", min_version="2.1")},
            "/image": {"versions": [version("v2.9", f"{base}/image/v2/")]},
            "/image/v2": {"versions": [version("v2.9", f"{base}/image/v2/")]},
            "/network": {"versions": [version("v2.0", f"{base}/network/v2.0/")]},
            "/network/v2.0": {"resources": []},
            f"/image/v2/images/{IMAGE['id']}": IMAGE,
            **TOLD,
        }.get(path)
        body = json.dumps(told if told is not None else {"error": {"message": "not found"}}).encode()
        self.send_response(404 if told is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def accounts(cloud):
    """The catalogue of the cloud, and whom Magnum 22 makes trusts with."""
    session = requests.Session()
    user = {"name": "admin", "domain": {"id": "default"}, "password": password}
    scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
    answer = session.post(f"{keystone}/auth/tokens", json=body)
    answer.raise_for_status()
    session.headers["X-Auth-Token"] = answer.headers["X-Subject-Token"]

    def make(kind, **members):
        made = session.post(f"{keystone}/{kind}s", json={kind: members})
        made.raise_for_status()
        return made.json()[kind]["id"]

    for kind, path in (("compute", "compute/v2.1"), ("image", "image"), ("network", "network")):
        service = make("service", name=kind, type=kind)
        make("endpoint", service_id=service, interface="public", region_id=None, url=f"{cloud}/{path}")
    domain = make("domain", name="magnum")
    trustee = make("user", name="magnum-trustee", domain_id=domain, password=password)
    roles = {role["name"]: role["id"] for role in session.get(f"{keystone}/roles").json()["roles"]}
    place = f"{keystone}/domains/{domain}/users/{trustee}/roles/{roles['admin']}"
    session.put(place).raise_for_status()
    return domain, trustee


def configure(domain, trustee):
    """Writes what Magnum reads, and says what it is to be started with."""
    os.makedirs(directory, exist_ok=True)
    known = {"directory": directory, "keystone": keystone, "kubeconfig": kubeconfig, "password": password}
    text = CONFIGURATION.format(service=SERVICE.format(**known), domain=domain, trustee=trustee, **known)
    for name, content in (("magnum.conf", text), ("api-paste.ini", PASTE)):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(content)
    # Readers and writers do not wait for each other.
    sqlite3.connect(os.path.join(directory, "magnum.db")).execute("PRAGMA journal_mode=WAL")
    return ["magnum", "--config-file", os.path.join(directory, "magnum.conf")]


def conduct(conf):
    """What magnum-conductor does, in threads; the periodic tasks more often than every ten seconds."""
    from magnum.common import rpc_service
    from magnum.conductor.handlers import (
        ca_conductor,
        cluster_conductor,
        conductor_listener,
        credential_conductor,
        federation_conductor,
        indirection_api,
        nodegroup_conductor,
    )
    from magnum.service import periodic

    handlers = (
        indirection_api, cluster_conductor, conductor_listener, credential_conductor, ca_conductor, federation_conductor,
        nodegroup_conductor,
    )
    endpoints = [handler.Handler() for handler in handlers]
    server = rpc_service.Service.create(conf.conductor.topic, "conductor", endpoints, binary="magnum-conductor")
    server.start()
    tasks = periodic.MagnumPeriodicTasks(conf)

    def work():
        while True:
            for name, task in tasks._periodic_tasks:
                task(tasks, None)
            time.sleep(2)

    threading.Thread(target=work, daemon=True).start()


def listen(application):
    """Serves the API, and says where."""
    if GREEN:
        import eventlet
        import eventlet.wsgi

        place = eventlet.listen(("127.0.0.1", 0))
        print(place.getsockname()[1], flush=True)
        eventlet.wsgi.server(place, application, log_output=False)
    else:
        from waitress import create_server

        server = create_server(application, host="127.0.0.1", port=0, threads=8)
        print(server.effective_port, flush=True)
        server.run()


def plainly(sqlalchemy):
    """Has SQLite serve several at once.

    Each statement is a transaction of its own, for SQLite refuses who reads and then writes what another one wrote meanwhile; Magnum
    takes nothing back here. And no connection is used twice, for one that somebody has not read to its end tells what was.
    """
    make = sqlalchemy.create_engine

    def create_engine(url, **options):
        kept = {name: value for name, value in options.items() if not name.startswith(("pool", "max_overflow"))}
        return make(url, poolclass=sqlalchemy.NullPool, **kept)

    sqlalchemy.create_engine = create_engine

    @sqlalchemy.event.listens_for(sqlalchemy.Engine, "before_cursor_execute", retval=True)
    def begin(_connection, _cursor, statement, parameters, _context, _many):
        return "SELECT 1" if statement == "BEGIN" else statement, parameters


def serve():
    cloud = ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
    threading.Thread(target=cloud.serve_forever, daemon=True).start()
    sys.argv = configure(*accounts(f"http://127.0.0.1:{cloud.server_port}"))
    import magnum.conf
    import sqlalchemy
    from magnum.api import app
    from magnum.common import service
    from magnum.db.sqlalchemy import models

    service.prepare_service(sys.argv)
    conf = magnum.conf.CONF
    plainly(sqlalchemy)
    # Its migrations can not be done in SQLite.
    models.Base.metadata.create_all(sqlalchemy.create_engine(conf.database.connection))
    application = app.load_app()
    conduct(conf)
    listen(application)


serve()
