# Makes a host that is prepared a whole Kubernetes cluster of one node; runs on the host.
#
# $1 the host's address, $2 the Kubernetes version, $3 the tag of etcd's image
set -eu
address=$1 version=$2 etcd=$3
cat > /root/kubeadm.yaml << END
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: $address}
nodeRegistration: {criSocket: "unix:///run/containerd/containerd.sock", taints: [], imagePullPolicy: Never}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v$version
controlPlaneEndpoint: $address:6443
etcd: {local: {imageTag: $etcd}}
networking: {podSubnet: 10.244.0.0/16}
controllerManager: {extraArgs: [{name: allocate-node-cidrs, value: "false"}]}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
# The disk is the machine's: how full it is says nothing of this node, and no image can be had again.
evictionHard: {memory.available: 100Mi, nodefs.available: 100Mi, imagefs.available: 100Mi}
imageGCHighThresholdPercent: 100
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
conntrack: {maxPerCore: 0}
END
kubeadm init --config /root/kubeadm.yaml --skip-token-print --ignore-preflight-errors=SystemVerification > /root/kubeadm.log 2>&1 ||
  { tail -n 20 /root/kubeadm.log >&2; exit 1; }
export KUBECONFIG=/etc/kubernetes/admin.conf
# CoreDNS forwards to what the node asks; here nobody answers, and a pod must not ask itself.
kubectl wait --for=condition=Ready node --all --timeout=120s > /dev/null
kubectl --namespace kube-system rollout status deployment/coredns --timeout=120s > /dev/null
