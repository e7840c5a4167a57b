import datetime
import os
import tempfile
import unittest
from unittest import mock

from magnum.common import exception
from tests import fake, test_objects
from windlass_magnum import api, driver

PATH = f"{api.GROUP}/namespaces/magnum-p1/coeclusters/u"
SECRET = "/api/v1/namespaces/magnum-p1/secrets/u-authorities"


def saving(thing, **members):
    """An object that says what was changed, as Magnum's do."""
    thing.__dict__.update(members)
    before = dict(vars(thing))
    changed = lambda: {name for name in before if vars(thing)[name] != before[name]}
    thing.obj_what_changed, thing.save, thing.destroy = changed, mock.Mock(), mock.Mock()
    return thing


def now():
    return datetime.datetime.now(datetime.timezone.utc)


class Drivers(unittest.TestCase):
    def setUp(self):
        self.server = fake.Server()
        self.addCleanup(self.server.close)
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        path = fake.kubeconfig(os.path.join(place.name, "kubeconfig"), self.server.address)
        driver.CONF.set_override("kubeconfig", path, "windlass")
        self.addCleanup(driver.CONF.clear_override, "kubeconfig", "windlass")
        driver.BOARD._at = driver.BOARD._error = None
        authority = mock.Mock(**{"get_certificate.return_value": "c", "get_decrypted_private_key.return_value": b"k"})
        patch = mock.patch.object(driver.cert_manager, "get_cluster_ca_certificate", return_value=authority)
        patch.start()
        self.addCleanup(patch.stop)
        self.in_magnum = mock.Mock(status="CREATE_IN_PROGRESS")
        read = mock.patch.object(driver.magnum_objects.Cluster, "get_by_uuid", side_effect=lambda *_: self.in_magnum)
        read.start()
        self.addCleanup(read.stop)
        self.driver = driver.Driver()
        groups = [
            saving(test_objects.nodegroup(uuid), updated_at=None, status_reason=None, node_addresses=[], stack_id=None)
            for uuid in ("m", "w")
        ]
        self.cluster = saving(
            test_objects.cluster(), nodegroups=groups, cluster_template=test_objects.template(), status="CREATE_IN_PROGRESS",
            status_reason=None, api_address=None, coe_version=None, stack_id=None, updated_at=now(), created_at=now(),
            default_ng_worker=groups[1],
        )

    def create(self):
        self.driver.create_cluster(None, self.cluster, 60)
        return self.server.objects[PATH]

    def tell(self, state, **more):
        stored = self.server.objects[PATH]
        stored["metadata"]["generation"] = 1
        stored["status"] = {"state": state, "observedGeneration": 1, **more}
        driver.BOARD._at = None

    def sync(self):
        self.driver.update_cluster_status(None, self.cluster)
        return self.cluster.status

    def test_a_cluster_is_made_once_with_the_authorities_of_magnum(self):
        made = self.create()
        self.assertEqual(self.cluster.stack_id, "coe-u")
        self.assertEqual(self.server.objects[SECRET]["data"]["ca.key"], "aw==")
        self.assertEqual(self.server.objects[SECRET]["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"])
        self.assertEqual(self.create()["spec"], made["spec"])

    def test_what_windlass_refuses_leaves_no_secret_behind(self):
        self.server.next = [(200, {}), (200, {}), (422, {"message": "50% of it is wrong"})]
        with self.assertRaisesRegex(exception.MagnumException, "50% of it is wrong"):
            self.create()
        self.assertEqual(self.server.asked[-1][:2], ("DELETE", SECRET))

    def test_the_authorities_stay_where_nobody_knows_whether_the_cluster_was_made(self):
        for status in (408, 429, 500, 503):
            self.server.next = [(200, {}), (200, {}), (status, {"message": "later"})]
            self.assertRaises(exception.MagnumException, self.create)
            self.assertEqual(self.server.asked[-1][0], "POST", status)

    def test_a_cluster_that_was_deleted_while_it_was_made_is_not_left(self):
        gone = exception.ClusterNotFound(cluster="u")
        for status in ("DELETE_IN_PROGRESS", None):
            self.in_magnum.status = status
            with mock.patch.object(driver.magnum_objects.Cluster, "get_by_uuid", side_effect=None if status else gone) as read:
                read.return_value = self.in_magnum
                self.driver.create_cluster(None, self.cluster, 60)
            self.assertNotIn(PATH, self.server.objects)
            self.assertNotIn(SECRET, self.server.objects)

    def test_a_cluster_that_has_to_go_and_does_not_is_deleted_again(self):
        self.create()
        self.cluster.status = "DELETE_IN_PROGRESS"
        self.assertEqual(self.sync(), "DELETE_IN_PROGRESS")
        self.assertNotIn(PATH, self.server.objects)
        driver.BOARD._at = None
        self.assertEqual(self.sync(), "DELETE_COMPLETE")
        self.assertNotIn(SECRET, self.server.objects)

    def test_what_windlass_was_not_told_does_not_go_on(self):
        leaving = test_objects.stored({}, deletionTimestamp="x")
        complete, working, failed = (
            test_objects.stored({"state": f"UPDATE_{outcome}", "observedGeneration": 2})
            for outcome in ("COMPLETE", "IN_PROGRESS", "FAILED")
        )
        rows = [
            ("UPDATE", complete, False), ("UPDATE", working, True), ("UPDATE", failed, False), ("UPDATE", None, False),
            ("CREATE", complete, True), ("CREATE", failed, False), ("CREATE", leaving, False),
            ("DELETE", complete, False), ("DELETE", working, False), ("DELETE", leaving, True), ("DELETE", None, True),
        ]
        for asked, stored, wanted in rows:
            standing = stored and driver.objects.Standing(stored)
            self.assertEqual(driver.goes_on(asked, standing), wanted, (asked, stored))

    def test_a_change_that_came_second_is_told_again(self):
        self.create()
        stored = self.server.objects[PATH]
        self.cluster.nodegroups[1].node_count = 5
        self.server.next = [(200, stored), (409, {"message": "changed"})]
        self.driver.resize_cluster(None, self.cluster, None, 5, ["n1"], self.cluster.nodegroups[1])
        group = self.server.objects[PATH]["spec"]["nodeGroups"][1]
        self.assertEqual((group["nodeCount"], group["nodesToRemove"]), (5, ["n1"]))

    def test_a_change_of_what_is_gone_does_not_bring_it_back(self):
        with self.assertRaisesRegex(exception.MagnumException, "somebody deleted it"):
            self.driver.update_cluster(None, self.cluster)
        self.assertEqual(self.server.objects, {})

    def test_an_upgrade_that_can_not_be_is_refused_before_anything_changes(self):
        before = self.create()["spec"]
        later = mock.Mock(uuid="t2", labels={"kube_tag": "v1.36.0"})
        with self.assertRaises(exception.NotSupported):
            self.driver.upgrade_cluster(None, self.cluster, later, 1, None)
        self.assertEqual(self.server.objects[PATH]["spec"], before)
        following = mock.Mock(uuid="t2", labels={"kube_tag": "v1.35.0"})
        self.driver.upgrade_cluster(None, self.cluster, following, 3, None)
        self.assertEqual(self.server.objects[PATH]["spec"]["kubernetesVersion"], "1.35.0")
        self.assertEqual(self.server.objects[PATH]["spec"]["maxBatchSize"], 3)
        self.assertEqual(self.cluster.cluster_template_id, "t2")

    def test_a_rotation_is_refused_and_the_authorities_stay(self):
        names = ("ca_cert_ref", "magnum_cert_ref", "etcd_ca_cert_ref", "front_proxy_ca_cert_ref")
        vars(self.cluster).update({name: "new" for name in names}, obj_clone=lambda: mock.Mock(ca_cert_ref="new"))
        old = mock.Mock(**{name: "old" for name in names})
        with mock.patch.object(driver.magnum_objects.Cluster, "get_by_uuid", return_value=old), mock.patch.object(
            driver.cert_manager, "delete_certificates_from_cluster"
        ) as delete, self.assertRaises(exception.NotSupported):
            self.driver.rotate_ca_certificate(None, self.cluster)
        self.assertEqual({getattr(self.cluster, name) for name in names}, {"old"})
        self.assertEqual(delete.call_args[0][0].ca_cert_ref, "new")

    def test_a_status_is_magnums_word_with_the_outcome_of_windlass(self):
        self.create()
        self.assertEqual(self.sync(), "CREATE_IN_PROGRESS")
        self.tell("CREATE_IN_PROGRESS", reason="2 hosts are missing")
        self.assertEqual((self.sync(), self.cluster.status_reason), ("CREATE_IN_PROGRESS", "2 hosts are missing"))
        self.tell("CREATE_COMPLETE", apiAddress="https://10.0.0.1:6443", coeVersion="v1.34.3")
        self.assertEqual((self.sync(), self.cluster.api_address), ("CREATE_COMPLETE", "https://10.0.0.1:6443"))
        self.assertEqual({group.status for group in self.cluster.nodegroups}, {"CREATE_COMPLETE"})
        self.cluster.status = "UPDATE_IN_PROGRESS"
        self.assertEqual(self.sync(), "UPDATE_COMPLETE")

    def test_what_is_missing_is_on_its_way_and_has_failed_later(self):
        self.assertEqual(self.sync(), "CREATE_IN_PROGRESS")
        self.cluster.updated_at = now() - datetime.timedelta(hours=1)
        self.assertEqual(self.sync(), "CREATE_FAILED")

    def test_a_cluster_that_goes_is_gone_when_its_object_is(self):
        self.create()
        self.driver.delete_cluster(None, self.cluster)
        self.driver.delete_cluster(None, self.cluster)
        self.cluster.status = "DELETE_IN_PROGRESS"
        driver.BOARD._at = None
        self.assertEqual(self.sync(), "DELETE_COMPLETE")

    def test_a_status_that_can_not_be_read_stays(self):
        self.create()
        self.server.next = [(500, {"message": "down"})]
        self.assertEqual(self.sync(), "CREATE_IN_PROGRESS")
        self.cluster.save.assert_not_called()

    def test_a_group_that_goes_is_removed_when_windlass_has_done_it(self):
        self.create()
        group = self.cluster.nodegroups[1]
        group.status = "DELETE_IN_PROGRESS"
        self.driver.delete_nodegroup(None, self.cluster, group)
        self.assertEqual(len(self.server.objects[PATH]["spec"]["nodeGroups"]), 1)
        self.tell("UPDATE_IN_PROGRESS")
        self.assertEqual(self.sync(), "UPDATE_IN_PROGRESS")
        group.destroy.assert_not_called()
        self.tell("UPDATE_COMPLETE")
        self.assertEqual(self.sync(), "UPDATE_COMPLETE")
        group.destroy.assert_called_once()

    def test_what_failed_and_goes_on_is_looked_at_again(self):
        self.create()
        self.cluster.status = "CREATE_FAILED"
        self.tell("CREATE_COMPLETE", health={"status": "HEALTHY", "reasons": {"api": "ok"}})
        monitor = self.driver.get_monitor(None, self.cluster)
        monitor.poll_health_status()
        self.assertEqual(self.cluster.status, "CREATE_IN_PROGRESS")
        self.assertEqual(monitor.data, {"health_status": "HEALTHY", "health_status_reason": {"api": "ok"}})


if __name__ == "__main__":
    unittest.main()
