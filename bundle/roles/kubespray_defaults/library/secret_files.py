#!/usr/bin/python
"""Carry small text files (keys, certificates) between hosts through the controller's memory."""

from __future__ import annotations

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: secret_files
short_description: Read or write a set of small text files at once
description:
  - Reads O(paths) and returns them by path, or writes O(files), each atomically and with mode 0600.
  - Use it with C(no_log), one task for any number of files.
options:
  paths:
    description: Files to read. A missing one is an error.
    type: list
    elements: path
  files:
    description: File contents by path to write.
    type: dict
"""

EXAMPLES = r"""
- name: Read the keys
  secret_files:
    paths: [/etc/kubernetes/pki/ca.key]
  register: keys
  no_log: true
"""

RETURN = r"""
files:
  description: The contents by path.
  type: dict
  returned: when reading
"""


def read(paths: list[str]) -> dict[str, str]:
    contents = {}
    for path in paths:
        with open(path, encoding="utf-8") as handle:
            contents[path] = handle.read()
    return contents


def write(path: str, content: str) -> bool:
    """Return whether the file had to be written."""
    try:
        with open(path, encoding="utf-8") as handle:
            if handle.read() == content:
                return False
    except FileNotFoundError:
        pass
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    # mkstemp creates the file with mode 0600.
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".secret-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    os.rename(temporary, path)
    return True


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "paths": {"type": "list", "elements": "path"},
            "files": {"type": "dict", "no_log": True},
        },
        mutually_exclusive=[["paths", "files"]],
        required_one_of=[["paths", "files"]],
    )
    try:
        if module.params["paths"]:
            module.exit_json(changed=False, files=read(module.params["paths"]))
        changed = [path for path, content in module.params["files"].items() if write(path, content)]
    except OSError as error:
        module.fail_json(msg=f"cannot carry {error.filename}: {error.strerror}")
    module.exit_json(changed=bool(changed), written=changed)


if __name__ == "__main__":
    main()
