# The owner of one lab: the first process of its own mount, process and network namespaces.
# It makes the bridge and the addresses that no host answers on, says so by the file `ready`, and then only
# waits for its standard input to end. When it ends, however it ends, the kernel takes every process, mount
# and interface of the lab with it. Being the first process it also reaps what the lab leaves unwaited.
#
# LAB      the lab's directory
# BRIDGE   address of the bridge with its prefix
# SILENT   addresses that swallow every packet, separated by blanks
# REFUSING addresses that refuse every connection, separated by blanks
set -eu
# The number of this process as the machine counts it: the old /proc is still mounted.
read -r pid _ < /proc/self/stat
echo "$pid" > "$LAB/owner.pid"
mount --make-rprivate /
mount -t proc proc /proc
for directory in /run/netns /run/systemd/nspawn; do
  mkdir -p "$directory"
  mount -t tmpfs tmpfs "$directory"
done

ip link set lo up
ip link add br0 type bridge
ip address add "$BRIDGE" dev br0
ip link set br0 up
echo 1 > /proc/sys/net/ipv4/ip_forward
# Every systemd and kubelet of the lab draws from this one pool of the machine.
instances=/proc/sys/fs/inotify/max_user_instances
[ "$(cat $instances)" -ge 8192 ] || echo 8192 > $instances || true

# A machine that is there for ARP but answers nothing: its addresses have no route back to anybody.
# Without it a connection would fail early with "no route to host" instead of timing out.
interface() {
  ip netns add "$1"
  ip link add "v-$1" type veth peer name eth0 netns "$1"
  ip link set "v-$1" master br0 up
  ip -n "$1" link set lo up
  ip -n "$1" link set eth0 up
}
if [ -n "$SILENT" ]; then
  interface silent
  ip netns exec silent sh -c 'for f in all default eth0; do echo 0 > /proc/sys/net/ipv4/conf/$f/rp_filter; done'
  for address in $SILENT; do ip -n silent address add "$address/32" dev eth0; done
fi
if [ -n "$REFUSING" ]; then
  interface refusing
  for address in $REFUSING; do ip -n refusing address add "$address/24" dev eth0; done
fi

: > "$LAB/ready"
while read -r _; do :; done
