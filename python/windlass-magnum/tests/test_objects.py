import datetime
import types
import unittest

from windlass_magnum import api, objects


def nodegroup(uuid="w", **members):
    known = {
        "uuid": uuid, "name": f"group-{uuid}", "role": "worker", "is_default": False, "node_count": 2, "min_node_count": 0,
        "max_node_count": None, "flavor_id": "metal", "image_id": "debian", "docker_volume_size": None, "labels": {"a": True},
        "status": "CREATE_IN_PROGRESS", "created_at": datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
    }
    return types.SimpleNamespace(**{**known, **members})


def cluster(**members):
    known = {
        "uuid": "u", "name": "first", "project_id": "p1", "user_id": "ann", "cluster_template_id": "t", "labels": {"kube_tag": "v1.34.3"},
        "keypair": None, "docker_volume_size": None, "flavor_id": "metal", "master_flavor_id": None, "fixed_network": None,
        "fixed_subnet": None, "discovery_url": None, "floating_ip_enabled": True, "master_lb_enabled": False,
        "nodegroups": [nodegroup("m", role="master"), nodegroup("w")],
    }
    return types.SimpleNamespace(**{**known, **members})


def template(**members):
    return types.SimpleNamespace(**{"network_driver": "calico", "server_type": "bm", **members})


def stored(status=None, **metadata):
    groups = [{"uuid": "m"}, {"uuid": "w", "nodesToRemove": ["n2"]}]
    return {"metadata": {"generation": 2, **metadata}, "spec": {"nodeGroups": groups}, "status": status or {}}


class Wishes(unittest.TestCase):
    def test_a_cluster_has_what_magnum_has_and_nothing_else(self):
        made = objects.cluster(cluster(), template(), 30)
        self.assertEqual(made["metadata"], {"name": "u", "finalizers": ["magnum.windlass.dev/hosts"]})
        spec = made["spec"]
        self.assertEqual((spec["kubernetesVersion"], spec["createTimeout"], spec["serverType"]), ("1.34.3", 30, "bm"))
        self.assertNotIn("keypair", spec)
        self.assertEqual([group["uuid"] for group in spec["nodeGroups"]], ["m", "w"])
        self.assertEqual(spec["nodeGroups"][1]["labels"], {"a": "True"})
        self.assertEqual(spec["nodeGroups"][1]["createdAt"], "2026-01-02T00:00:00+00:00")

    def test_labels_and_taints_of_nodes_are_told_where_magnum_has_them(self):
        taint = {"key": "gpu", "value": None, "effect": "NoSchedule"}
        made = objects.group(nodegroup(node_labels={"x": "y"}, node_taints=[taint]))
        self.assertEqual(made["nodeLabels"], {"x": "y"})
        self.assertEqual(made["nodeTaints"], [{"key": "gpu", "effect": "NoSchedule"}])

    def test_what_windlass_can_not_make_is_refused_in_words(self):
        for wrong in (
            lambda: objects.cluster(cluster(), template(network_driver="weave"), 30),
            lambda: objects.cluster(cluster(labels={"kube_tag": "newest"}), template(), 30),
            lambda: objects.namespace("../kube-system"),
            lambda: objects.namespace(None),
        ):
            self.assertRaises(api.Error, wrong)

    def test_groups_that_go_and_groups_that_could_not_be_made_are_left_out(self):
        all_groups = [
            nodegroup("m", role="master"), nodegroup("w", status="CREATE_FAILED"),
            nodegroup("gone", status="DELETE_IN_PROGRESS"), nodegroup("bad", status="CREATE_FAILED"), nodegroup("new"),
        ]
        made = objects.groups(all_groups, stored()["spec"]["nodeGroups"])
        self.assertEqual([group["uuid"] for group in made], ["m", "w", "new"])

    def test_nodes_that_have_to_go_are_kept_until_the_group_is_resized_again(self):
        groups = [nodegroup("m", role="master"), nodegroup("w")]
        known = stored()["spec"]["nodeGroups"]
        self.assertEqual(objects.groups(groups, known)[1]["nodesToRemove"], ["n2"])
        self.assertEqual(objects.groups(groups, known, {"w": ["n3"]})[1]["nodesToRemove"], ["n3"])
        self.assertNotIn("nodesToRemove", objects.groups(groups, known, {"w": []})[1])

    def test_a_version_goes_up_by_one_minor_at_most(self):
        def unfit(has, wanted):
            return objects.unfit({"spec": {}, "status": {"coeVersion": has}}, wanted)

        for fine in (("v1.34.3", "1.34.4"), ("v1.34.3", "1.35.0"), ("v1.34.3", "1.34.3"), (None, "1.40.0")):
            self.assertIsNone(unfit(*fine), fine)
        for wrong in (("v1.34.3", "1.36.0"), ("v1.34.3", "1.34.2"), ("v1.34.3", "1.33.9"), ("v1.34.3", "2.0.0")):
            self.assertIsNotNone(unfit(*wrong), wrong)


class Standings(unittest.TestCase):
    def test_what_was_not_looked_at_yet_is_in_progress(self):
        rows = [
            ({}, {}, "IN_PROGRESS"),
            ({"state": "CREATE_COMPLETE", "observedGeneration": 2}, {}, "COMPLETE"),
            ({"state": "CREATE_COMPLETE", "observedGeneration": 1}, {}, "IN_PROGRESS"),
            ({"state": "UPDATE_FAILED", "observedGeneration": 2}, {}, "FAILED"),
            ({"state": "UPDATE_FAILED", "observedGeneration": 1}, {}, "IN_PROGRESS"),
            ({"state": "CREATE_COMPLETE", "observedGeneration": 2}, {"deletionTimestamp": "x"}, "IN_PROGRESS"),
            ({"state": "DELETE_FAILED", "observedGeneration": 2}, {"deletionTimestamp": "x"}, "FAILED"),
            ({"state": "SOMETHING_NEW", "observedGeneration": 2}, {}, "IN_PROGRESS"),
        ]
        for status, metadata, wanted in rows:
            self.assertEqual(objects.Standing(stored(status, **metadata)).outcome, wanted, (status, metadata))

    def test_a_group_stands_as_it_is_told_to_and_with_its_cluster_while_that_is_at_work(self):
        groups = {"w": {"state": "UPDATE_FAILED", "reason": "no host", "nodeAddresses": ["10.0.0.2"]}}
        standing = objects.Standing(stored({"state": "UPDATE_FAILED", "observedGeneration": 2, "groups": groups}))
        self.assertEqual(standing.group("w"), ("FAILED", "no host", ["10.0.0.2"]))
        standing = objects.Standing(stored({"state": "UPDATE_FAILED", "observedGeneration": 1, "groups": groups}))
        self.assertEqual(standing.group("w")[0], "IN_PROGRESS")
        self.assertTrue(standing.has("w"))
        self.assertFalse(standing.has("x"))


if __name__ == "__main__":
    unittest.main()
