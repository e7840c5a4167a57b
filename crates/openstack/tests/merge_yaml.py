"""Merges random trees with kolla-ansible's own plug-in for YAML, and reads what we made of them: for each tree null where the plug-in
refuses, true where both come to the same, or what the plug-in comes to."""

import importlib.util
import json
import pathlib
import sys
import types

import yaml

# The plug-in is used without Ansible: what is asked of it needs none.
for name in ("ansible", "ansible.constants", "ansible.errors", "ansible.plugins", "ansible.plugins.action"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["ansible"].constants = sys.modules["ansible.constants"]
sys.modules["ansible"].errors = sys.modules["ansible.errors"]
sys.modules["ansible.errors"].AnsibleModuleError = Exception
sys.modules["ansible.plugins"].action = sys.modules["ansible.plugins.action"]
sys.modules["ansible.plugins.action"].ActionBase = object

[path] = pathlib.Path(sys.argv[1]).rglob("merge_yaml.py")
spec = importlib.util.spec_from_file_location("merge_yaml", path)
plugin = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plugin)


def exact(value):
    """A value with its type: to Python, 1 and True are the same."""
    if isinstance(value, dict):
        return {"map": sorted([exact(key), exact(part)] for key, part in value.items())}
    if isinstance(value, list):
        return {"list": [exact(part) for part in value]}
    return f"{type(value).__name__} {value!r}"


def merged(sources):
    output = {}
    for source in sources:
        # As `read_config` does it.
        plugin.Utils.update_nested_conf(output, yaml.safe_load(source) or {})
    return yaml.safe_load(yaml.dump(output, default_flow_style=False, width=None))


def compared(sources, ours):
    try:
        expected = exact(merged(sources))
    except Exception:
        return None
    try:
        return ours is not None and exact(yaml.safe_load(ours)) == expected or expected
    except Exception as error:
        return str(error)


json.dump([compared(*tree) for tree in json.load(sys.stdin)], sys.stdout)
