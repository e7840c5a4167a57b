# Has a host become what its standard input says.
#
# $1 what this life of it is called, $2 its name
set -eu
seed=/var/lib/cloud/seed/nocloud
mkdir -p -m 700 $seed
cat > $seed/user-data
printf 'instance-id: %s\nlocal-hostname: %s\n' "$1" "$2" > $seed/meta-data
rm /etc/cloud/cloud-init.disabled
# This is when systemd asks cloud-init whether it has anything to do.
systemctl daemon-reload
systemctl start --no-block cloud-init.target
