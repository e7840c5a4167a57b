"""Section ``[windlass]`` of ``magnum.conf``."""

from oslo_config import cfg

GROUP = cfg.OptGroup("windlass", title="Where Windlass keeps its objects")
OPTIONS = [
    cfg.StrOpt(
        "kubeconfig",
        default="/etc/magnum/windlass.kubeconfig",
        help="The kubeconfig of the Kubernetes API that Windlass keeps its objects in. It is read anew for "
        "each call, so that credentials can be exchanged while Magnum runs.",
    ),
    cfg.IntOpt(
        "timeout",
        default=20,
        min=1,
        max=50,
        help="How long a call of Magnum may wait for that API, in seconds. Magnum itself waits for 60.",
    ),
]


def register(conf):
    """Makes the options known; a second time changes nothing."""
    conf.register_group(GROUP)
    conf.register_opts(OPTIONS, group=GROUP)


def list_opts():
    """For ``oslo-config-generator``."""
    return [(GROUP, OPTIONS)]
