"""From what Magnum has to Windlass' objects and back. Nothing here has a side effect."""

import base64
import re

from windlass_magnum import api

FINALIZER = "magnum.windlass.dev/hosts"
CLUSTER_LABEL = "magnum.windlass.dev/cluster"
PROJECT_LABEL = "magnum.windlass.dev/project"
NETWORK_DRIVERS = ("calico", "cilium", "flannel")

# The keys of a Secret for certificate and key of an authority, by what Magnum calls it.
AUTHORITIES = {
    "kubernetes": ("ca.crt", "ca.key"),
    "etcd": ("etcd-ca.crt", "etcd-ca.key"),
    "front_proxy": ("front-proxy-ca.crt", "front-proxy-ca.key"),
}


def namespace(project):
    """The namespace of a project's objects."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,54}[a-z0-9])?", project or ""):
        raise api.Error(f"project {api.plain(project)!r} has no name that Windlass can keep")
    return f"magnum-{project}"


def secret_name(cluster):
    """The Secret with a cluster's authorities."""
    return f"{cluster.uuid}-authorities"


def secret(cluster, authorities):
    """The Secret with a cluster's authorities: pairs of certificate and key, by what Magnum calls them."""
    data = {}
    for word, pair in authorities.items():
        for key, value in zip(AUTHORITIES[word], pair):
            value = value.encode() if isinstance(value, str) else value
            data[key] = base64.b64encode(value).decode("ascii")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        # What the driver may write, by the policy of docs/magnum.md.
        "type": "Opaque",
        "metadata": {"name": secret_name(cluster), "labels": {CLUSTER_LABEL: cluster.uuid}},
        "data": data,
    }


def cluster(magnum, template, timeout):
    """The object of a new cluster."""
    driver = template.network_driver
    if driver and driver not in NETWORK_DRIVERS:
        raise api.Error(f"network_driver {driver} is none of {', '.join(NETWORK_DRIVERS)}: use another template")
    spec = {
        "name": magnum.name,
        "projectId": magnum.project_id,
        "userId": magnum.user_id,
        "clusterTemplateId": magnum.cluster_template_id,
        "serverType": template.server_type,
        "kubernetesVersion": kubernetes_version(magnum.labels),
        "networkDriver": driver,
        "keypair": magnum.keypair,
        "createTimeout": timeout,
        "dockerVolumeSize": magnum.docker_volume_size,
        "labels": texts(magnum.labels),
        "flavorId": magnum.flavor_id,
        "masterFlavorId": magnum.master_flavor_id,
        "fixedNetwork": magnum.fixed_network,
        "fixedSubnet": magnum.fixed_subnet,
        "discoveryUrl": magnum.discovery_url,
        "floatingIpEnabled": magnum.floating_ip_enabled,
        "masterLbEnabled": magnum.master_lb_enabled,
        "nodeGroups": [group(nodegroup) for nodegroup in magnum.nodegroups],
    }
    return {
        "apiVersion": "magnum.windlass.dev/v1alpha1",
        "kind": "CoeCluster",
        "metadata": {"name": magnum.uuid, "finalizers": [FINALIZER]},
        "spec": said(spec),
    }


def group(nodegroup):
    """A node group of a cluster."""
    # Magnum 22 has neither labels nor taints of nodes.
    taints = getattr(nodegroup, "node_taints", None) or []
    created = getattr(nodegroup, "created_at", None)
    return said({
        "uuid": nodegroup.uuid,
        "name": nodegroup.name,
        "role": nodegroup.role,
        "isDefault": nodegroup.is_default or None,
        "nodeCount": nodegroup.node_count,
        "minNodeCount": nodegroup.min_node_count,
        "maxNodeCount": nodegroup.max_node_count,
        "flavorId": nodegroup.flavor_id,
        "imageId": nodegroup.image_id,
        "dockerVolumeSize": nodegroup.docker_volume_size,
        "labels": texts(nodegroup.labels),
        "nodeLabels": texts(getattr(nodegroup, "node_labels", None)),
        "nodeTaints": [said({key: taint.get(key) for key in ("key", "value", "effect")}) for taint in taints],
        "createdAt": created.isoformat() if created else None,
    })


def groups(nodegroups, stored, removed=None):
    """All node groups, given those that are stored; ``removed`` are nodes that have to go, by the UUID of their group."""
    known = {group["uuid"]: group for group in stored}
    wanted = []
    for nodegroup in nodegroups:
        status = nodegroup.status or ""
        # What could not be made is not tried again by what somebody does to another group.
        if status == "DELETE_IN_PROGRESS" or (status == "CREATE_FAILED" and nodegroup.uuid not in known):
            continue
        kept = known.get(nodegroup.uuid, {}).get("nodesToRemove", [])
        leaving = (removed or {}).get(nodegroup.uuid, kept)
        wanted.append({**group(nodegroup), **({"nodesToRemove": leaving} if leaving else {})})
    return wanted


def texts(labels):
    """Labels as text, which is what they are in Windlass."""
    return {str(key): str(value) for key, value in (labels or {}).items()}


def said(members):
    """Members without those that nobody said anything of."""
    return {key: value for key, value in members.items() if value is not None and value != {} and value != []}


def kubernetes_version(labels):
    """What the label ``kube_tag`` says, with or without a v in front."""
    tag = (labels or {}).get("kube_tag")
    if not tag:
        return None
    if not numbers(tag):
        raise api.Error(f"label kube_tag {api.plain(tag)!r} is no version such as v1.34.3")
    return tag.lstrip("v")


def numbers(version):
    """A version as numbers; None where it is none."""
    match = re.fullmatch(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})", str(version or ""))
    return tuple(map(int, match.groups())) if match else None


def unfit(stored, wanted):
    """Why a cluster can not be brought to a version; None where it can."""
    status = stored.get("status") or {}
    has = numbers(status.get("coeVersion")) or numbers(stored["spec"].get("kubernetesVersion"))
    wanted = numbers(wanted)
    if not has or not wanted:
        return None
    text = "Upgrading Kubernetes {}.{}.{} to {}.{}.{}".format(*has, *wanted)
    if wanted < has:
        return f"{text}, an earlier version,"
    if wanted[0] != has[0] or wanted[1] > has[1] + 1:
        return f"{text} at once, not one minor version after the other,"
    return None


class Standing:
    """How a cluster stands in Windlass.

    What was asked for and not yet looked at is in progress.
    """

    def __init__(self, stored):
        metadata, status = stored["metadata"], stored.get("status") or {}
        self.is_leaving = bool(metadata.get("deletionTimestamp"))
        state = status.get("state") or "CREATE_IN_PROGRESS"
        is_seen = status.get("observedGeneration") == metadata.get("generation")
        self.outcome = outcome(state) if is_seen else "IN_PROGRESS"
        if self.is_leaving:
            self.outcome = "FAILED" if state == "DELETE_FAILED" else "IN_PROGRESS"
        self.reason = api.plain(status.get("reason") or "") or None
        self.api_address = status.get("apiAddress")
        self.coe_version = status.get("coeVersion")
        self._groups = status.get("groups") or {}
        self._asked = {group["uuid"] for group in stored["spec"].get("nodeGroups") or []}
        self.health = status.get("health") or {}

    def has(self, uuid):
        """Whether a group was asked for."""
        return uuid in self._asked

    def group(self, uuid):
        """Outcome, reason and addresses of a group."""
        status = self._groups.get(uuid) or {}
        reason = api.plain(status.get("reason") or "") or None
        told = self.outcome
        if told != "IN_PROGRESS" and status.get("state"):
            told = outcome(status["state"])
        return told, reason, list(status.get("nodeAddresses") or [])


def outcome(state):
    """How far it is, of Windlass' word for a state. What was asked for is Magnum's to say: it waits for that, and for nothing else."""
    told = str(state).partition("_")[2]
    return told if told in ("COMPLETE", "FAILED") else "IN_PROGRESS"
