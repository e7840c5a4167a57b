"""A Kubernetes API that keeps objects in memory, and tells what it was asked."""

import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """On a free port of loopback, until it is closed."""

    def __init__(self):
        self.objects = {}
        self.asked = []
        # What answers next, instead of the objects: pairs of status and body.
        self.next = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                size = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(size)) if size else None
                path = urllib.parse.urlsplit(self.path)
                outer.asked.append((self.command, path.path, body, dict(self.headers)))
                status, answer = outer.next.pop(0) if outer.next else outer.answer(self.command, path, body)
                text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_one

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method, path, body):
        if method == "GET" and path.path.endswith("/coeclusters"):
            return 200, self._page(urllib.parse.parse_qs(path.query))
        name = path.path
        if method == "POST":
            name += "/" + body["metadata"]["name"]
            if name in self.objects:
                return 409, {"message": "it exists already"}
        stored = self.objects.get(name)
        if method == "PATCH" and stored is None and "apply" not in self.asked[-1][3]["Content-Type"]:
            return 404, {"message": "not found"}
        if method in ("GET", "DELETE"):
            if stored is None:
                return 404, {"message": "not found"}
            if method == "DELETE":
                del self.objects[name]
            return 200, stored
        version = (stored or {}).get("metadata", {}).get("resourceVersion", "0")
        if body.get("metadata", {}).get("resourceVersion", version) != version:
            return 409, {"message": "somebody else was quicker"}
        made = merged(stored or {}, body)
        made["metadata"] = {**made["metadata"], "uid": "u-1", "resourceVersion": str(int(version) + 1)}
        self.objects[name] = made
        return 200, made

    def _page(self, query):
        names = sorted(name for name in self.objects if "/coeclusters/" in name)
        start, count = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        end = start + count
        following = {"continue": str(end)} if end < len(names) else {}
        return {"metadata": following, "items": [self.objects[name] for name in names[start:end]]}


def merged(old, new):
    """A JSON merge patch."""
    result = dict(old)
    for key, value in new.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(result.get(key) or {}, value)
        else:
            result[key] = value
    return result


def kubeconfig(path, server, **user):
    """Writes one that names this server and this user."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {"token": "t-1"}}],
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return path
