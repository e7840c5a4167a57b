"""Streams what a playbook does as JSON lines, and lets the caller pause and stop it between two tasks.

The file named by WINDLASS_EVENTS is the stream: one line per event, appended with a single write, numbered from 1 per process.
The datagram socket named by WINDLASS_DOORBELL only says that there is more to read, so a reader that is away loses nothing.
What WINDLASS_MASK names, a JSON list of texts, is masked in every event and in all that Ansible prints, before it is cut.
What WINDLASS_SECRET_NAMES names, a JSON list, are variables whose values are told of nobody's failure.
While the file PAUSE exists in WINDLASS_CONTROL the next task waits; when STOP exists the playbook ends before it.
The file named by WINDLASS_LEAVE says until when the playbook may work, in nanoseconds since boot, suspended or not. When that is
over, nothing more is begun on any host and the playbook is killed, workers and all, whatever becomes of its caller.

All of it is one file, because that is what Ansible loads.

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
import re
import signal
import socket
import sys
import threading
import time

import jinja2
import jinja2.nodes

from ansible.plugins.callback import CallbackBase
from ansible.template import Templar

# What a person needs of a failure fits; a module that dumps a whole file does not.
MESSAGE_LIMIT = 2000
NAME_LIMIT = 256
# Lines at the end of an output say why; those before say how it got there.
TAIL_LINES = 20
POLL_SECONDS = 0.1
# How long after its end a leave is noticed in the middle of a task.
LEAVE_SECONDS = 0.2
MASK = "********"

# A failure is explained by the values that an expression is about, not by all that there is.
EXPLAINED_RESULTS = 5
EXPLAINED_NAMES = 8
EXPRESSION_LIMIT = 600
VALUE_LIMIT = 120
LIST_LIMIT = 10
# How deep variables may be made of others, and how many are looked at.
DEPTH_LIMIT = 20
LOOK_LIMIT = 500
TEMPLATE_FILE_LIMIT = 256 * 1024
# Names of what nobody should read, whoever set it.
SECRET_NAME = re.compile("pass|secret|token|credential|private|[_-]key|key[_-]|apikey|(^|_)auth$", re.IGNORECASE)
# What brings a value from where nobody can see whether it is secret.
LOOKS_UP = re.compile(r"\b(lookup|query|q)\s*\(")
UNDEFINED = re.compile("is undefined|has no attribute|has no element|AnsibleUndefined|undefined variable|mandatory variable", re.IGNORECASE)

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
        self._secret_names = _names(os.environ.get("WINDLASS_SECRET_NAMES"))
        self._made_of = {}
        self._of_play = None
        self._of_task = None
        self._explained = 0
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
        self._of_play = play
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
        self._of_task = task
        self._explained = 0
        self._note(task)
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
        why = _why(result)
        if not ignore_errors and not why.get("hidden"):
            why.update(self._explain(result))
        self._host("failed", result, ignored=bool(ignore_errors), **why)

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

    def _explain(self, result):
        """What was asked of which variables, and what they are. Whatever goes wrong here, the failure itself is told."""
        values = _failing_item(_result(result))
        is_refused = "assertion" in values
        if not is_refused and not UNDEFINED.search(_text(values.get("msg") or "")):
            return {}
        task = self._as_written(_task(result))
        fields = {"path": _path(task)}
        if is_refused:
            fields["assertion"] = _cap(_assertion(task, values), EXPRESSION_LIMIT)
        if self._explained >= EXPLAINED_RESULTS or self._secret_names is None:
            return fields
        self._explained += 1
        try:
            known = _Variables(self._of_play, task, result, values, self._secret_names, self._made_of)
            if is_refused:
                fields["values"] = known.values(_assertion(task, values))
            else:
                fields["undefined"] = known.undefined(task, _text(values.get("msg") or ""))
        except Exception:
            pass
        return fields

    def _note(self, task):
        """Notes what a variable that a task makes is made of: what is made of a secret is one."""
        hides = getattr(task, "no_log", None) not in (None, False)
        if getattr(task, "register", None):
            self._made_of.setdefault(_text(task.register), []).extend([None] if hides else _leaves(task.args))
        if task.action.rpartition(".")[2] == "set_fact" and isinstance(task.args, dict):
            for name, value in task.args.items():
                self._made_of.setdefault(_text(name), []).extend([None] if hides else _leaves(value))

    def _as_written(self, task):
        """The task before its templates were filled: a result comes with what became of it."""
        is_it = getattr(self._of_task, "_uuid", None) == task._uuid
        return self._of_task if is_it else task

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


class _Variables(object):
    """The variables of a task on a host, as far as a failure is explained by them."""

    def __init__(self, play, task, result, values, secret_names, made_of):
        host = getattr(result, "host", None) or result._host
        variables = play.get_variable_manager().get_vars(play=play, host=host, task=task)
        if "item" in values:
            item = values.get("ansible_loop_var", "item")
            variables[item] = values["item"]
            made_of = dict(made_of, **{item: _leaves(task.loop)})
        self._variables = variables
        self._loader = play.get_loader()
        self._templar = Templar(loader=self._loader, variables=variables)
        self._secret_names = secret_names
        self._made_of = made_of
        self._left = LOOK_LIMIT

    def values(self, expression):
        """The values that an expression is about, by name."""
        told = []
        for path in _paths(expression if _is_template(expression) else "{{ %s }}" % expression):
            if len(told) == EXPLAINED_NAMES:
                break
            if path == ["hostvars"] or path == ["vars"]:
                continue
            if path[0] in self._variables or not _is_global(path[0]):
                told.append(self._told(path))
        return told

    def undefined(self, task, message):
        """The variables that are missing, each with those that are made of it, from the task's own on."""
        found = []
        for text in self._texts(task):
            self._seek(text, [], found)
        named = re.findall("'([^']+)' (?:is undefined|  ?not defined)", message)
        attributes = re.findall("has no attribute '([^']+)'", message)
        # What Ansible names it stumbled over; others may be missing where it did not look.
        hit = [one for one in found if one["name"] in named or one["name"].rpartition(".")[2] in attributes]
        if not hit and named:
            hit = [{"name": name} for name in named]
        unique = []
        for one in hit or ([] if attributes else found):
            if one not in unique:
                unique.append(one)
        return unique[:EXPLAINED_NAMES]

    def _told(self, path):
        name = _cap(".".join(_text(step) for step in path), NAME_LIMIT)
        if self._is_hidden(path):
            return {"name": name, "hidden": True}
        found, value = self._look_up(path)
        if found < len(path):
            return {"name": name, "missing": True}
        return {"name": name, "value": _cap(_shown(value), VALUE_LIMIT)}

    def _is_hidden(self, path):
        # The variables of another host go by the same names.
        return any(self._holds_secret(_text(step), 0) for step in path)

    def _holds_secret(self, name, depth):
        """Whether a variable is secret, or made of what is: all the way down, else it counts as secret."""
        self._left -= 1
        if name in self._secret_names or SECRET_NAME.search(name) or depth > DEPTH_LIMIT or self._left < 0:
            return True
        if _is_magic(name):
            return False
        for leaf in _leaves(self._variables.get(name)) + self._made_of.get(name, []):
            if leaf is None:
                return True
            if "Vault" in type(leaf).__name__ or "vault" in getattr(leaf, "__dict__", ()):
                return True
            if not _is_template(leaf):
                continue
            if LOOKS_UP.search(leaf):
                return True
            if any(self._holds_secret(other, depth + 1) for other in _mentions(leaf) if other != name):
                return True
        return False

    def _look_up(self, path):
        """How far along a path something is there, and the value at its end."""
        if path[0] not in self._variables:
            return 0, None
        value = self._variables[path[0]]
        if not _is_magic(path[0]):
            value = self._templar.template(value, fail_on_undefined=False)
        for found, step in enumerate(path[1:], 1):
            if isinstance(value, jinja2.Undefined):
                return found - 1, None
            try:
                value = value[step]
            except Exception:
                return found, None
        return len(path) - isinstance(value, jinja2.Undefined), value

    def _texts(self, task):
        """What a task is written with. Its templates, if it fills one, are files."""
        fields = [getattr(task, name, None) for name in ("args", "when", "loop", "environment", "until", "become", "delegate_to")]
        for leaf in _leaves(fields[0]):
            yield _text(leaf)
        for condition in _leaves(fields[1]):
            yield _text(condition) if _is_template(condition) else "{{ %s }}" % _text(condition)
        for leaf in _leaves(fields[2:]):
            yield _text(leaf)
        if task.action.rpartition(".")[2] == "assert":
            for condition in _leaves(task.args.get("that")):
                yield "{{ %s }}" % _text(condition)
        if task.action.rpartition(".")[2] == "template":
            source = self._templar.template(task.args.get("src"), fail_on_undefined=False)
            path = self._loader.path_dwim_relative_stack(task.get_search_path(), "templates", source)
            with open(path) as file:
                yield file.read(TEMPLATE_FILE_LIMIT)

    def _seek(self, text, through, found):
        """Adds what a text needs and nobody set, and what the variables that it is made of need."""
        if not _is_template(text) or len(through) > DEPTH_LIMIT:
            return
        for path in _paths(text, only_needed=True):
            self._left -= 1
            if self._left < 0:
                return
            name = path[0]
            if name in through:
                continue
            if name not in self._variables:
                if not _is_global(name):
                    found.append(_missing([name], through))
                continue
            before = len(found)
            for leaf in [] if _is_magic(name) else _leaves(self._variables[name]):
                self._seek(leaf, through + [name], found)
            # What is secret may be looked up from elsewhere, which is not to be done for a message.
            if len(path) == 1 or before < len(found) or self._is_hidden(path):
                continue
            there = self._look_up(path)[0]
            if there < len(path):
                found.append(_missing(path[: there + 1], through))


def _missing(path, through):
    one = {"name": _cap(".".join(_text(step) for step in path), NAME_LIMIT)}
    if through:
        one["through"] = [_cap(name, NAME_LIMIT) for name in through[-LIST_LIMIT:]]
    return one


def _assertion(task, values):
    """The expression as it is written: where it is a template, Ansible tells what became of it."""
    told = _text(values.get("assertion"))
    written = [_text(one) for one in _leaves(task.args.get("that"))]
    templates = [one for one in written if _is_template(one)]
    if told not in written and len(templates) == 1:
        return templates[0]
    return told


def _paths(text, only_needed=False):
    """The variables of a template, as lists of a name and the attributes and keys that are taken of it, in their order."""
    try:
        tree = jinja2.Environment().parse(text)
    except jinja2.TemplateError:
        return []
    paths, optional = [], set()
    _walk(tree, paths, optional)
    own = {node.name for node in tree.find_all(jinja2.nodes.Name) if node.ctx in ("store", "param")}
    unique = []
    for path in paths:
        if path[0] in own or (only_needed and path[0] in optional) or path in unique:
            continue
        unique.append(path)
    return unique


def _mentions(text):
    """Everything in a template that may be the name of a variable, as `b` is in `hostvars[a]['b']`."""
    nodes = jinja2.nodes
    try:
        tree = jinja2.Environment().parse(text)
    except jinja2.TemplateError:
        return set()
    names = {node.name for node in tree.find_all(nodes.Name)} | {node.attr for node in tree.find_all(nodes.Getattr)}
    return names | {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}


def _walk(node, paths, optional):
    """Collects variables, and which of them may be missing: they have a default, or it is asked whether they are there."""
    nodes = jinja2.nodes
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
        # A method, as in `version.split('.')`: what it is called of is the variable.
        _walk(node.node.node, paths, optional)
        for argument in list(node.args) + list(node.kwargs):
            _walk(argument, paths, optional)
        return
    is_default = isinstance(node, nodes.Filter) and node.name in ("default", "d")
    is_asked = isinstance(node, nodes.Test) and node.name in ("defined", "undefined")
    if (is_default or is_asked) and node.node is not None:
        for name in node.node.find_all(nodes.Name) if not isinstance(node.node, nodes.Name) else [node.node]:
            optional.add(name.name)
    path = _path_of(node)
    if path:
        paths.append(path)
        return
    for child in node.iter_child_nodes():
        _walk(child, paths, optional)


def _path_of(node):
    nodes = jinja2.nodes
    if isinstance(node, nodes.Name):
        return [node.name]
    if isinstance(node, nodes.Getattr):
        before, step = _path_of(node.node), node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        before, step = _path_of(node.node), node.arg.value
    else:
        return None
    return before and before + [step]


def _leaves(value, depth=0):
    """The texts and other simple values of a variable as it is written."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        return [] if value is None else [value]
    if depth > DEPTH_LIMIT:
        return []
    return [leaf for one in value for leaf in _leaves(one, depth + 1)]


def _shown(value):
    """A value in few words: a simple one, or a short list of such."""
    if isinstance(value, dict):
        return "a map of %d" % len(value)
    if isinstance(value, (list, tuple)):
        if len(value) > LIST_LIMIT or any(isinstance(one, (dict, list, tuple)) for one in value):
            return "a list of %d" % len(value)
        return "[%s]" % ", ".join(_shown(one) for one in value)
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(_text(value), ensure_ascii=False)
    return "a %s" % type(value).__name__


def _is_template(text):
    return isinstance(text, str) and ("{{" in text or "{%" in text)


def _is_magic(name):
    """What Ansible itself makes of all hosts: never a template, and too large to look through."""
    return name in ("hostvars", "groups", "vars", "group_names", "play_hosts", "ansible_play_hosts", "ansible_play_batch")


def _is_global(name):
    return name in jinja2.defaults.DEFAULT_NAMESPACE or name in ("lookup", "query", "q", "now", "undef", "finalize", "omit", "item", "loop")


def _names(path):
    """The names of secret variables; None: they cannot be read, so that no value may be told."""
    if not path:
        return frozenset()
    try:
        with open(path, "rb") as file:
            return frozenset(json.loads(file.read().decode("utf-8")))
    except Exception:
        return None


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
    fields = {"message": _tail(_answered(values, values.get("msg") or values.get("reason") or ""))}
    for key in ("stderr", "stdout", "exception"):
        text = _tail(values.get(key) or values.get("module_" + key) or "")
        if text:
            fields[key] = text
    if isinstance(values.get("rc"), int):
        fields["rc"] = values["rc"]
    return fields


def _answered(values, message):
    """A module that fetches keeps what a server answered, and where, out of its message: "Request failed"."""
    response, status, url = values.get("response"), values.get("status_code"), values.get("url")
    if not isinstance(status, int) or status <= 0 or not isinstance(response, str) or response in str(message):
        return message
    # Neither a login nor what a signature stands in.
    place = re.sub(r"//[^/@]*@", "//", str(url or "")).split("?")[0]
    return "%s: %s: %s" % (message, response, place)


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
