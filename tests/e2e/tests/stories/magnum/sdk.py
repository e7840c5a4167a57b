"""Clusters by openstacksdk, as Ansible's modules and programs of users have them. Arguments: the name and the UUID of a cluster that is complete."""

import sys

import openstack
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID


def request():
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann"), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters")])
    csr = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return csr.public_bytes(serialization.Encoding.PEM).decode()


name, uuid = sys.argv[1:]
cloud = openstack.connect()
magnum = cloud.container_infrastructure_management

found = magnum.find_cluster(name)
assert (found.uuid, found.name, found.status) == (uuid, name, "CREATE_COMPLETE"), found
assert found.node_count == 1 and found.coe_version == "v1.34.3", found
assert magnum.get_cluster(uuid).api_address == "https://10.0.0.1:6443"
assert [cluster.uuid for cluster in magnum.clusters()] == [uuid]
assert cloud.get_coe_cluster(name).uuid == uuid
assert magnum.find_cluster("nobody-has-it") is None

authority = x509.load_pem_x509_certificate(magnum.get_cluster_certificate(uuid).pem.encode())
signed = magnum.create_cluster_certificate(cluster_uuid=uuid, csr=request())
x509.load_pem_x509_certificate(signed.pem.encode()).verify_directly_issued_by(authority)
assert cloud.get_coe_cluster_certificate(uuid).pem == magnum.get_cluster_certificate(uuid).pem

template = magnum.create_cluster_template(
    name="by-sdk", coe="kubernetes", image_id="debian", server_type="bm", external_network_id="public", labels={"kube_tag": "v1.34.3"}
)
assert magnum.find_cluster_template("by-sdk").uuid == template.uuid
assert {each.name for each in magnum.cluster_templates()} == {"by-sdk", "small"}
assert cloud.get_cluster_template("by-sdk").uuid == template.uuid

made = magnum.create_cluster(name="second", cluster_template_id=template.uuid, node_count=1)
made = magnum.get_cluster(made.uuid)
assert (made.name, made.status, made.node_count) == ("second", "CREATE_IN_PROGRESS", 1), made
try:
    magnum.delete_cluster_template(template.uuid, ignore_missing=False)
    raise SystemExit("a template went that a cluster is made from")
except openstack.exceptions.BadRequestException as error:
    assert "is referenced by one or multiple clusters" in error.response.text, error.response.text
magnum.delete_cluster(made)
magnum.wait_for_delete(made, interval=1, wait=60)
magnum.delete_cluster_template(template.uuid, ignore_missing=False)
assert magnum.find_cluster_template("by-sdk") is None

try:
    list(magnum.services())
    raise SystemExit("services are shown to somebody who is no administrator")
except openstack.exceptions.ForbiddenException:
    pass
