"""The tests that OpenStack has for every Magnum (magnum-tempest-plugin), as they were released, against the one in a Keystone's catalogue.

Prints, as one JSON object, what became of each: "ok", or why not. What a person configures for a cloud of theirs is written here.
"""

import json
import os
import sys
import time
import unittest

directory, keystone, *wanted = sys.argv[1:]
CONFIGURATION = """
[DEFAULT]
log_dir = {directory}
log_file = tempest.log
[oslo_concurrency]
lock_path = {directory}
[identity]
uri_v3 = {keystone}
auth_version = v3
region =
v3_endpoint_type = public
[auth]
use_dynamic_credentials = true
admin_username = admin
admin_password = {password}
admin_project_name = admin
admin_domain_name = Default
[service_available]
nova = true
neutron = false
cinder = false
swift = false
magnum = true
[enforce_scope]
magnum = true
[compute]
endpoint_type = public
[magnum]
image_id = debian
flavor_id = metal
master_flavor_id = metal
nic_id = public
network_driver = calico
keypair_name = shared
copy_logs = false
"""


def configure():
    os.makedirs(directory, exist_ok=True)
    known = {"directory": directory, "keystone": keystone, "password": os.environ["OS_BOOTSTRAP_PASSWORD"]}
    with open(os.path.join(directory, "tempest.conf"), "w", encoding="utf-8") as file:
        file.write(CONFIGURATION.format(**known))
    os.environ["TEMPEST_CONFIG_DIR"] = directory
    # Its tests of clusters wait five minutes before they delete, for a real cloud's sake, and a minute between two looks.
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(min(seconds, 0.5))


class Told(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.told = {}

    def note(self, test, what):
        name = test.id().partition("[")[0]
        self.told[name.removeprefix("magnum_tempest_plugin.tests.api.v1.")] = what

    def addSuccess(self, test):
        self.note(test, "ok")

    def addError(self, test, err):
        self.note(test, self._exc_info_to_string(err, test) if isinstance(test, unittest.TestCase) else str(err[1]))

    addFailure = addError

    def addSkip(self, test, reason):
        self.note(test, f"skipped: {reason}")


def each(found):
    for test in found:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


def main():
    configure()
    # A loader of tempest's own knows the options of the plug-in.
    import tempest.config  # noqa: F401

    names = ["test_cluster", "test_cluster_template", "test_cluster_template_admin", "test_magnum_service"]
    modules = [f"magnum_tempest_plugin.tests.api.v1.{below}{name}" for below in ("", "rbac.") for name in names]
    found = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromName(name) for name in wanted or modules)
    all_told = {}
    # Each by itself: after the first test of a class its account is gone, and the next would go on with that.
    for test in each(found):
        told = Told()
        unittest.TestSuite([test]).run(told)
        all_told |= told.told
    print(json.dumps(all_told))


main()
