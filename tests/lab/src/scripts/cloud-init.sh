# Goes on where base.sh ends, in a root that has cloud-init: it works by a seed that lies on the disk, and only where it is woken.
touch "$ROOT/etc/cloud/cloud-init.disabled"
# The network and the keys of a host are the lab's. What a machine becomes a node by is all that is left of the modules: others would ask
# for packages, or for the disks of a real machine.
cat > "$ROOT/etc/cloud/cloud.cfg.d/99_lab.cfg" << 'CONFIG'
datasource_list: [NoCloud]
network: {config: disabled}
disable_root: false
users: []
cloud_init_modules: [bootcmd, write-files, set_hostname, users-groups]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts-user, final-message]
CONFIG
