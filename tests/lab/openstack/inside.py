"""A real Magnum in one process: its API, its conductor and its periodic tasks, with a cloud that only tells what it has.

Keystone is real. Magnum looks up images, flavors and networks before it takes a template, so these are told (`cloud.py`); nothing is ever
made of them. The queue between API and conductor is in memory and the database a file. The port of the API is the first line printed.

With a number of clusters, a project and a user as further arguments it is the API alone, over so many clusters that are complete.
"""

import importlib.metadata

# Up to Magnum 22 its services are green threads, as eventlet makes them; later ones are threads.
GREEN = int(importlib.metadata.version("magnum").partition(".")[0]) < 23
if GREEN:
    import eventlet

    eventlet.monkey_patch()

import os
import sqlite3
import sys
import threading
import time
import uuid

import cloud

directory, keystone, kubeconfig, *kept = sys.argv[1:]
directory = os.path.abspath(directory)
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
kubernetes_default_network_driver = calico
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
pipeline = cors request_id authtoken api_v1
[app:api_v1]
paste.app_factory = magnum.api.app:app_factory
[filter:authtoken]
acl_public_routes = /, /v1
paste.filter_factory = magnum.api.middleware.auth_token:AuthTokenMiddleware.factory
[filter:request_id]
paste.filter_factory = oslo_middleware:RequestId.factory
[filter:cors]
paste.filter_factory = oslo_middleware.cors:filter_factory
oslo_config_project = magnum
"""

def accounts(address):
    """The catalogue of the cloud, and whom Magnum 22 makes trusts with."""
    session = cloud.catalogue(keystone, address, password)

    def make(kind, **members):
        made = session.post(f"{keystone}/{kind}s", json={kind: members})
        made.raise_for_status()
        return made.json()[kind]["id"]

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
    from magnum.servicegroup import magnum_service_periodic

    handlers = (
        indirection_api, cluster_conductor, conductor_listener, credential_conductor, ca_conductor, federation_conductor,
        nodegroup_conductor,
    )
    endpoints = [handler.Handler() for handler in handlers]
    server = rpc_service.Service.create(conf.conductor.topic, "conductor", endpoints, binary="magnum-conductor")
    server.start()
    tasks = [periodic.MagnumPeriodicTasks(conf), magnum_service_periodic.MagnumServicePeriodicTasks(conf, "magnum-conductor")]

    def work():
        while True:
            for kind in tasks:
                for _name, task in kind._periodic_tasks:
                    task(kind, None)
            time.sleep(2)

    threading.Thread(target=work, daemon=True).start()


def fill(models, session, clusters, project, user):
    """A template, and clusters of it with their two groups, as a conductor leaves them."""

    def row(kind, **members):
        made = kind(uuid=str(uuid.uuid4()), project_id=project, **members)
        session.add(made)
        return made.uuid

    labels = {"kube_tag": "v1.34.3"}
    flavors = {"flavor_id": "metal", "master_flavor_id": "metal"}
    template = row(
        models.ClusterTemplate, user_id=user, name="small", image_id="debian", coe="kubernetes", server_type="bm", cluster_distro="debian",
        external_network_id="public", network_driver="calico", labels=labels, driver="windlass", **flavors,
        registry_enabled=False, tls_disabled=False, public=False, hidden=False, master_lb_enabled=False, floating_ip_enabled=True,
    )
    for at in range(clusters):
        cluster = row(
            models.Cluster, user_id=user, name=f"c-{at}", cluster_template_id=template, labels=labels, stack_id=f"stack-{at}",
            status="CREATE_COMPLETE", health_status="HEALTHY", health_status_reason={}, create_timeout=60, **flavors,
            api_address="https://10.0.0.1:6443", coe_version="v1.34.3", floating_ip_enabled=True, master_lb_enabled=False,
        )
        for role in ("master", "worker"):
            row(
                models.NodeGroup, name=f"default-{role}", cluster_id=cluster, labels=labels, flavor_id="metal", image_id="debian",
                node_addresses=["10.0.0.1"], node_count=int(role == "master"), role=role, min_node_count=0, is_default=True,
                stack_id=f"stack-{at}", status="CREATE_COMPLETE", node_labels={}, node_taints=[],
            )
    session.commit()


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
    sys.argv = configure(*accounts(f"http://127.0.0.1:{cloud.start()}"))
    import magnum.conf
    import sqlalchemy
    from magnum.api import app
    from magnum.common import service
    from magnum.db.sqlalchemy import models

    service.prepare_service(sys.argv)
    conf = magnum.conf.CONF
    if not kept:
        plainly(sqlalchemy)
    # Its migrations can not be done in SQLite.
    engine = sqlalchemy.create_engine(conf.database.connection)
    models.Base.metadata.create_all(engine)
    application = app.load_app()
    if kept:
        clusters, project, user = kept
        with sqlalchemy.orm.Session(engine) as session:
            fill(models, session, int(clusters), project, user)
    else:
        conduct(conf)
    listen(application)


serve()
