# Makes a small Debian with some packages in the directory ROOT, which the images of a cloud stand on.
#
# MIRROR    where Debian is fetched
# PACKAGES  what is installed
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
# Nobody starts a server while packages are unpacked, and nobody reads documentation in an image.
debootstrap --variant=minbase --include=ca-certificates bookworm "$ROOT" "$MIRROR"
printf '#!/bin/sh\nexit 101\n' > "$ROOT/usr/sbin/policy-rc.d"
chmod +x "$ROOT/usr/sbin/policy-rc.d"
printf 'path-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\npath-exclude=/usr/share/locale/*\n' \
  > "$ROOT/etc/dpkg/dpkg.cfg.d/small"
mount -t proc proc "$ROOT/proc"
trap 'umount "$ROOT/proc"' EXIT
cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
chroot "$ROOT" apt-get update -q
# shellcheck disable=SC2086 # They are words.
chroot "$ROOT" apt-get install -y -q --no-install-recommends $PACKAGES
# Byte code that is valid whatever the times of the sources are: an image has no times.
[ ! -d "$ROOT/usr/lib/python3" ] || \
  chroot "$ROOT" python3 -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.11 > /dev/null || true
rm -rf "$ROOT"/usr/sbin/policy-rc.d "$ROOT"/var/cache/* "$ROOT"/var/lib/apt/lists/* "$ROOT"/var/log/* "$ROOT"/usr/share/doc/* \
  "$ROOT"/usr/share/man/* "$ROOT"/usr/share/locale/* "$ROOT"/debootstrap
: > "$ROOT/etc/resolv.conf"
echo 'openstack:x:42424:42424::/var/lib/openstack:/usr/sbin/nologin' >> "$ROOT/etc/passwd"
echo 'openstack:x:42424:' >> "$ROOT/etc/group"
