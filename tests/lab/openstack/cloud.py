"""Nova, Glance and Neutron, as far as somebody looks things up in them: a cloud that tells what it has, and makes nothing.

As a program it puts itself into the catalogue of the Keystone that it is given, and prints its port.
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

IMAGE = {"id": "1b8a0b66-8f6f-4a3d-9f2a-6a7d0d0b7c11", "name": "debian", "os_distro": "debian", "status": "active", "kube_version": "v1.34.3"}
FLAVOR = {"id": "1", "name": "metal", "vcpus": 4, "ram": 8192, "disk": 40, "os-flavor-access:is_public": True}
NETWORK = {"id": "b3f7c3a4-0d0e-4f3e-9a35-6d8f3d6e9f01", "name": "public", "router:external": True, "subnets": []}
PAIR = {"name": "shared", "public_key": "ssh-ed25519 AAAA", "fingerprint": "00:11", "user_id": "everybody"}
PAIRS = "/compute/v2.1/os-keypairs"
TOLD = {
    "/image/v2/images": {"images": [IMAGE]},
    "/image/v2/schemas/image": {"name": "image", "properties": {}, "additionalProperties": {"type": "string"}},
    f"/image/v2/images/{IMAGE['id']}": IMAGE,
    "/compute/v2.1/flavors/detail": {"flavors": [FLAVOR]},
    "/compute/v2.1/flavors": {"flavors": [FLAVOR]},
    "/network/v2.0": {"resources": []},
    "/network/v2.0/networks": {"networks": [NETWORK]},
    "/network/v2.0/subnets": {"subnets": []},
    PAIRS: {"keypairs": [{"keypair": PAIR}]},
    f"{PAIRS}/{PAIR['name']}": {"keypair": PAIR},
}


def version(identity, address, **more):
    link = {"rel": "self", "href": address}
    return {"id": identity, "status": "CURRENT", "links": [link], **more}


class Cloud(BaseHTTPRequestHandler):
    """What is asked of it. There are no projects, so the key pair is everybody's, and nobody takes it away."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.path.partition("?")[0].rstrip("/")
        base = f"http://{self.headers['Host']}"
        told = {
            "/compute": {"versions": [version("v2.1", f"{base}/compute/v2.1/", version="2.96", min_version="2.1")]},
            "/compute/v2.1": {"version": version("v2.1", f"{base}/compute/v2.1/", version="2.96", min_version="2.1")},
            "/image": {"versions": [version("v2.9", f"{base}/image/v2/")]},
            "/image/v2": {"versions": [version("v2.9", f"{base}/image/v2/")]},
            "/network": {"versions": [version("v2.0", f"{base}/network/v2.0/")]},
            **TOLD,
        }.get(path)
        self.answer(404 if told is None else 200, told)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == PAIRS:
            self.answer(200, {"keypair": {**PAIR, "private_key": "none"}})
        else:
            self.answer(404)

    def do_DELETE(self):
        self.answer(404)

    def answer(self, status, told=None):
        body = json.dumps(told if told is not None else {"error": {"message": "not found"}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def start():
    """Serves it, and says on which port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def catalogue(keystone, address, password):
    """Puts it into the catalogue; a session of the administrator."""
    session = requests.Session()
    user = {"name": "admin", "domain": {"id": "default"}, "password": password}
    scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
    answer = session.post(f"{keystone}/auth/tokens", json=body)
    answer.raise_for_status()
    session.headers["X-Auth-Token"] = answer.headers["X-Subject-Token"]
    for kind, path in (("compute", "compute/v2.1"), ("image", "image"), ("network", "network")):
        service = session.post(f"{keystone}/services", json={"service": {"name": kind, "type": kind}})
        service.raise_for_status()
        endpoint = {"service_id": service.json()["service"]["id"], "interface": "public", "region_id": None, "url": f"{address}/{path}"}
        session.post(f"{keystone}/endpoints", json={"endpoint": endpoint}).raise_for_status()
    return session


if __name__ == "__main__":
    own = start()
    catalogue(sys.argv[1], f"http://127.0.0.1:{own}", os.environ["OS_BOOTSTRAP_PASSWORD"])
    print(own, flush=True)
    threading.Event().wait()
