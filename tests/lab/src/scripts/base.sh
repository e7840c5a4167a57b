# Makes the Debian root that stands for a freshly installed machine, in the directory ROOT.
#
# MIRROR    where Debian is fetched
# PACKAGES  what is installed beside the minimal system, separated by blanks
#
# The set holds what kubespray's own preparation would install, so that a host needs no network.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
debootstrap --variant=minbase \
  --include=systemd,systemd-sysv,dbus,openssh-server,python3,sudo,ca-certificates bookworm "$ROOT" "$MIRROR"
mount -t proc proc "$ROOT/proc"
trap 'umount "$ROOT/proc"' EXIT
cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
# No service is started while packages are unpacked.
printf '#!/bin/sh\nexit 101\n' > "$ROOT/usr/sbin/policy-rc.d"
chmod +x "$ROOT/usr/sbin/policy-rc.d"
chroot "$ROOT" apt-get update -q
# shellcheck disable=SC2086
chroot "$ROOT" apt-get install -y -q --no-install-recommends $PACKAGES
for unit in haproxy containerd apparmor; do
  chroot "$ROOT" systemctl disable "$unit.service" 2> /dev/null || true
done
rm -f "$ROOT/usr/sbin/policy-rc.d"
rm -f "$ROOT"/var/cache/apt/archives/*.deb
mkdir -p "$ROOT/var/lib/apt/periodic" "$ROOT/lib/modules"
touch "$ROOT/var/lib/apt/periodic/update-success-stamp"
# Host keys are handed to each host before it boots; only that one kind is offered.
rm -f "$ROOT"/etc/ssh/ssh_host_*
cat > "$ROOT/etc/ssh/sshd_config.d/lab.conf" <<'CONFIG'
HostKey /etc/ssh/ssh_host_ed25519_key
PasswordAuthentication no
UseDNS no
MaxStartups 100
CONFIG
: > "$ROOT/etc/machine-id"
# These need a real machine.
for unit in systemd-udevd.service systemd-udevd-control.socket systemd-udevd-kernel.socket getty.target console-getty.service; do
  ln -sf /dev/null "$ROOT/etc/systemd/system/$unit"
done
