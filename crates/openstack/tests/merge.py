"""Merges random trees with kolla-ansible's own plug-in: lists of texts in, texts out; null where it refuses."""

import importlib.util
import io
import json
import pathlib
import sys
import types

# The plug-in is used without Ansible: what is asked of it needs none.
for name in ("ansible", "ansible.constants", "ansible.plugins", "ansible.plugins.action"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["ansible"].constants = sys.modules["ansible.constants"]
sys.modules["ansible.plugins"].action = sys.modules["ansible.plugins.action"]
sys.modules["ansible.plugins.action"].ActionBase = object

[path] = pathlib.Path(sys.argv[1]).rglob("merge_configs.py")
spec = importlib.util.spec_from_file_location("merge_configs", path)
plugin = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plugin)


def merged(sources):
    parser = plugin.OverrideConfigParser()
    for source in sources:
        try:
            parser.parse(io.StringIO(source))
        except Exception:
            return None
    written = io.StringIO()
    parser.write(written)
    return written.getvalue()


json.dump([merged(sources) for sources in json.load(sys.stdin)], sys.stdout)
