# Compiles the Python files of a layer of an image, by the Python of the root that it lies upon. Byte code that is valid whatever the times
# of the sources are: a layer has no times, and a process that may not write there would compile all that it imports at each start.
#
# ROOT      the root
# LAYER     the directory that becomes the layer
# PACKAGES  where in it packages are
set -eu
mount --bind "$LAYER/usr/local" "$ROOT/usr/local"
# A file that is no Python of this version, as a template is, says so to who imports it.
chroot "$ROOT" python3 -m compileall -q -f --invalidation-mode unchecked-hash "/$PACKAGES" > /dev/null || true
