"""The modes in which levels are measured, and the binaries that they need."""
import os

from web import servers

ROOT = servers.ROOT
# The mode's name in the configuration of the namespace.
SYNC = {"durable": "always", "interval": "interval"}
# When a directory's own attributes follow its entries (docs/decisions/0008).
CONSISTENCY = ["strong", "weak", "soft", "auto"]


def binary():
    return os.environ.get("FOREBAY", os.path.join(ROOT, "target/release/forebay"))


def built(path, how):
    return None if os.access(path, os.X_OK) else "%s is not built (%s)" % (path, how)
