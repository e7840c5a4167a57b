"""A server that answers every path with the trouble that it names, plain and behind each certificate that it is given.

Prints the port of each, plain first, on one line."""

import http.server
import ssl
import sys
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.split("?")[0].strip("/")
        if name == "silent":
            time.sleep(60)
            return
        self.send_response(int(name) if name.isdigit() else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


servers = [Server(("127.0.0.1", 0), Handler)]
for pem in sys.argv[1:]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    servers.append(server)
print(*[server.server_address[1] for server in servers], flush=True)
for server in servers[1:]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
servers[0].serve_forever()
