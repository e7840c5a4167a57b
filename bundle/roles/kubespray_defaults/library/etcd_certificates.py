#!/usr/bin/python
"""Keep an etcd certificate authority and the certificates under it, with the openssl program."""

from __future__ import annotations

import os
import re
import tempfile

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: etcd_certificates
short_description: Keep the etcd authority and its certificates on one host
description:
  - Makes ca.pem in O(directory) when it is missing and, for each of O(hosts), member-NAME.pem and admin-NAME.pem of
    an etcd member and node-NAME.pem of a client, each with its key beside it.
  - A certificate is made anew when it or its key is missing, they do not belong together, another authority signed
    it, it ends within O(renew_days), or the names that it must carry have changed. All else stays as it is.
options:
  directory: {description: Where the files are, type: path, required: true}
  days: {description: Life of a new certificate, type: int, required: true}
  renew_days: {description: Rest of life at which a certificate is made anew, type: int, default: 30}
  hosts:
    description: What to make, and for whom.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Host name, used in the file names, type: str, required: true}
      member: {description: Whether the host is an etcd member, type: bool, required: true}
      client: {description: Whether the host is an etcd client, type: bool, required: true}
      names: {description: DNS names of the host, type: list, elements: str, required: true}
      addresses: {description: Addresses of the host, type: list, elements: str, required: true}
"""

EXAMPLES = r"""
- name: Make the certificates
  etcd_certificates:
    directory: /etc/ssl/etcd/ssl
    days: 3650
    hosts:
      - {name: m1, member: true, client: true, names: [m1], addresses: [10.0.0.11]}
"""

RETURN = r"""
made:
  description: Names of the certificates that were made.
  type: list
  returned: always
"""

AUTHORITY_DAYS = 36500


class Authority:
    """The directory, seen as an authority and what it has signed."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.directory = module.params["directory"]
        self.made: list[str] = []

    def path(self, name: str, kind: str = "") -> str:
        return os.path.join(self.directory, f"{name}{kind}.pem")

    def openssl(self, *arguments: str, check: bool = True) -> tuple[int, str]:
        code, out, _ = self.module.run_command(["openssl", *arguments], check_rc=check)
        return code, out

    def public_keys_match(self, name: str) -> bool:
        of_certificate = self.openssl("x509", "-in", self.path(name), "-noout", "-pubkey", check=False)
        of_key = self.openssl("pkey", "-in", self.path(name, "-key"), "-pubout", check=False)
        return of_certificate[0] == 0 and of_certificate == of_key

    def alternative_names(self, name: str) -> set[str]:
        _, out = self.openssl("x509", "-in", self.path(name), "-noout", "-ext", "subjectAltName", check=False)
        found = re.findall(r"(DNS|IP Address):([^,\s]+)", out)
        return {f"{'IP' if kind == 'IP Address' else kind}:{value}" for kind, value in found}

    def is_good(self, name: str, wanted: set[str]) -> bool:
        seconds = str(self.module.params["renew_days"] * 86400)
        return (
            os.path.exists(self.path(name))
            and os.path.exists(self.path(name, "-key"))
            and self.public_keys_match(name)
            and self.openssl("verify", "-CAfile", self.path("ca"), self.path(name), check=False)[0] == 0
            and self.openssl("x509", "-in", self.path(name), "-noout", "-checkend", seconds, check=False)[0] == 0
            and self.alternative_names(name) == wanted
        )

    def install(self, name: str, temporary: str) -> None:
        """The key first: a certificate without its key is found out by the next run, and so is the reverse."""
        for kind in ("-key", ""):
            source = os.path.join(temporary, f"new{kind}.pem")
            os.chmod(source, 0o600 if kind else 0o644)
            os.rename(source, self.path(name, kind))
        self.made.append(name)

    def new_key(self, temporary: str) -> str:
        key = os.path.join(temporary, "new-key.pem")
        self.openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
        return key

    def ensure_authority(self) -> None:
        if os.path.exists(self.path("ca")) and os.path.exists(self.path("ca", "-key")) and self.public_keys_match("ca"):
            return
        with tempfile.TemporaryDirectory(dir=self.directory) as temporary:
            key = self.new_key(temporary)
            certificate = os.path.join(temporary, "new.pem")
            self.openssl(
                "req", "-x509", "-new", "-key", key, "-out", certificate, "-subj", "/CN=etcd-ca",
                "-days", str(AUTHORITY_DAYS), "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            )  # fmt: skip
            self.install("ca", temporary)

    def ensure(self, name: str, names: list[str], addresses: list[str]) -> None:
        wanted = {f"DNS:{value}" for value in names} | {f"IP:{value}" for value in addresses}
        if self.is_good(name, wanted):
            return
        with tempfile.TemporaryDirectory(dir=self.directory) as temporary:
            key = self.new_key(temporary)
            request = os.path.join(temporary, "request.pem")
            extensions = os.path.join(temporary, "extensions")
            with open(extensions, "w", encoding="utf-8") as handle:
                handle.write("basicConstraints=CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\n")
                handle.write("extendedKeyUsage=clientAuth,serverAuth\n")
                handle.write(f"subjectAltName={','.join(sorted(wanted))}\n")
            self.openssl("req", "-new", "-key", key, "-out", request, "-subj", f"/CN=etcd-{name}")
            self.openssl(
                "x509", "-req", "-in", request, "-CA", self.path("ca"), "-CAkey", self.path("ca", "-key"),
                "-set_serial", f"0x{os.urandom(15).hex()}", "-days", str(self.module.params["days"]),
                "-extfile", extensions, "-out", os.path.join(temporary, "new.pem"),
            )  # fmt: skip
            self.install(name, temporary)


def main() -> None:
    host = {
        "name": {"type": "str", "required": True},
        "member": {"type": "bool", "required": True},
        "client": {"type": "bool", "required": True},
        "names": {"type": "list", "elements": "str", "required": True},
        "addresses": {"type": "list", "elements": "str", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "days": {"type": "int", "required": True},
            "renew_days": {"type": "int", "default": 30},
            "hosts": {"type": "list", "elements": "dict", "options": host, "required": True},
        },
    )
    authority = Authority(module)
    os.makedirs(authority.directory, mode=0o700, exist_ok=True)
    authority.ensure_authority()
    for wanted in module.params["hosts"]:
        kinds = (["member", "admin"] if wanted["member"] else []) + (["node"] if wanted["client"] else [])
        for kind in kinds:
            authority.ensure(f"{kind}-{wanted['name']}", wanted["names"], wanted["addresses"])
    module.exit_json(changed=bool(authority.made), made=authority.made)


if __name__ == "__main__":
    main()
