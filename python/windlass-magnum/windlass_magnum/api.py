"""The Kubernetes API that Windlass keeps its objects in.

A session is what one call of Magnum does there: it has a time by which all of it is done. Nothing is kept open between
sessions, and the kubeconfig is read anew for each, so that credentials can be exchanged while Magnum runs.
"""

import base64
import http.client
import json
import os
import socket
import ssl
import tempfile
import threading
import time
import urllib.parse

import yaml

GROUP = "/apis/magnum.windlass.dev/v1alpha1"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
MANAGER = "windlass-magnum"

# The most that is read of an answer and of a kubeconfig, in bytes, and of what is told of a refusal, in characters.
LONGEST_ANSWER = 64 << 20
LONGEST_KUBECONFIG = 1 << 20
LONGEST_REASON = 1024
# How many objects one request of a list brings.
PAGE = 500


class Error(Exception):
    """Something was not done; ``status`` is what the API answered, if it did."""

    def __init__(self, message, status=None):
        super().__init__(message)
        self.status = status


def plain(text):
    """Text of others, in one line that fits a reason."""
    text = "".join(c if c.isprintable() else " " for c in str(text))
    return " ".join(text.split())[:LONGEST_REASON]


class Access:
    """What a kubeconfig says: where the API is, who it is, and who asks."""

    def __init__(self, path):
        self.path = path
        config = self._read()
        context = self._named(config, "contexts", config.get("current-context"), "context")
        cluster = self._named(config, "clusters", context.get("cluster"), "cluster")
        user = self._named(config, "users", context.get("user"), "user")
        self.server = self._server(cluster)
        self.tls = self._tls(cluster, user) if self.server.scheme == "https" else None
        self.token = self._token(user)

    def _wrong(self, what):
        return Error(f"[windlass] kubeconfig {self.path}: {what}")

    def _read(self):
        try:
            with open(self.path, "rb") as file:
                text = file.read(LONGEST_KUBECONFIG + 1)
        except OSError as error:
            raise self._wrong(f"{error.strerror}; name a kubeconfig that Magnum's user can read") from None
        if len(text) > LONGEST_KUBECONFIG:
            raise self._wrong(f"it has more than {LONGEST_KUBECONFIG} bytes")
        try:
            config = yaml.safe_load(text)
        except yaml.YAMLError:
            # What the parser says shows the text, which has secrets.
            raise self._wrong("it is not YAML") from None
        if not isinstance(config, dict):
            raise self._wrong("it is not a kubeconfig")
        return config

    def _named(self, config, kind, name, member):
        for entry in config.get(kind) or []:
            if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(member), dict):
                return entry[member]
        raise self._wrong(f"{kind} has no {name!r}; each kubeconfig needs current-context, and what that names")

    def _server(self, cluster):
        server = urllib.parse.urlsplit(str(cluster.get("server", "")))
        if server.scheme not in ("https", "http") or not server.hostname:
            raise self._wrong("server is not an https address")
        loopback = server.hostname in ("localhost", "127.0.0.1", "::1")
        if server.scheme == "http" and not loopback:
            raise self._wrong("server is an http address: a token is as good as its user, use https")
        return server

    def _tls(self, cluster, user):
        if cluster.get("insecure-skip-tls-verify"):
            raise self._wrong("insecure-skip-tls-verify is not supported; give certificate-authority")
        if user.get("exec") or user.get("auth-provider"):
            raise self._wrong("users that run programs are not supported; give a token or a certificate")
        try:
            authority = self._data(cluster, "certificate-authority")
            context = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
            certificate, key = (self._data(user, name) for name in ("client-certificate", "client-key"))
            if certificate and key:
                # OpenSSL reads them from a file only; it goes at once, and nobody else can read it.
                with tempfile.NamedTemporaryFile(prefix="windlass-magnum-") as file:
                    file.write(certificate + b"\n" + key)
                    file.flush()
                    context.load_cert_chain(file.name)
        except (ssl.SSLError, UnicodeDecodeError):
            raise self._wrong("a certificate or key in it can not be used") from None
        return context

    def _data(self, place, name):
        """Bytes that are in the kubeconfig, or in a file that it names."""
        if place.get(f"{name}-data"):
            try:
                return base64.b64decode(str(place[f"{name}-data"]), validate=True)
            except ValueError:
                raise self._wrong(f"{name}-data is not base64") from None
        if place.get(name):
            return self._file(name, str(place[name]))
        return None

    def _file(self, name, path):
        path = os.path.join(os.path.dirname(self.path), path)
        try:
            with open(path, "rb") as file:
                return file.read(LONGEST_KUBECONFIG)
        except OSError as error:
            raise self._wrong(f"{name} {path}: {error.strerror}") from None

    def _token(self, user):
        if user.get("token"):
            token = str(user["token"])
        elif user.get("tokenFile"):
            token = self._file("tokenFile", str(user["tokenFile"])).decode("ascii", "replace")
        else:
            return None
        token = token.strip()
        if not token.isascii() or not token.isprintable():
            raise self._wrong("the token is not one")
        return token


class Session:
    """What one call of Magnum does, all of it within ``timeout`` seconds."""

    def __init__(self, kubeconfig, timeout):
        self._access = Access(kubeconfig)
        self._timeout = timeout
        self._end = time.monotonic() + timeout

    def _left(self):
        left = self._end - time.monotonic()
        if left <= 0:
            raise socket.timeout
        return left

    def call(self, method, path, body=None, kind="application/json", **query):
        """One request. What is answered is an object; None where there is nothing by that name."""
        try:
            status, text = self._exchange(method, path, body, kind, query)
        except (socket.timeout, TimeoutError):
            raise Error(f"Windlass did not answer within {self._timeout} seconds") from None
        except (OSError, http.client.HTTPException) as error:
            raise Error(f"Windlass can not be reached: {plain(error)}") from None
        try:
            answer = json.loads(text) if text else {}
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Error(f"Windlass answered {status} with something that is no object", status)
        if status == 404 and method in ("GET", "DELETE"):
            return None
        if not 200 <= status < 300:
            told = plain(answer.get("message") or http.client.responses.get(status, ""))
            raise Error(f"Windlass refused with {status}: {told}", status)
        return answer

    def _exchange(self, method, path, body, kind, query):
        server = self._access.server
        port, left = server.port, self._left()
        if self._access.tls:
            connection = http.client.HTTPSConnection(server.hostname, port, timeout=left, context=self._access.tls)
        else:
            connection = http.client.HTTPConnection(server.hostname, port, timeout=left)
        headers = {"Accept": "application/json", "User-Agent": MANAGER}
        if self._access.token:
            headers["Authorization"] = f"Bearer {self._access.token}"
        if body is not None:
            body, headers["Content-Type"] = json.dumps(body), kind
        address = server.path.rstrip("/") + path
        if query:
            address += "?" + urllib.parse.urlencode(query)
        try:
            connection.request(method, address, body, headers)
            answer = connection.getresponse()
            text = bytearray()
            while True:
                if connection.sock:
                    connection.sock.settimeout(self._left())
                part = answer.read1(1 << 16)
                if not part:
                    return answer.status, bytes(text)
                text += part
                if len(text) > LONGEST_ANSWER:
                    raise Error(f"Windlass answered with more than {LONGEST_ANSWER} bytes")
        finally:
            connection.close()

    def clusters(self):
        """All CoeClusters, by their UUID."""
        found, query = {}, {"limit": PAGE}
        while True:
            page = self.call("GET", f"{GROUP}/coeclusters", **query)
            if page is None:
                raise Error("Windlass does not know CoeClusters: start it with --magnum")
            for cluster in page.get("items") or []:
                found[cluster["metadata"]["name"]] = cluster
            following = page.get("metadata", {}).get("continue")
            if not following:
                return found
            query["continue"] = following


class Board:
    """What all clusters are like, read once for all who ask at about the same time.

    Magnum asks for each cluster that something is done to, every ten seconds, one after the other.
    """

    # How long a reading serves, in seconds: less than the time between two rounds of Magnum.
    SERVES = 5

    def __init__(self, read, clock=time.time):
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._at = None
        self._clusters = {}
        # Why the last reading failed, and when it had.
        self._error = None
        self._failed = None

    def cluster(self, uuid, changed):
        """A cluster as it is after Magnum last changed it; None where there is none.

        A reading from before that would tell how what was asked for earlier has ended. A reading that failed serves as well: those
        who waited for it would otherwise wait for an API that does not answer one after the other.
        """
        with self._lock:
            now = self._clock()
            if self._error and self._failed <= now < self._failed + self.SERVES:
                raise Error(str(self._error), self._error.status)
            serves = self._at is not None and self._at <= now < self._at + self.SERVES
            # Databases keep seconds, some of them rounded up.
            if not serves or self._at < changed + 1:
                try:
                    self._clusters = self._read()
                except Error as error:
                    self._error, self._failed = error, self._clock()
                    raise
                self._at, self._error = now, None
            return self._clusters.get(uuid)
