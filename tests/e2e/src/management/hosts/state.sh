# Says how far a host is with becoming a node: asleep, busy, node, or why it is none.
status=$(cloud-init status --long)
if [ -e /etc/cloud/cloud-init.disabled ]; then
  echo asleep
elif [ -e /run/cluster-api/bootstrap-success.complete ]; then
  echo node
elif grep -Eq '^status: (done|error)' <<< "$status"; then
  echo "$status"
  # kubeadm says how others join, which is nobody's business.
  grep -Ev -- '--(token|certificate-key|discovery-token)' /var/log/cloud-init-output.log | tail -n 30
else
  echo busy
fi
