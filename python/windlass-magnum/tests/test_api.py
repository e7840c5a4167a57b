import os
import socket
import tempfile
import time
import unittest

from tests import fake
from windlass_magnum import api


class Sessions(unittest.TestCase):
    def setUp(self):
        self.server = fake.Server()
        self.addCleanup(self.server.close)
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.path = os.path.join(place.name, "kubeconfig")

    def session(self, timeout=10):
        return api.Session(fake.kubeconfig(self.path, self.server.address), timeout)

    def refused(self, call, *words):
        with self.assertRaises(api.Error) as caught:
            call()
        for word in words:
            self.assertIn(word, str(caught.exception))
        return caught.exception

    def test_the_token_goes_with_each_request(self):
        self.session().call("GET", "/x")
        self.assertEqual(self.server.asked[0][3]["Authorization"], "Bearer t-1")

    def test_a_list_is_read_in_pages(self):
        for number in range(2 * api.PAGE + 1):
            name = f"{number:04}"
            self.server.objects[f"{api.GROUP}/namespaces/p/coeclusters/{name}"] = {"metadata": {"name": name}}
        self.assertEqual(len(self.session().clusters()), 2 * api.PAGE + 1)
        self.assertEqual(len(self.server.asked), 3)

    def test_what_is_refused_is_told_in_one_short_line(self):
        self.server.next = [(422, {"message": "spec.name:\n\x1b[31m too long " + "x" * 9999})]
        error = self.refused(lambda: self.session().call("PATCH", "/x", {}), "422", "spec.name: [31m too long")
        self.assertEqual(error.status, 422)
        self.assertLess(len(str(error)), 1100)

    def test_an_answer_that_is_no_object_is_an_error(self):
        for answer in (b"<html>", b"[]", b"\xff"):
            self.server.next = [(200, answer)]
            self.refused(lambda: self.session().call("GET", "/x"), "no object")

    def test_a_server_that_says_nothing_is_left_in_time(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            path = fake.kubeconfig(self.path, f"http://127.0.0.1:{silent.getsockname()[1]}")
            began = time.monotonic()
            self.refused(lambda: api.Session(path, 1).call("GET", "/x"), "within 1 seconds")
            self.assertLess(time.monotonic() - began, 10)

    def test_a_server_that_is_not_there_is_an_error(self):
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]
        path = fake.kubeconfig(self.path, f"http://127.0.0.1:{port}")
        self.refused(lambda: api.Session(path, 5).call("GET", "/x"), "can not be reached")

    def test_a_kubeconfig_that_is_of_no_use_says_why(self):
        def of(server="https://127.0.0.1:1", **user):
            return lambda: api.Session(fake.kubeconfig(self.path, server, **user), 5)

        self.refused(lambda: api.Session(self.path + "-none", 5), "[windlass] kubeconfig", "No such file")
        self.refused(of("ftp://x"), "https")
        self.refused(of("http://example.com"), "use https")
        self.refused(of(exec={"command": "sh"}), "users that run programs")
        self.refused(of(token="a\nb"), "token")
        bad = {"client-certificate-data": "bm8=", "client-key-data": "bm8="}
        self.refused(of(**bad), "can not be used")
        for text in ("a: [", "[]", "{}"):
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(text)
            self.refused(lambda: api.Session(self.path, 5), "kubeconfig")

    def test_no_error_shows_a_secret(self):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("users: [{user: {token: hidden}}\n")
        error = self.refused(lambda: api.Session(self.path, 5))
        self.assertNotIn("hidden", str(error))


class Boards(unittest.TestCase):
    def setUp(self):
        self.now, self.reads = 1000.0, 0
        self.board = api.Board(self.read, clock=lambda: self.now)

    def read(self):
        self.reads += 1
        return {"a": self.reads}

    def test_those_who_ask_at_about_the_same_time_share_a_reading(self):
        for _ in range(100):
            self.assertEqual(self.board.cluster("a", 0), 1)
        self.assertIsNone(self.board.cluster("b", 0))
        self.now += api.Board.SERVES
        self.assertEqual(self.board.cluster("a", 0), 2)

    def test_what_was_changed_since_is_read_anew(self):
        self.board.cluster("a", 0)
        self.now += 2
        self.assertEqual(self.board.cluster("a", 999), 1)
        self.assertEqual(self.board.cluster("a", 1001), 2)

    def test_a_reading_that_failed_is_not_tried_by_each_who_asks(self):
        tries = []

        def read():
            tries.append(self.now)
            # It takes long to find out.
            self.now += 20
            raise api.Error("Windlass did not answer", 503)

        board = api.Board(read, clock=lambda: self.now)
        for _ in range(3):
            with self.assertRaisesRegex(api.Error, "did not answer") as caught:
                board.cluster("a", self.now)
            self.assertEqual(caught.exception.status, 503)
        self.assertEqual(len(tries), 1)
        self.now += api.Board.SERVES
        self.assertRaises(api.Error, board.cluster, "a", 0)
        self.assertEqual(len(tries), 2)
        board._read = lambda: {"a": 1}
        self.now += api.Board.SERVES
        self.assertEqual(board.cluster("a", 0), 1)

    def test_a_clock_that_goes_back_does_not_keep_a_reading(self):
        self.board.cluster("a", 0)
        self.now -= 3600
        self.assertEqual(self.board.cluster("a", 0), 2)


if __name__ == "__main__":
    unittest.main()
