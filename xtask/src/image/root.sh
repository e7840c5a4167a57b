# Makes the file system of the runner image in the directory ROOT: a small Debian with ssh, git and Python, and the Python
# environment of the release that BUNDLE asks for, made by WINDLASS at the path where runners look for it.
#
# MIRROR    where Debian is fetched
# PACKAGES  what is installed beside the minimal system, separated by commas
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
debootstrap --variant=minbase --include="$PACKAGES" bookworm "$ROOT" "$MIRROR"

# ssh refuses to work for a user without a name.
echo 'windlass:x:65532:65532:windlass:/data:/usr/sbin/nologin' >> "$ROOT/etc/passwd"
echo 'windlass:x:65532:' >> "$ROOT/etc/group"
mkdir -p "$ROOT/data" "$ROOT/opt/windlass/sandboxes" "$ROOT/run/windlass"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
install -m 755 "$WINDLASS" "$work/windlass"
# The playbooks are a layer of their own: they change more often than what they require.
cp -a "$BUNDLE" "$work/bundle"
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs tmpfs "$ROOT/tmp"
mkdir "$ROOT/tmp/build"
mount --bind "$work" "$ROOT/tmp/build"
# The machine's own way to the package registry: its names, and whom it trusts.
cp /etc/resolv.conf "$ROOT/tmp/resolv.conf"
mount --bind "$ROOT/tmp/resolv.conf" "$ROOT/etc/resolv.conf" 2> /dev/null || cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
[ ! -d /etc/ssl/certs ] || mount --bind /etc/ssl/certs "$ROOT/etc/ssl/certs"
[ ! -f /etc/pip.conf ] || { cp /etc/pip.conf "$ROOT/tmp/pip.conf"; export PIP_CONFIG_FILE=/tmp/pip.conf; }
export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt HOME=/tmp XDG_CACHE_HOME=/tmp/cache PATH=/usr/sbin:/usr/bin:/sbin:/bin
mkdir -p "$ROOT/tmp/data"
mount --bind "$ROOT/opt/windlass" "$ROOT/opt/windlass"
chroot "$ROOT" /tmp/build/windlass --data-dir /opt/windlass sandbox /tmp/build/bundle
# It is made as in anybody's data directory, for its owner alone; in an image it is everybody's to read.
chmod -R u=rwX,go=rX "$ROOT/opt/windlass"
# Byte code that is valid whatever the times of the sources are: an image has no times, and nobody can write it anew.
find "$ROOT/usr/lib/python3" "$ROOT"/usr/lib/python3.* "$ROOT/opt/windlass" -depth -name __pycache__ -exec rm -rf {} +
rm -rf "$ROOT"/opt/windlass/sandboxes/uv-* "$ROOT"/opt/windlass/sandboxes/*.lock
SOURCE_DATE_EPOCH=315532800 chroot "$ROOT" python3 -m compileall -q --invalidation-mode unchecked-hash \
  /usr/lib/python3 /usr/lib/python3.* /opt/windlass/sandboxes || true
umount "$ROOT/opt/windlass"
[ ! -d /etc/ssl/certs ] || umount "$ROOT/etc/ssl/certs"
umount "$ROOT/etc/resolv.conf" 2> /dev/null || true
umount "$ROOT/tmp/build"
umount "$ROOT/tmp"
umount --recursive --lazy "$ROOT/dev"
umount "$ROOT/proc"

# What tells when, where or how often something was made, and what no runner reads.
rm -rf "$ROOT"/var/cache/* "$ROOT"/var/lib/apt/lists/* "$ROOT"/var/log/* "$ROOT"/var/lib/dpkg/*-old "$ROOT"/usr/share/doc/* \
  "$ROOT"/usr/share/man/* "$ROOT"/usr/share/locale/* "$ROOT"/debootstrap "$ROOT"/etc/ld.so.cache.d "$ROOT"/root/.[a-z]*
rm -f "$ROOT/etc/machine-id" "$ROOT/etc/resolv.conf" "$ROOT/etc/hostname"
: > "$ROOT/etc/resolv.conf"
