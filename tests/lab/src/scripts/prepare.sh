# Gives a booted host what kubeadm builds on: programs, images, containerd, and a pod network of its own; runs on the host.
#
# $1 the addresses of its pods, and then of each host that it shall reach pods of: their addresses, and that of the host
set -eu
pods=$1
shift
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
cat > /etc/cni/net.d/10-lab.conflist << END
{"cniVersion":"1.0.0","name":"lab","plugins":[
  {"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"hairpinMode":true,
   "ipam":{"type":"host-local","ranges":[[{"subnet":"$pods"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
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
# They are gone after a power cut, as all that is not on the disk.
cat > /etc/systemd/system/pod-routes.service << END
[Service]
Type=oneshot
RemainAfterExit=yes
$(while [ $# -gt 0 ]; do echo "ExecStart=ip route replace $1 via $2"; shift 2; done)
ExecStart=true
[Install]
WantedBy=multi-user.target
END
echo 1 > /proc/sys/net/ipv4/ip_forward
systemctl daemon-reload
systemctl enable --quiet containerd kubelet
systemctl enable --quiet --now pod-routes
systemctl restart containerd
for image in /opt/windlass/images/*.tar; do ctr --namespace k8s.io images import "$image" > /dev/null; done
