# Cuts the power of one host of a lab (LAB, HOST); runs in the namespaces of the owner.
set -eu
read -r nspawn leader < "$LAB/hosts/$HOST/pids"
kill -KILL "$leader" 2> /dev/null || true
deadline=$((SECONDS + 30))
while [ -e "/proc/$nspawn" ]; do
  [ $SECONDS -lt $deadline ] || { echo "$HOST is still there" >&2; exit 1; }
  sleep 0.05
done
rm -f "$LAB/hosts/$HOST/pids"
