"""Has oslo.config's own validator look at the configuration files of a service, and oslo.policy at its rules, and looks whether the image
has the revisions that the tables are at; prints a line of JSON for whatever is found.

It runs in the image of the service and is all that is brought there; of oslo.config it uses what its two programs do. Its arguments
are what is asked, as `schema.rs` writes it, and the code to end with where the image cannot tell.
"""

import difflib
import importlib.util
import json
import logging
import os
import re
import sys
import tempfile

REFUSED = 65


def say(kind, what):
    print(json.dumps({kind: what}), flush=True)


def unavailable(why):
    say("Unavailable", why)
    sys.exit(int(sys.argv[-1]))


class Said(logging.Handler):
    """What the validator says of settings, which are arguments of its words."""

    def __init__(self):
        super().__init__()
        self.unknown, self.deprecated = [], []

    def emit(self, record):
        if "is not part of" in record.msg:
            self.unknown.append(record.args)
        elif record.msg.startswith("Deprecated"):
            self.deprecated.append(record.args)


def as_program(main, *arguments):
    """Both read their arguments as programs do."""
    before, sys.argv = sys.argv, ["oslo-config", *arguments]
    try:
        return main()
    finally:
        sys.argv = before


def validate(path, namespaces):
    said = Said()
    log = logging.getLogger("oslo_config.validator")
    log.addHandler(said)
    log.propagate = False
    try:
        refuses = as_program(validator.main, *namespaces, f"--input-file={path}")
    finally:
        log.removeHandler(said)
    if refuses and not said.unknown:
        unavailable("the validator refuses a file and names no setting")
    return said


def schema(namespaces):
    """The keys of each section that the image knows."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        as_program(generator.main, *namespaces, "--format=json", f"--output-file={file.name}")
        known = json.load(open(file.name))["options"]
    return {
        section: {option.get("dest") or option["name"].replace("-", "_") for option in of["opts"]}
        for section, of in known.items()
    }


def nearest(section, like, key, keys):
    """What was probably meant: a key of this section, else this key in the section that is called most like it."""
    near = difflib.get_close_matches(key, sorted(keys.get(like, [])), 1, 0.75)
    if near:
        return f"{section}.{near[0]}"
    near = difflib.get_close_matches(section, sorted(name for name in keys if key in keys[name]), 1)
    return f"{near[0]}.{key}" if near else None


def nearest_rule(rule, known):
    near = difflib.get_close_matches(rule, sorted(known), 1, 0.75)
    return near[0] if near else None


def policy(file, asked):
    """oslo.policy reads a rule that nobody asks for, and says nothing of it; one that it cannot read it takes for "nobody". """
    import yaml
    from oslo_policy import generator, policy

    logging.getLogger("oslo_policy").propagate = False
    defaults = generator.get_policies_dict([asked["rules"]])[asked["rules"]]
    known = {default.name for default in defaults}
    old = {default.deprecated_rule.name for default in defaults if default.deprecated_rule} - known
    with open(os.path.join(asked["directory"], file)) as text:
        written = yaml.safe_load(text) or {}
    used = {name for check in written.values() for name in re.findall(r"rule:([^\s()'\",\]]+)", str(check))}
    is_refused = False
    for rule, check in policy.Rules.from_dict(written).items():
        told = {"file": file, "rule": rule}
        if str(check) == "!" and written[rule] != "!":
            say("BadRule", told)
            is_refused = True
        if rule in old:
            say("OldRule", told)
        elif rule not in known | used and f"{file}.{rule}" not in asked["allow"]:
            say("NoRule", told | {"nearest": nearest_rule(rule, known)})
            is_refused = True
    return is_refused


def revisions(place):
    """Those of all migrations that the image has. Nothing of them is executed."""
    package, _, below = place.partition("/")
    found = importlib.util.find_spec(package)
    known = set()
    for root in found.submodule_search_locations or [] if found else []:
        for directory, _, files in os.walk(os.path.join(root, below)):
            for file in (file for file in files if file.endswith(".py")):
                with open(os.path.join(directory, file), encoding="utf-8") as text:
                    known.update(re.findall(r"^revision\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text.read(), re.MULTILINE))
    return known


def tables(asked):
    """Who has tables that he does not know finds that out in the middle of changing them, or not at all."""
    known = revisions(asked["revisions"])
    if not known:
        unavailable(f"its packages have no revisions of tables in {asked['revisions']}")
    later = sorted(set(asked["tables"]) - known)
    if later:
        say("Later", later)
        sys.exit(REFUSED)


def main(asked):
    there = {entry.name for entry in entry_points(group="oslo.config.opts")}
    own = asked["namespaces"][0]
    if own not in there:
        unavailable(f"its packages have no options of {own}")
    namespaces = [f"--namespace={name}" for name in asked["namespaces"] if name in there]
    keys, is_refused = None, False
    for file in asked["files"]:
        try:
            said = validate(os.path.join(asked["directory"], file), namespaces)
        except iniparser.ParseError as error:
            say("Unreadable", {"file": file, "line": error.lineno, "why": error.msg})
            is_refused = True
            continue
        for section, key in said.deprecated:
            say("Deprecated", {"file": file, "section": section, "key": key})
        for section, key in said.unknown:
            setting = f"{section}.{key}"
            if setting in asked["allow"] or f"{section}.*" in asked["allow"]:
                continue
            keys = keys or schema(namespaces)
            like = asked["like"].get(section, section)
            if key in keys.get(like, []):
                continue
            near = nearest(section, like, key, keys)
            found = {"file": file, "section": section, "key": key, "nearest": near}
            # What is said for all services may be for another one, unless it looks like a slip.
            if near is None and f"{file} {setting}" in asked["shared"]:
                say("Passed", found)
                continue
            say("Refused", found)
            is_refused = True
    for file in asked["policies"]:
        is_refused = policy(file, asked) or is_refused
    sys.exit(REFUSED if is_refused else 0)


try:
    if json.loads(sys.argv[-2])["tables"]:
        tables(json.loads(sys.argv[-2]))

    from importlib.metadata import entry_points

    from oslo_config import generator, iniparser, validator

    main(json.loads(sys.argv[-2]))
except Exception as error:
    unavailable(f"{type(error).__name__}: {error}")
