"""A Keystone of its own in a directory: makes it there, or serves it and says on which port."""

import os
import sys

directory = os.path.abspath(sys.argv[2])
command = sys.argv[1]

CONFIGURATION = """
[DEFAULT]
log_file = {directory}/keystone.log
[database]
connection = sqlite:///{directory}/keystone.db
[fernet_tokens]
key_repository = {directory}/fernet
[fernet_receipts]
key_repository = {directory}/receipts
[credential]
key_repository = {directory}/credential
[identity]
password_hash_rounds = 4
"""


def make():
    """Makes database, keys and the first user, whose password is in the environment."""
    from keystone.cmd import manage

    configuration = os.path.join(directory, "keystone.conf")
    with open(configuration, "w", encoding="utf-8") as file:
        file.write(CONFIGURATION.format(directory=directory))
    for name in ("fernet", "receipts", "credential"):
        os.mkdir(os.path.join(directory, name), mode=0o700)
    owner = ["--keystone-user", str(os.getuid()), "--keystone-group", str(os.getgid())]
    for step in (
        ["db_sync"],
        ["fernet_setup", *owner],
        ["credential_setup", *owner],
        ["bootstrap"],
    ):
        # Each step is a process, for the program keeps what it was told in globals.
        child = os.fork()
        if child == 0:
            sys.argv = ["keystone-manage", "--config-file", configuration, *step]
            manage.main()
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            sys.exit(f"keystone-manage {step[0]} failed")


def serve():
    """Serves on a free port of loopback, which is the first line that is printed."""
    os.environ["OS_KEYSTONE_CONFIG_DIR"] = directory
    sys.argv = ["keystone"]
    from keystone.wsgi.api import application
    from waitress import create_server

    server = create_server(application, host="127.0.0.1", port=0, threads=4)
    print(server.effective_port, flush=True)
    server.run()


{"make": make, "serve": serve}[command]()
