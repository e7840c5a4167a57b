# Makes in the directory ROOT what an image has on top of the services to start as Kolla's image of Keystone does.
#
# KOLLA    what Kolla's images are made of
# BASE     the Debian below it, with its users
set -eu
mkdir -p "$ROOT/usr/local/bin" "$ROOT/etc" "$ROOT/var/log/kolla" "$ROOT/var/lib/keystone"
while read -r from name mode; do
  install -m "$mode" "$KOLLA/docker/$from" "$ROOT/$name"
done <<END
base/start.sh usr/local/bin/kolla_start 755
base/set_configs.py usr/local/bin/kolla_set_configs 755
base/copy_cacerts.sh usr/local/bin/kolla_copy_cacerts 755
base/install_projects.sh usr/local/bin/kolla_install_projects 755
keystone/keystone-api/extend_start.sh usr/local/bin/kolla_extend_start 644
base/sudoers etc/sudoers 440
END
{ cat "$BASE/etc/passwd"; echo 'keystone:x:42425:42425::/var/lib/keystone:/usr/sbin/nologin'; } > "$ROOT/etc/passwd"
{ cat "$BASE/etc/group"; echo 'keystone:x:42425:'; echo 'kolla:x:42400:keystone'; } > "$ROOT/etc/group"
# Without an entry there sudo takes nobody for a user.
{ cat "$BASE/etc/shadow"; echo 'keystone:!:20000::::::'; } > "$ROOT/etc/shadow"
chmod 600 "$ROOT/etc/shadow"
chown 42425:42425 "$ROOT/var/lib/keystone"
chown 0:42400 "$ROOT/var/log/kolla"
chmod 2775 "$ROOT/var/log/kolla"
