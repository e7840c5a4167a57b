"""The driver of OpenStack Magnum whose clusters Windlass makes.

- ``api``: the Kubernetes API that Windlass keeps its objects in, from the standard library;
- ``objects``: from what Magnum has to Windlass' objects and back, without a side effect;
- ``driver``: what Magnum calls;
- ``options``: what an operator says in ``magnum.conf``.
"""
