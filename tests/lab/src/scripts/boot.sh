# Starts one host of a lab, for the first time or again; runs in the namespaces of the owner.
#
# LAB, HOST, ADDRESS  the lab's directory, the host's name and address
# GATEWAY             the bridge's address
# BASE                the Debian root that the host's own disk lies over
# CGROUP              name of the lab's control group
# PROGRAMS, IMAGES    directories shown at /opt/windlass/{bin,images}; empty: none
# OLDER_PROGRAMS, OLDER_IMAGES  likewise at /opt/windlass/older/{bin,images}
set -eu
disk=$LAB/hosts/$HOST
mkdir -p "$disk"/{root,upper,work,containerd,kubelet,etcd}
mountpoint -q "$disk/root" || mount -t overlay overlay \
  -o "lowerdir=$BASE,upperdir=$disk/upper,workdir=$disk/work" "$disk/root"
root=$disk/root
echo "$HOST" > "$root/etc/hostname"
# From the machine below all of them would take the same one.
[ -s "$root/etc/machine-id" ] || tr -d - < /proc/sys/kernel/random/uuid > "$root/etc/machine-id"
cp "$LAB/hosts.txt" "$root/etc/hosts"
echo "nameserver $GATEWAY" > "$root/etc/resolv.conf"
mkdir -p -m 700 "$root/root/.ssh"
cp "$LAB/id.pub" "$root/root/.ssh/authorized_keys"
# The key is made before the first boot, so that whoever connects can know it beforehand.
install -m 600 "$disk/ssh_host_ed25519_key" "$root/etc/ssh/"
install -m 644 "$disk/ssh_host_ed25519_key.pub" "$root/etc/ssh/"

# A restarted machine has lost its interfaces and routes, but keeps its hardware address.
ip link delete "v-$HOST" 2> /dev/null || true
ip netns delete "$HOST" 2> /dev/null || true
ip netns add "$HOST"
mac=$(printf '02:00:%02x:%02x:%02x:%02x' ${ADDRESS//./ })
ip link add "v-$HOST" type veth peer name eth0 address "$mac" netns "$HOST"
ip link set "v-$HOST" master br0 up
ip -n "$HOST" link set lo up
ip -n "$HOST" address add "$ADDRESS/24" dev eth0
ip -n "$HOST" link set eth0 up
ip -n "$HOST" route add default via "$GATEWAY"

# One group per host in every hierarchy: systemd-nspawn makes it the host's own root. Without this the
# kubelets of several hosts share one /kubepods and clean each other's pods away.
# A host weighs as much as a process of the machine does, lest a busy machine starves all of them as one.
hosts=$(ls "$LAB/hosts" | wc -l)
groups=()
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  group=/sys/fs/cgroup/$CGROUP
  mkdir -p "$group/$HOST"
  for parent in /sys/fs/cgroup "$group"; do
    for controller in $(cat "$parent/cgroup.controllers"); do
      echo "+$controller" > "$parent/cgroup.subtree_control" 2> /dev/null || true
    done
  done
  [ ! -e "$group/cpu.weight" ] || echo $((hosts < 100 ? 100 * hosts : 10000)) > "$group/cpu.weight"
  groups=("$group/$HOST")
else
  for hierarchy in /sys/fs/cgroup/*/; do
    hierarchy=${hierarchy%/}
    [ ! -L "$hierarchy" ] && [ -e "$hierarchy/cgroup.procs" ] || continue
    group=$hierarchy/$CGROUP
    find "$group/$HOST" -mindepth 1 -depth -type d -exec rmdir {} + 2> /dev/null || true
    mkdir -p "$group/$HOST"
    [ ! -e "$group/cpu.shares" ] || echo $((1024 * hosts)) > "$group/cpu.shares"
    if [ -e "$group/cpuset.cpus" ]; then
      for level in "$group" "$group/$HOST"; do
        cat "$hierarchy/cpuset.cpus" > "$level/cpuset.cpus"
        cat "$hierarchy/cpuset.mems" > "$level/cpuset.mems"
      done
    fi
    groups+=("$group/$HOST")
  done
fi

binds=("--bind=$disk/containerd:/var/lib/containerd" "--bind=$disk/kubelet:/var/lib/kubelet" "--bind=$disk/etcd:/var/lib/etcd")
[ -e /dev/kmsg ] && binds+=(--bind=/dev/kmsg)
[ -z "$PROGRAMS" ] || binds+=("--bind-ro=$PROGRAMS:/opt/windlass/bin")
[ -z "$IMAGES" ] || binds+=("--bind-ro=$IMAGES:/opt/windlass/images")
[ -z "$OLDER_PROGRAMS" ] || binds+=("--bind-ro=$OLDER_PROGRAMS:/opt/windlass/older/bin")
[ -z "$OLDER_IMAGES" ] || binds+=("--bind-ro=$OLDER_IMAGES:/opt/windlass/older/images")
(
  for group in "${groups[@]}"; do echo 0 > "$group/cgroup.procs"; done
  # Else what a host downloads to /tmp sits in the machine's memory.
  export SYSTEMD_NSPAWN_TMPFS_TMP=0
  # Started from the host's own network: the kernel shows in /sys the interfaces of whoever mounts it, and
  # that is where Ansible looks for them.
  exec setsid nsenter --net="/run/netns/$HOST" -- systemd-nspawn --quiet --register=no --keep-unit --boot --directory="$root" --machine="$HOST" \
    --network-namespace-path="/run/netns/$HOST" --capability=all \
    --system-call-filter="@keyring bpf perf_event_open @mount @module" --private-users=no \
    --resolv-conf=off --timezone=off --console=pipe "${binds[@]}"
) > "$disk/console.log" 2>&1 < /dev/null &
nspawn=$!

deadline=$((SECONDS + 60))
until_true() {
  until "$@" 2> /dev/null; do
    if [ $SECONDS -ge $deadline ] || [ ! -e "/proc/$nspawn" ]; then
      echo "$HOST did not start: $*" >&2
      tail -n 20 "$disk/console.log" >&2
      exit 1
    fi
    sleep 0.05
  done
}
init_runs() {
  leader=$(pgrep -P "$nspawn" | head -n 1)
  [ -n "$leader" ] && [ "$(cat "/proc/$leader/comm")" = systemd ]
}
until_true init_runs
echo "$nspawn $leader" > "$disk/pids"
until_true nsenter -a -t "$leader" systemctl is-active --quiet ssh
nsenter -a -t "$leader" sh -c '
  for hierarchy in /sys/fs/cgroup/*/; do
    mountpoint -q "$hierarchy" || continue
    mount -o remount,rw,bind "$hierarchy" 2> /dev/null || mount -o remount,rw "$hierarchy"
  done
  mount -o remount,rw,bind /sys/fs/cgroup 2> /dev/null
  mount -o remount,rw /proc/sys 2> /dev/null || mount -o remount,rw,bind /proc/sys
  mount -o remount,rw,bind /sys 2> /dev/null || mount -o remount,rw /sys
  mount --make-rshared /'
banner() { timeout 1 bash -c "exec 3<> /dev/tcp/$ADDRESS/22 && read -r -t 1 line <&3 && [[ \$line == SSH-* ]]"; }
until_true banner
