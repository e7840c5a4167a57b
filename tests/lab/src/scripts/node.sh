# Makes a booted host a whole Kubernetes cluster of one node; runs on the host.
#
# $1 the host's address, $2 the Kubernetes version, $3 the tag of etcd's image
set -eu
address=$1 version=$2 etcd=$3
install -m 755 /opt/windlass/bin/{kubelet,kubeadm,kubectl} /usr/local/bin/
mkdir -p /etc/containerd /etc/cni/net.d /opt/cni
ln -sfn /usr/lib/cni /opt/cni/bin
# Where runc may not lower the OOM score, containers would not start without the restriction.
cat > /etc/containerd/config.toml << 'END'
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10.1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
END
# Pods reach the other hosts of the lab under the node's address: nobody else knows theirs.
cat > /etc/cni/net.d/10-lab.conflist << 'END'
{"cniVersion":"1.0.0","name":"lab","plugins":[
  {"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"hairpinMode":true,
   "ipam":{"type":"host-local","ranges":[[{"subnet":"10.244.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
  {"type":"portmap","capabilities":{"portMappings":true}}]}
END
# After a power cut all comes back by itself. What kubelet needs may be there a little later than kubelet.
cat > /etc/systemd/system/kubelet.service << 'END'
[Unit]
After=containerd.service
StartLimitIntervalSec=0
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStartPre=sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
ExecStart=/usr/local/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
END
echo 1 > /proc/sys/net/ipv4/ip_forward
systemctl daemon-reload
systemctl enable --quiet containerd kubelet
systemctl restart containerd
for image in /opt/windlass/images/*.tar; do ctr --namespace k8s.io images import "$image" > /dev/null; done

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
