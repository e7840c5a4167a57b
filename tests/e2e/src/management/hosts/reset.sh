# Makes a host what it was before it woke, wherever it has got to.
set -eu
[ ! -e /etc/cloud/cloud-init.disabled ] || exit 0
systemctl stop cloud-init.target cloud-final cloud-config cloud-init cloud-init-local
kubeadm reset --force --cri-socket unix:///run/containerd/containerd.sock > /root/kubeadm-reset.log 2>&1 ||
  { tail -n 20 /root/kubeadm-reset.log >&2; exit 1; }
rm -rf /etc/kubernetes /run/kubeadm /run/cluster-api
cloud-init clean --logs --seed
touch /etc/cloud/cloud-init.disabled
systemctl daemon-reload
