"""A database as a real Magnum leaves it, and what that Magnum answers of it.

Its own migrations make the tables, its own objects the rows and its own manager the authorities. The API is asked in this process, by
whoever the rows belong to: no Keystone vouches, and nothing listens. What is printed is a document of the answers by their paths.
"""

import importlib.metadata

# Up to Magnum 22 its services are green threads, and policies are asked of a Keystone: then the answers are left out.
OLD = int(importlib.metadata.version("magnum").partition(".")[0]) < 23
if OLD:
    import eventlet

    eventlet.monkey_patch()

import json
import os
import sys
import uuid

directory, connection = sys.argv[1:]

CONFIGURATION = """
[DEFAULT]
transport_url = fake://
host = magnum
log_file = {directory}/magnum.log
[database]
connection = {connection}
[certificates]
cert_manager_type = x509keypair
[oslo_concurrency]
lock_path = {directory}
[keystone_auth]
auth_type = none
"""
WHO = {"p1": "ann", "p2": "eve"}
VERSION = {"OpenStack-API-Version": "container-infra latest"}


def configure():
    os.makedirs(directory, exist_ok=True)
    file = os.path.join(directory, "magnum.conf")
    with open(file, "w", encoding="utf-8") as written:
        written.write(CONFIGURATION.format(directory=directory, connection=connection))
    return ["magnum", "--config-file", file]


def row(kind, models, session, project, **members):
    if OLD:
        members = {name: value for name, value in members.items() if name not in ("node_labels", "node_taints")}
    made = getattr(models, kind)(uuid=str(uuid.uuid4()), project_id=project, **members)
    session.add(made)
    session.flush()
    return made


def fill(models, session, project):
    """A template, and a cluster of it with three groups, as another driver leaves them."""
    user = WHO[project]
    labels = {"kube_tag": "v1.34.3", "mine": "ünï"}
    flavors = {"flavor_id": "m1.large", "master_flavor_id": "m1.small"}
    template = row(
        "ClusterTemplate", models, session, project, user_id=user, name="small", image_id="ubuntu", coe="kubernetes", server_type="vm",
        cluster_distro="ubuntu", external_network_id="public", network_driver="calico", labels={"kube_tag": "v1.34.3"},
        driver="k8s_capi_helm_v1", dns_nameserver="8.8.8.8", docker_volume_size=20, apiserver_port=6443, volume_driver="cinder",
        http_proxy="http://proxy:3128", tags="a,b", registry_enabled=False, tls_disabled=False, public=project == "p1", hidden=False,
        master_lb_enabled=True, floating_ip_enabled=False, **flavors,
    )
    cluster = row(
        "Cluster", models, session, project, user_id=user, name="first", cluster_template_id=template.uuid, labels=labels,
        stack_id=f"first-{project}", status="UPDATE_COMPLETE", status_reason="two\nlines", health_status="UNHEALTHY",
        health_status_reason={"api": "ok", "n.Ready": "False"}, create_timeout=30, api_address="https://203.0.113.7:6443",
        coe_version="v1.34.3", container_version="1.7", keypair="ann", fixed_network="net", fixed_subnet="subnet",
        floating_ip_enabled=True, master_lb_enabled=True, docker_volume_size=20, discovery_url="https://discovery/x", **flavors,
    )
    for name, role, count in (("default-master", "master", 3), ("default-worker", "worker", 2), ("gpu", "gpu", 0)):
        row(
            "NodeGroup", models, session, project, name=name, cluster_id=cluster.uuid, labels=labels, flavor_id="m1.large",
            image_id="ubuntu", node_addresses=[f"10.0.0.{count}"], node_count=count, role=role, min_node_count=0,
            max_node_count=None if role == "master" else 9, is_default=name.startswith("default"), stack_id=f"{name}-{project}",
            status="CREATE_COMPLETE", version="v1.34.3", docker_volume_size=20, node_labels={"tier": "x"} if role == "gpu" else {},
            node_taints=[{"key": "gpu", "effect": "NoSchedule"}] if role == "gpu" else [],
        )
    session.add(models.Quota(project_id=project, resource="Cluster", hard_limit=4))
    return template.uuid, cluster.uuid


def asked(application, path, project):
    from webob import Request

    request = Request.blank(path, base_url="http://coe.example:9511", headers={
        **VERSION, "X-User-Id": WHO[project], "X-Project-Id": project, "X-Roles": "admin,member,reader", "X-Auth-Token": "x",
        "X-User-Name": WHO[project], "X-Project-Name": project, "X-User-Domain-Id": "default", "X-Project-Domain-Id": "default",
    })
    answer = request.get_response(application)
    if answer.status_code != 200:
        sys.exit(f"{path}: {answer.status}: {answer.text}")
    return json.loads(answer.text)


def serve():
    sys.argv = configure()
    import magnum.conf
    import sqlalchemy
    from magnum.api import app
    from magnum.common import context, service
    from magnum.conductor.handlers.common import cert_manager
    from magnum.db import migration
    from magnum.db.sqlalchemy import models
    from magnum import objects

    service.prepare_service(sys.argv)
    conf = magnum.conf.CONF
    migration.upgrade("head")
    engine = sqlalchemy.create_engine(conf.database.connection)
    made = {}
    with sqlalchemy.orm.Session(engine) as session:
        for project in WHO:
            made[project] = fill(models, session, project)
        session.commit()
    admin = context.make_admin_context(all_tenants=True)
    stored = {}
    for project, (_template, cluster) in made.items():
        admin.project_id, admin.user_id = project, WHO[project]
        stored[project] = objects.Cluster.get_by_uuid(admin, cluster)
        cert_manager.generate_certificates_to_cluster(stored[project], context=admin)
        stored[project].save()
    if OLD:
        print("{}")
        return
    application = app.setup_app()
    answers = {}
    for project, (template, cluster) in made.items():
        paths = [f"/v1/clustertemplates/{template}", f"/v1/clusters/{cluster}", f"/v1/quotas/{project}/Cluster"]
        groups = asked(application, f"/v1/clusters/{cluster}/nodegroups", project)["nodegroups"]
        paths += [f"/v1/clusters/{cluster}/nodegroups/{group['uuid']}" for group in groups]
        answers[project] = {path: asked(application, path, project) for path in paths}
        # The API has its conductor read these.
        for kind in ("kubernetes", "etcd", "front_proxy"):
            kept = cert_manager.get_cluster_ca_certificate(stored[project], admin, kind)
            answers[project][f"/v1/certificates/{cluster}?ca_cert_type={kind}"] = {"pem": kept.get_certificate()}
    print(json.dumps(answers))


serve()
