"""What Magnum calls.

A driver has no state: Magnum makes a new one for each call. Each method that changes something tells Windlass the whole of what
Magnum has of the cluster, so that the same call a second time changes nothing. What Magnum has is true of the number of nodes, of
groups and of versions; what Windlass tells is true of how far it is.
"""

import datetime

from oslo_log import log as logging

import magnum.conf
from magnum.common import exception
from magnum.conductor import monitors
from magnum.conductor.handlers.common import cert_manager
from magnum.drivers.common import driver
from magnum import objects as magnum_objects
from windlass_magnum import api
from windlass_magnum import objects
from windlass_magnum import options

CONF = magnum.conf.CONF
LOG = logging.getLogger(__name__)

options.register(CONF)

# What an image says in os_distro. The hosts have what they have; Magnum only takes what is named.
DISTRIBUTIONS = (
    "almalinux", "centos", "debian", "fedora", "fedora-coreos", "flatcar", "opensuse", "oraclelinux", "rhel", "rocky", "ubuntu",
)
# How long Windlass may not have what Magnum is about to tell it, in seconds.
ON_ITS_WAY = 120
# How often a change is tried on what others changed meanwhile.
TRIES = 5


def session():
    """What one call does at Windlass."""
    return api.Session(CONF.windlass.kubeconfig, CONF.windlass.timeout)


def place(cluster):
    """Where the object of a cluster is."""
    return f"{api.GROUP}/namespaces/{objects.namespace(cluster.project_id)}/coeclusters/{cluster.uuid}"


def secret_place(cluster):
    """Where the Secret with its authorities is."""
    return f"/api/v1/namespaces/{objects.namespace(cluster.project_id)}/secrets/{objects.secret_name(cluster)}"


def is_refusal(error):
    """Whether nothing was made for certain. Of all other errors nobody knows."""
    return error.status is not None and 400 <= error.status < 500 and error.status not in (408, 409, 429)


def told(error):
    """An error as Magnum hands it on to its users; a per cent sign would be taken for a place to fill in."""
    return exception.MagnumException(str(error).replace("%", "%%"), code=error.status or 503)


BOARD = api.Board(lambda: session().clusters())


class Driver(driver.Driver):
    """Clusters that Windlass makes on hosts of its pool."""

    @property
    def provides(self):
        return [{"server_type": "bm", "os": name, "coe": "kubernetes"} for name in DISTRIBUTIONS]

    def create_cluster(self, context, cluster, cluster_create_timeout):
        try:
            self._create(context, cluster, cluster_create_timeout)
        except api.Error as error:
            raise told(error) from error
        cluster.stack_id = f"coe-{cluster.uuid}"

    def _create(self, context, cluster, timeout):
        windlass, namespace = session(), objects.namespace(cluster.project_id)
        wanted = objects.cluster(cluster, cluster.cluster_template, timeout)
        secret = objects.secret(cluster, self._authorities(context, cluster))
        project = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {objects.PROJECT_LABEL: cluster.project_id}},
        }
        who = {"fieldManager": api.MANAGER, "force": "true"}
        windlass.call("PATCH", f"/api/v1/namespaces/{namespace}", project, api.APPLY, **who)
        # A cluster is founded with its authorities, so they are there first.
        windlass.call("PATCH", secret_place(cluster), secret, api.APPLY, **who)
        try:
            made = windlass.call("POST", f"{api.GROUP}/namespaces/{namespace}/coeclusters", wanted)
        except api.Error as error:
            if is_refusal(error):
                self._discard(windlass, cluster)
            if error.status != 409:
                raise
            made = windlass.call("GET", place(cluster))
        if is_given_up(context, cluster):
            # Who deleted it meanwhile found nothing to delete here. Magnum must not be told of an error: it would write that it failed.
            windlass.call("DELETE", place(cluster))
            self._discard(windlass, cluster)
            return
        if made is None:
            raise api.Error("the cluster was deleted in Windlass while it was made")
        # With an owner the Secret goes with its cluster.
        owner = {
            "apiVersion": wanted["apiVersion"], "kind": wanted["kind"], "name": cluster.uuid, "uid": made["metadata"]["uid"],
        }
        windlass.call("PATCH", secret_place(cluster), {"metadata": {"ownerReferences": [owner]}}, api.MERGE)

    def _authorities(self, context, cluster):
        """Magnum's own: what it signs is valid in the cluster."""
        found = {}
        for word in objects.AUTHORITIES:
            authority = cert_manager.get_cluster_ca_certificate(cluster, context, word)
            found[word] = (authority.get_certificate(), authority.get_decrypted_private_key())
        return found

    def _discard(self, windlass, cluster):
        try:
            windlass.call("DELETE", secret_place(cluster))
        except api.Error as error:
            LOG.warning("The authorities of a cluster that there is not were not removed: %s", error)

    def _change(self, cluster, removed=None, more=None, fits=None):
        """Tells Windlass what Magnum has.

        What is stored is read before what Magnum has: two that change one cluster at once would otherwise take away what the
        other one brought. Who comes second is refused, and tries again.
        """
        windlass = session()
        path = place(cluster)
        for tries_left in reversed(range(TRIES)):
            stored = windlass.call("GET", path)
            if stored is None:
                raise api.Error("Windlass does not have the cluster: somebody deleted it there", 404)
            if fits:
                fits(stored)
            wanted = {"nodeGroups": objects.groups(cluster.nodegroups, stored["spec"].get("nodeGroups") or [], removed)}
            wanted.update(more or {})
            version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
            try:
                windlass.call("PATCH", path, {"metadata": version, "spec": wanted}, api.MERGE)
                return
            except api.Error as error:
                if error.status != 409 or not tries_left:
                    raise

    def update_cluster(self, context, cluster, scale_manager=None, rollback=False):
        try:
            self._change(cluster)
        except api.Error as error:
            raise told(error) from error

    def resize_cluster(self, context, cluster, resize_manager, node_count, nodes_to_remove, nodegroup=None):
        group = nodegroup or cluster.default_ng_worker
        try:
            self._change(cluster, removed={group.uuid: [str(node) for node in nodes_to_remove or []]})
        except api.Error as error:
            raise told(error) from error

    def validate_master_resize(self, node_count):
        self.validate_master_size(node_count)

    def upgrade_cluster(self, context, cluster, cluster_template, max_batch_size, nodegroup, scale_manager=None, rollback=False):
        def fits(stored):
            wrong = objects.unfit(stored, version)
            if wrong:
                # Of all errors this is the one after which Magnum leaves the cluster as it is.
                raise exception.NotSupported(operation=wrong)

        try:
            version = objects.kubernetes_version(cluster_template.labels)
            more = {"clusterTemplateId": cluster_template.uuid, "maxBatchSize": max_batch_size or 1}
            if version:
                more.update(kubernetesVersion=version, labels={"kube_tag": f"v{version}"})
            self._change(cluster, more=more, fits=fits)
        except api.Error as error:
            raise told(error) from error
        cluster.cluster_template_id = cluster_template.uuid
        if version:
            cluster.labels = {**(cluster.labels or {}), "kube_tag": f"v{version}"}

    def delete_cluster(self, context, cluster):
        try:
            session().call("DELETE", place(cluster))
        except api.Error as error:
            raise told(error) from error

    def create_nodegroup(self, context, cluster, nodegroup):
        nodegroup.stack_id = cluster.stack_id
        self._change_group(cluster)

    def update_nodegroup(self, context, cluster, nodegroup):
        # What is told is read from the database.
        nodegroup.save()
        self._change_group(cluster)

    def delete_nodegroup(self, context, cluster, nodegroup):
        # Magnum does not save that it goes.
        nodegroup.save()
        self._change_group(cluster)

    def _change_group(self, cluster):
        try:
            self._change(cluster)
        except api.Error as error:
            raise told(error) from error
        # Magnum said so before, when a look at Windlass could still tell how the last change had ended.
        cluster.status = "UPDATE_IN_PROGRESS"
        cluster.save()

    def rotate_ca_certificate(self, context, cluster):
        # Magnum has made new ones by now, and would save them with the refusal: nobody could enter the cluster again.
        stored = magnum_objects.Cluster.get_by_uuid(context, cluster.uuid)
        made = cluster.obj_clone()
        for name in ("ca_cert_ref", "magnum_cert_ref", "etcd_ca_cert_ref", "front_proxy_ca_cert_ref"):
            setattr(cluster, name, getattr(stored, name))
        if made.ca_cert_ref != stored.ca_cert_ref:
            cert_manager.delete_certificates_from_cluster(made, context=context)
        raise exception.NotSupported(operation="Rotation of the authorities of a cluster that Windlass made")

    def create_federation(self, context, federation):
        raise exception.NotSupported(operation="A federation")

    def update_federation(self, context, federation):
        raise exception.NotSupported(operation="A federation")

    def delete_federation(self, context, federation):
        raise exception.NotSupported(operation="A federation")

    def get_monitor(self, context, cluster):
        return Monitor(context, cluster)

    def update_cluster_status(self, context, cluster, use_admin_ctx=False):
        try:
            stored = BOARD.cluster(cluster.uuid, changed(cluster))
        except api.Error as error:
            LOG.warning("Cluster %s stays %s: %s", cluster.uuid, cluster.status, error)
            return
        asked = cluster.status.partition("_")[0]
        if stored is None and asked == "DELETE":
            # The Secret has no owner where the API did not answer when the cluster was made.
            self._end(cluster, self._discard)
            # Magnum removes what it has of it.
            cluster.status = "DELETE_COMPLETE"
            return
        if stored is None:
            if not is_on_its_way(cluster):
                put(cluster, status=f"{asked}_FAILED", status_reason="Windlass does not have the cluster")
                save(cluster)
            return
        standing = objects.Standing(stored)
        if asked == "DELETE" and not standing.is_leaving:
            # Magnum asks once. Whatever became of that, asking again changes nothing.
            self._end(cluster, lambda windlass, cluster: windlass.call("DELETE", place(cluster)))
            return
        is_told = [self._update_group(nodegroup, standing, asked) for nodegroup in cluster.nodegroups]
        outcome = standing.outcome if all(is_told) or standing.outcome == "FAILED" else "IN_PROGRESS"
        put(
            cluster,
            status=f"{asked}_{outcome}",
            status_reason=standing.reason,
            api_address=standing.api_address or cluster.api_address,
            coe_version=standing.coe_version or cluster.coe_version,
        )
        save(cluster)

    def _end(self, cluster, how):
        try:
            how(session(), cluster)
        except api.Error as error:
            LOG.warning("Cluster %s goes, and is asked for again: %s", cluster.uuid, error)

    def _update_group(self, nodegroup, standing, asked):
        """Says whether Windlass knows what Magnum wants of it."""
        wanted = (nodegroup.status or "").partition("_")[0] or asked
        if not standing.has(nodegroup.uuid):
            if wanted == "DELETE":
                if standing.outcome == "COMPLETE":
                    nodegroup.destroy()
                return True
            if (nodegroup.status or "").endswith("_FAILED"):
                return True
            if is_on_its_way(nodegroup):
                return False
            put(nodegroup, status=f"{wanted}_FAILED", status_reason="Windlass does not have the node group")
            save(nodegroup)
            return True
        if wanted == "DELETE" and asked != "DELETE":
            return not is_on_its_way(nodegroup)
        outcome, reason, addresses = standing.group(nodegroup.uuid)
        if asked == "DELETE":
            wanted = asked
        put(nodegroup, status=f"{wanted}_{outcome}", status_reason=reason, node_addresses=addresses)
        save(nodegroup)
        return True


class Monitor(monitors.MonitorBase):
    """The health of a cluster, as Windlass tells it."""

    def __init__(self, context, cluster):
        super().__init__(context, cluster)
        self.data = {}

    @property
    def metrics_spec(self):
        return {}

    def pull_data(self):
        """There is none: Windlass measures nothing that Magnum asks for."""

    def poll_health_status(self):
        stored = BOARD.cluster(self.cluster.uuid, 0)
        standing = stored and objects.Standing(stored)
        self._look_again(standing)
        if standing and standing.health.get("status"):
            self.data["health_status"] = standing.health["status"]
            self.data["health_status_reason"] = objects.texts(standing.health.get("reasons"))

    def _look_again(self, standing):
        """What failed may go on by itself, and Magnum looks only at what is in progress."""
        asked, _, outcome = self.cluster.status.partition("_")
        if outcome == "FAILED" and goes_on(asked, standing):
            self.cluster.status = f"{asked}_IN_PROGRESS"
            self.cluster.save()


def goes_on(asked, standing):
    """Whether something that Magnum calls failed is being done.

    A change that Windlass was never told of failed too, and that what was asked for before is complete does not make it good.
    """
    if asked == "DELETE":
        return standing is None or (standing.is_leaving and standing.outcome != "FAILED")
    if standing is None or standing.is_leaving:
        return False
    # What is there of a new cluster is all that was asked for.
    return standing.outcome == "IN_PROGRESS" or (asked == "CREATE" and standing.outcome == "COMPLETE")


def is_given_up(context, cluster):
    """Whether somebody deleted the cluster in Magnum while it was made."""
    try:
        stored = magnum_objects.Cluster.get_by_uuid(context, cluster.uuid)
    except exception.ClusterNotFound:
        return True
    return (stored.status or "").startswith("DELETE_")


def changed(thing):
    """When Magnum last changed something, in seconds since 1970."""
    moment = thing.updated_at or thing.created_at
    if moment is None:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return moment.timestamp()


def is_on_its_way(thing):
    """Whether Magnum may be about to tell Windlass of it."""
    now = datetime.datetime.now(datetime.timezone.utc).timestamp()
    return now < changed(thing) + ON_ITS_WAY


def put(thing, **members):
    """Sets what is different: what was not changed is not saved."""
    for name, value in members.items():
        if getattr(thing, name) != value:
            setattr(thing, name, value)


def save(thing):
    """Saves what was changed, if anything was."""
    if thing.obj_what_changed():
        thing.save()
