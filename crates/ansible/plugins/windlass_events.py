"""Streams what a playbook does as JSON lines, and lets the caller pause and stop it between two tasks.

The file named by WINDLASS_EVENTS is the stream: one line per event, appended with a single write, numbered from 1 per process.
The datagram socket named by WINDLASS_DOORBELL only says that there is more to read, so a reader that is away loses nothing.
What WINDLASS_MASK names, a JSON list of texts, is masked in every event and in all that Ansible prints, before it is cut.
While the file PAUSE exists in WINDLASS_CONTROL the next task waits; when STOP exists the playbook ends before it.
The file named by WINDLASS_LEAVE says until when the playbook may work, in nanoseconds since boot, suspended or not. When that is
over, nothing more is begun on any host and the playbook is killed, workers and all, whatever becomes of its caller.

Parameter names of the v2_ methods are part of the contract with Ansible: a renamed one raises a TypeError that Ansible
swallows, and the event is lost without a word.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = """
    name: windlass_events
    type: notification
    short_description: Streams events as JSON lines
    description:
        - Appends what a playbook does to a file and rings a socket.
    requirements:
        - WINDLASS_EVENTS in the environment
"""

import json
import os
import signal
import socket
import sys
import threading
import time

from ansible.plugins.callback import CallbackBase

# What a person needs of a failure fits; a module that dumps a whole file does not.
MESSAGE_LIMIT = 2000
NAME_LIMIT = 256
# Lines at the end of an output say why; those before say how it got there.
TAIL_LINES = 20
POLL_SECONDS = 0.1
# How long after its end a leave is noticed in the middle of a task.
LEAVE_SECONDS = 0.2
MASK = "********"

_secrets = []


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "windlass_events"
    CALLBACK_NEEDS_ENABLED = True
    CALLBACK_NEEDS_WHITELIST = True

    def __init__(self, *args, **kwargs):
        super(CallbackModule, self).__init__(*args, **kwargs)
        self._sequence = 0
        self._lost = 0
        self._play = 0
        self._task = 0
        self._run = os.environ.get("WINDLASS_RUN", "")
        self._control = os.environ.get("WINDLASS_CONTROL")
        self._doorbell = os.environ.get("WINDLASS_DOORBELL")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        _read_mask(os.environ.get("WINDLASS_MASK"))
        path = os.environ.get("WINDLASS_EVENTS")
        self.disabled = not path
        self._file = _open(path) if path else None
        self._leave = os.environ.get("WINDLASS_LEAVE")
        self._until = 0
        if self._leave:
            guard = threading.Thread(target=self._guard)
            guard.daemon = True
            guard.start()

    # Playbook and plays.

    def v2_playbook_on_start(self, playbook):
        try:
            plays = len(playbook.get_plays())
        except Exception:
            plays = None
        self._emit("playbook_start", playbook=getattr(playbook, "_file_name", ""), plays=plays, pid=os.getpid())

    def v2_playbook_on_play_start(self, play):
        self._play += 1
        self._emit("play_start", play=self._play, name=_cap(play.get_name(), NAME_LIMIT), hosts=_hosts(play))

    def v2_playbook_on_no_hosts_matched(self):
        self._emit("no_hosts_matched", play=self._play)

    def v2_playbook_on_no_hosts_remaining(self):
        self._emit("no_hosts_remaining", play=self._play)

    def v2_playbook_on_stats(self, stats):
        hosts = {}
        for host in sorted(stats.processed.keys()):
            summary = stats.summarize(host)
            hosts[host] = {
                "ok": summary.get("ok", 0),
                "changed": summary.get("changed", 0),
                "skipped": summary.get("skipped", 0),
                "failed": summary.get("failures", 0),
                "unreachable": summary.get("unreachable", 0),
                "rescued": summary.get("rescued", 0),
                "ignored": summary.get("ignored", 0),
            }
        self._emit("stats", hosts=hosts)

    # Tasks.

    def v2_playbook_on_task_start(self, task, is_conditional):
        self._task_start(task, False)

    def v2_playbook_on_handler_task_start(self, task):
        self._task_start(task, True)

    def v2_playbook_on_cleanup_task_start(self, task):
        self._task_start(task, False)

    def v2_playbook_on_include(self, included_file):
        self._emit("include", file=_cap(getattr(included_file, "_filename", ""), 1024))

    def _task_start(self, task, handler):
        self._obey()
        self._heed_leave()
        self._task += 1
        self._emit(
            "task_start",
            play=self._play,
            task=self._task,
            name=_cap(task.get_name(), NAME_LIMIT),
            action=_text(task.action),
            path=_path(task),
            handler=handler,
            run_once=bool(getattr(task, "run_once", False)),
        )

    # Results on hosts.

    def v2_runner_on_start(self, host, task):
        self._heed_leave()
        self._emit("host_start", host=host.get_name(), task=self._task)

    def v2_runner_on_ok(self, result):
        values = _result(result)
        self._host("ok", result, changed=bool(values.get("changed")))

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._host("failed", result, ignored=bool(ignore_errors), **_why(result))

    def v2_runner_on_unreachable(self, result):
        ignored = bool(getattr(_task(result), "ignore_unreachable", False))
        self._host("unreachable", result, ignored=ignored, **_why(result))

    def v2_runner_on_skipped(self, result):
        self._host("skipped", result)

    def v2_runner_retry(self, result):
        values = _result(result)
        self._host("retry", result, attempts=values.get("attempts"), retries=values.get("retries"), **_why(result))

    def v2_runner_item_on_ok(self, result):
        values = _result(result)
        self._item("ok", result, changed=bool(values.get("changed")))

    def v2_runner_item_on_failed(self, result):
        self._item("failed", result, **_why(result))

    def v2_runner_item_on_skipped(self, result):
        self._item("skipped", result)

    def _host(self, event, result, **fields):
        self._emit(event, host=_host_name(result), task=self._task, name=_cap(_task(result).get_name(), NAME_LIMIT), **fields)

    def _item(self, outcome, result, **fields):
        label = None if _is_secret(result) else _label(result)
        self._emit("item", host=_host_name(result), task=self._task, outcome=outcome, item=label, **fields)

    # Steering.

    def _obey(self):
        if not self._control:
            return
        self._stop_if_asked()
        if not os.path.exists(os.path.join(self._control, "PAUSE")):
            return
        self._emit("paused", play=self._play)
        while os.path.exists(os.path.join(self._control, "PAUSE")):
            self._stop_if_asked()
            time.sleep(POLL_SECONDS)
        self._emit("resumed", play=self._play)

    def _stop_if_asked(self):
        if not os.path.exists(os.path.join(self._control, "STOP")):
            return
        self._emit("stopped", play=self._play)
        os.kill(os.getpid(), signal.SIGINT)
        # The signal is delivered here, before the task is handed to any host.
        time.sleep(POLL_SECONDS)

    # Leave to work.

    def _guard(self):
        while self._may_work():
            time.sleep(LEAVE_SECONDS)
        os.write(2, b"windlass: nobody vouches for this playbook any more, so it ends\n")
        playbook = os.getpid()
        # Somebody else must do it: what is stopped first begins nothing more while its workers are killed.
        if os.fork() == 0:
            try:
                _kill(playbook)
            finally:
                os._exit(0)

    def _may_work(self):
        self._until = _leave_until(self._leave)
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) < self._until

    def _heed_leave(self):
        """Goes no further without leave: the guard ends the playbook."""
        if not self._leave:
            return
        while time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= self._until and not self._may_work():
            time.sleep(POLL_SECONDS)

    # The stream.

    def _emit(self, event, **fields):
        if self._file is None:
            return
        self._sequence += 1
        record = {"run": self._run, "sequence": self._sequence, "time": time.time(), "event": event}
        if self._lost:
            record["lost"] = self._lost
        record.update((key, value) for key, value in fields.items() if value is not None)
        line = json.dumps(record, default=_text, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        try:
            _write(self._file, line)
            self._lost = 0
        except OSError:
            self._lost += 1
        self._ring()

    def _ring(self):
        if not self._doorbell:
            return
        try:
            self._socket.sendto(b"%d" % self._sequence, self._doorbell)
        except OSError:
            pass


class _Masked(object):
    """A stream that nothing secret goes through."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text):
        return self._stream.write(_text(text))

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def __getattr__(self, name):
        return getattr(self._stream, name)


def _read_mask(path):
    """Reads what is to be masked, the longest first. Without it no task may run: Ansible only warns of a plugin that fails."""
    if not path or _secrets:
        return
    try:
        with open(path, "rb") as file:
            _secrets.extend(json.loads(file.read().decode("utf-8")))
    except Exception as error:
        raise SystemExit("windlass: cannot read what is to be masked: %s" % error)
    # Ansible looks up both at every line that it prints.
    sys.stdout = _Masked(sys.stdout)
    sys.stderr = _Masked(sys.stderr)


def _open(path):
    """Opens the stream, and ends a line that a killed process left half written."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        os.write(descriptor, b"\n")
    return descriptor


def _leave_until(path):
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _kill(playbook):
    """Kills a playbook and its workers. Since ansible-core 2.18 each of these is a session of its own."""
    os.setsid()
    group = os.getpgid(playbook)
    os.kill(playbook, signal.SIGSTOP)
    for _ in range(100):
        if _stat(playbook)[0] in "TtZX":
            break
        time.sleep(0.01)
    for pid in _pids():
        try:
            own = os.getpgid(pid)
            if _stat(pid)[1] == playbook and own not in (group, os.getpid()):
                os.killpg(own, signal.SIGKILL)
        except OSError:
            pass
    os.killpg(group, signal.SIGKILL)


def _pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid):
    """The state of a process, X for one that is gone, and its parent."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return "X", 0
    return state, int(parent)


def _write(descriptor, line):
    while line:
        line = line[os.write(descriptor, line) :]


def _hosts(play):
    """The hosts that the play, or its current batch, is about, after the limit."""
    try:
        inventory = play.get_variable_manager()._inventory
        return [host.get_name() for host in inventory.get_hosts(play.hosts, order=getattr(play, "order", None))]
    except Exception:
        return None


def _task(result):
    return getattr(result, "task", None) or result._task


def _host_name(result):
    return (getattr(result, "host", None) or result._host).get_name()


def _result(result):
    values = getattr(result, "result", None)
    return values if values is not None else result._result


def _is_secret(result):
    values = _result(result)
    return bool(values.get("_ansible_no_log") or "censored" in values or getattr(_task(result), "no_log", False) is True)


def _label(result):
    values = _result(result)
    label = values.get("_ansible_item_label", values.get("item"))
    return None if label is None else _cap(label, NAME_LIMIT)


def _why(result):
    """What a person needs to know of a failure: never the invocation, never the command line."""
    if _is_secret(result):
        return {"message": "the result is hidden: the task says no_log", "hidden": True}
    values = _failing_item(_result(result))
    if _is_censored(values):
        return {"message": "the result is hidden: the task says no_log", "hidden": True}
    fields = {"message": _tail(values.get("msg") or values.get("reason") or "")}
    for key in ("stderr", "stdout", "exception"):
        text = _tail(values.get(key) or values.get("module_" + key) or "")
        if text:
            fields[key] = text
    if isinstance(values.get("rc"), int):
        fields["rc"] = values["rc"]
    return fields


def _failing_item(values):
    """The first item of a loop that failed says more than the loop's own "One or more items failed"."""
    for item in values.get("results") or ():
        if isinstance(item, dict) and (item.get("failed") or item.get("unreachable")):
            return item
    return values


def _is_censored(values):
    return bool(values.get("_ansible_no_log") or "censored" in values)


def _path(task):
    try:
        return _cap(task.get_path() or "", 1024)
    except Exception:
        return ""


def _tail(text):
    lines = [line.rstrip() for line in _text(text).splitlines() if line.strip()]
    return "\n".join(lines[-TAIL_LINES:])[-MESSAGE_LIMIT:]


def _cap(text, limit):
    text = _text(text)
    return text if len(text) <= limit else text[: limit - 1] + u"\u2026"


def _text(value):
    text = value if isinstance(value, str) else str(value)
    for secret in _secrets:
        if secret in text:
            text = text.replace(secret, MASK)
    return text
